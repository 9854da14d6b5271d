"""The table of all rules, and the function that runs them.

A rule that is not in this table does not exist. Each has a failing case of its own in the tests,
which triggers it and no other.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from serve.triton.lint import (
    batching,
    cycles,
    ensembles,
    execution,
    files,
    flavours,
    instances,
    model_file,
    outputs,
    preferred_sizes,
    queues,
    refusals,
    resources,
    sequences,
    tensors,
    warmup,
)
from serve.triton.lint.subject import Diagnosis, Findings, LintSubject, Severity


@dataclass(frozen=True, slots=True)
class LintRule:
    """One rule: its stable name, how bad it is, and the function that looks for it."""

    name: str
    severity: Severity
    check: Callable[[LintSubject], Findings]

    @property
    def meaning(self) -> str:
        """What the rule is about, in one sentence."""
        return (self.check.__doc__ or "").strip().partition("\n")[0]


_E, _W = Severity.ERROR, Severity.WARNING
BATCHING: tuple[LintRule, ...] = (  # how a version is run; what `servegate batching` may change
    # batches
    LintRule("batch-size-negative", _E, batching.batch_size_negative),
    LintRule("batch-dimension-fixed", _E, batching.batch_dimension_fixed),
    LintRule("batching-without-batches", _W, batching.batching_without_batches),
    LintRule("preferred-beyond-largest", _E, preferred_sizes.preferred_beyond_largest),
    LintRule("preferred-not-positive", _E, preferred_sizes.preferred_not_positive),
    LintRule("preferred-twice", _W, preferred_sizes.preferred_twice),
    LintRule("preferred-one", _W, preferred_sizes.preferred_one),
    LintRule("preferred-caps", _W, preferred_sizes.preferred_caps),
    LintRule("delay-absurd", _W, batching.delay_absurd),
    LintRule("delay-without-effect", _W, batching.delay_without_effect),
    # queues
    LintRule("ordering-with-priorities", _E, queues.ordering_with_priorities),
    LintRule("ordering-with-delayed", _E, queues.ordering_with_delayed),
    LintRule("ordering-holds-answers", _W, queues.ordering_holds_answers),
    LintRule("timeout-never", _W, queues.timeout_never),
    LintRule("timeout-override-without-effect", _W, queues.timeout_override_without_effect),
    LintRule("timeout-before-delay", _W, queues.timeout_before_delay),
    LintRule("timeout-absurd", _W, queues.timeout_absurd),
    LintRule("queue-below-batch", _W, queues.queue_below_batch),
    LintRule("priority-default-outside", _E, batching.priority_default_outside),
    LintRule("priority-policy-outside", _E, batching.priority_policy_outside),
    LintRule("priority-without-levels", _W, batching.priority_without_levels),
    LintRule("priority-single", _W, queues.priority_single),
    # sequences
    LintRule("control-unknown", _E, sequences.control_unknown),
    LintRule("slot-utilization", _E, sequences.slot_utilization),
    LintRule("candidates-negative", _W, sequences.candidates_negative),
    LintRule("candidates-few", _W, sequences.candidates_few),
    LintRule("idle-absurd", _W, sequences.idle_absurd),
    # instances
    LintRule("instance-count", _E, instances.instance_count),
    LintRule("instances-many", _W, instances.instances_many),
    LintRule("instances-passive", _E, instances.instances_passive),
    LintRule("profile-without-plan", _E, instances.profile_without_plan),
    LintRule("gpu-missing", _W, instances.gpu_missing),
    LintRule("gpus-without-gpu-kind", _E, instances.gpus_without_gpu_kind),
    LintRule("gpu-number", _E, instances.gpu_number),
    LintRule("gpu-required", _E, instances.gpu_required),
    # rate limiter and response cache
    LintRule("resource-twice", _W, resources.resource_twice),
    LintRule("resource-both", _E, resources.resource_both),
    LintRule("resource-empty", _W, resources.resource_empty),
    LintRule("rate-limiter-off", _W, resources.rate_limiter_off),
    LintRule("cache-unsupported", _E, resources.cache_unsupported),
    LintRule("cache-off", _W, resources.cache_off),
    # warm-up
    LintRule("warmup-input-unknown", _E, warmup.warmup_input_unknown),
    LintRule("warmup-input-missing", _E, warmup.warmup_input_missing),
    LintRule("warmup-differs", _E, warmup.warmup_differs),
    LintRule("warmup-batch-size", _E, warmup.warmup_batch_size),
    LintRule("warmup-file-missing", _E, warmup.warmup_file_missing),
    LintRule("warmup-data-missing", _E, warmup.warmup_data_missing),
    LintRule("warmup-random-text", _W, warmup.warmup_random_text),
    LintRule("warmup-count", _W, warmup.warmup_count),
)
RULES: tuple[LintRule, ...] = (
    # inputs and outputs
    LintRule("tensor-unnamed", _E, tensors.tensor_unnamed),
    LintRule("tensor-twice", _E, tensors.tensor_twice),
    LintRule("datatype-missing", _E, tensors.datatype_missing),
    LintRule("datatype-unsupported", _E, model_file.datatype_unsupported),
    LintRule("datatype-differs", _E, model_file.datatype_differs),
    LintRule("dims-invalid", _E, tensors.dims_invalid),
    LintRule("dims-hold-batch", _E, model_file.dims_hold_batch),
    LintRule("dims-count", _E, model_file.dims_count),
    LintRule("dims-differ", _E, model_file.dims_differ),
    LintRule("reshape-size", _E, tensors.reshape_size),
    LintRule("reshape-empty", _E, tensors.reshape_empty),
    LintRule("format-rank", _E, tensors.format_rank),
    LintRule("input-missing", _E, model_file.input_missing),
    LintRule("input-unknown", _E, model_file.input_unknown),
    LintRule("output-unknown", _E, model_file.output_unknown),
    LintRule("optional-without-default", _E, model_file.optional_without_default),
    LintRule("default-not-optional", _E, model_file.default_not_optional),
    LintRule("optional-batched", _W, model_file.optional_batched),
    *BATCHING,
    # names, files and backends
    LintRule("name-invalid", _E, files.name_invalid),
    LintRule("name-differs", _W, files.name_differs),
    LintRule("version-policy-ignored", _W, files.version_policy_ignored),
    LintRule("label-file-missing", _E, files.label_file_missing),
    LintRule("label-file-misplaced", _E, files.label_file_misplaced),
    LintRule("platform-unknown", _E, files.platform_unknown),
    LintRule("backend-unknown", _W, files.backend_unknown),
    LintRule("backend-missing", _E, files.backend_missing),
    LintRule("platform-against-backend", _E, files.platform_against_backend),
    LintRule("platform-against-file", _E, files.platform_against_file),
    LintRule("tensorflow-ended", _E, files.tensorflow_ended),
    LintRule("version-empty", _E, files.version_empty),
    LintRule("model-file-missing", _E, files.model_file_missing),
    LintRule("default-file-missing", _E, files.default_file_missing),
    LintRule("external-data-missing", _E, files.external_data_missing),
    LintRule("external-data-outside", _E, files.external_data_outside),
    LintRule("opset-new", _W, files.opset_new),
    LintRule("graph-invalid", _W, files.graph_invalid),
    # how it is run
    LintRule("unsupported-here", _W, batching.unsupported_here),
    LintRule("accelerator-unknown", _E, execution.accelerator_unknown),
    LintRule("accelerator-parameter", _E, execution.accelerator_parameter),
    LintRule("precision-mode-removed", _W, execution.precision_mode_removed),
    LintRule("parameter-value", _E, execution.parameter_value),
    LintRule("parameter-path", _W, execution.parameter_path),
    LintRule("graph-level", _E, execution.graph_level),
    LintRule("field-new", _W, execution.field_new),
    LintRule("field-refused", _E, refusals.field_refused),
    # flavours
    LintRule("flavours-malformed", _E, flavours.flavours_malformed),
    LintRule("flavour-override", _E, flavours.flavour_override),
    LintRule("flavour-needs", _E, flavours.flavour_needs),
    # documents
    LintRule("preprocessing-malformed", _W, outputs.preprocessing_malformed),
    LintRule("preprocessing-unfit", _W, outputs.preprocessing_unfit),
    LintRule("outputs-malformed", _E, outputs.outputs_malformed),
    LintRule("outputs-unfit", _E, outputs.outputs_unfit),
    LintRule("conversion-unverified", _W, files.conversion_unverified),
    # ensembles
    LintRule("ensemble-platform", _E, ensembles.ensemble_platform),
    LintRule("ensemble-only", _E, ensembles.ensemble_only),
    LintRule("step-unknown", _E, ensembles.step_unknown),
    LintRule("step-itself", _E, ensembles.step_itself),
    LintRule("step-input-unknown", _E, ensembles.step_input_unknown),
    LintRule("step-output-unknown", _E, ensembles.step_output_unknown),
    LintRule("step-input-missing", _E, ensembles.step_input_missing),
    LintRule("tensor-unproduced", _E, ensembles.tensor_unproduced),
    LintRule("tensor-unused", _E, ensembles.tensor_unused),
    LintRule("tensor-produced-twice", _E, ensembles.tensor_produced_twice),
    LintRule("input-overwritten", _E, ensembles.input_overwritten),
    LintRule("tensor-cycle", _E, cycles.tensor_cycle),
    LintRule("edge-datatype", _E, ensembles.edge_datatype),
    LintRule("edge-dims", _E, ensembles.edge_dims),
    LintRule("ensemble-batch-size", _E, ensembles.ensemble_batch_size),
)


def lint(subject: LintSubject, rules: Sequence[LintRule] = RULES) -> tuple[Diagnosis, ...]:
    """All that these rules find wrong with a version, errors first, in the order of the table.

    What is wrong with a flavour alone names it.
    """
    found = _run(subject, rules)
    for name, each in subject.flavoured.items():
        found += [
            replace(one, field=f"flavour '{name}': {one.field}")
            for one in _run(each, rules)
            if one not in found
        ]
    return tuple(sorted(found, key=lambda each: each.severity is Severity.WARNING))


def _run(subject: LintSubject, rules: Sequence[LintRule]) -> list[Diagnosis]:
    return [
        Diagnosis(rule.name, rule.severity, *finding)
        for rule in rules
        for finding in rule.check(subject)
    ]
