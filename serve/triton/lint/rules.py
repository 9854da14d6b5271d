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
    preferred_sizes,
    preprocessing,
    queues,
    refusals,
    resources,
    sequences,
    tensors,
    warmup,
)
from serve.triton.lint.subject import Diagnosis, Findings, Severity, Subject


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: its stable name, how bad it is, and the function that looks for it."""

    name: str
    severity: Severity
    check: Callable[[Subject], Findings]

    @property
    def meaning(self) -> str:
        """What the rule is about, in one sentence."""
        return (self.check.__doc__ or "").strip().partition("\n")[0]


_E, _W = Severity.ERROR, Severity.WARNING
BATCHING: tuple[Rule, ...] = (  # how a version is run; what `servegate batching` may change
    # batches
    Rule("batch-size-negative", _E, batching.batch_size_negative),
    Rule("batch-dimension-fixed", _E, batching.batch_dimension_fixed),
    Rule("batching-without-batches", _W, batching.batching_without_batches),
    Rule("preferred-beyond-largest", _E, preferred_sizes.preferred_beyond_largest),
    Rule("preferred-not-positive", _E, preferred_sizes.preferred_not_positive),
    Rule("preferred-twice", _W, preferred_sizes.preferred_twice),
    Rule("preferred-one", _W, preferred_sizes.preferred_one),
    Rule("preferred-caps", _W, preferred_sizes.preferred_caps),
    Rule("delay-absurd", _W, batching.delay_absurd),
    Rule("delay-without-effect", _W, batching.delay_without_effect),
    # queues
    Rule("ordering-with-priorities", _E, queues.ordering_with_priorities),
    Rule("ordering-with-delayed", _E, queues.ordering_with_delayed),
    Rule("ordering-holds-answers", _W, queues.ordering_holds_answers),
    Rule("timeout-never", _W, queues.timeout_never),
    Rule("timeout-override-without-effect", _W, queues.timeout_override_without_effect),
    Rule("timeout-before-delay", _W, queues.timeout_before_delay),
    Rule("timeout-absurd", _W, queues.timeout_absurd),
    Rule("queue-below-batch", _W, queues.queue_below_batch),
    Rule("priority-default-outside", _E, batching.priority_default_outside),
    Rule("priority-policy-outside", _E, batching.priority_policy_outside),
    Rule("priority-without-levels", _W, batching.priority_without_levels),
    Rule("priority-single", _W, queues.priority_single),
    # sequences
    Rule("control-unknown", _E, sequences.control_unknown),
    Rule("slot-utilization", _E, sequences.slot_utilization),
    Rule("candidates-negative", _W, sequences.candidates_negative),
    Rule("candidates-few", _W, sequences.candidates_few),
    Rule("idle-absurd", _W, sequences.idle_absurd),
    # instances
    Rule("instance-count", _E, instances.instance_count),
    Rule("instances-many", _W, instances.instances_many),
    Rule("instances-passive", _E, instances.instances_passive),
    Rule("profile-without-plan", _E, instances.profile_without_plan),
    Rule("gpu-missing", _W, instances.gpu_missing),
    Rule("gpus-without-gpu-kind", _E, instances.gpus_without_gpu_kind),
    Rule("gpu-number", _E, instances.gpu_number),
    Rule("gpu-required", _E, instances.gpu_required),
    # rate limiter and response cache
    Rule("resource-twice", _W, resources.resource_twice),
    Rule("resource-both", _E, resources.resource_both),
    Rule("resource-empty", _W, resources.resource_empty),
    Rule("rate-limiter-off", _W, resources.rate_limiter_off),
    Rule("cache-unsupported", _E, resources.cache_unsupported),
    Rule("cache-off", _W, resources.cache_off),
    # warm-up
    Rule("warmup-input-unknown", _E, warmup.warmup_input_unknown),
    Rule("warmup-input-missing", _E, warmup.warmup_input_missing),
    Rule("warmup-differs", _E, warmup.warmup_differs),
    Rule("warmup-batch-size", _E, warmup.warmup_batch_size),
    Rule("warmup-file-missing", _E, warmup.warmup_file_missing),
    Rule("warmup-data-missing", _E, warmup.warmup_data_missing),
    Rule("warmup-random-text", _W, warmup.warmup_random_text),
    Rule("warmup-count", _W, warmup.warmup_count),
)
RULES: tuple[Rule, ...] = (
    # inputs and outputs
    Rule("tensor-unnamed", _E, tensors.tensor_unnamed),
    Rule("tensor-twice", _E, tensors.tensor_twice),
    Rule("datatype-missing", _E, tensors.datatype_missing),
    Rule("datatype-unsupported", _E, model_file.datatype_unsupported),
    Rule("datatype-differs", _E, model_file.datatype_differs),
    Rule("dims-invalid", _E, tensors.dims_invalid),
    Rule("dims-hold-batch", _E, model_file.dims_hold_batch),
    Rule("dims-count", _E, model_file.dims_count),
    Rule("dims-differ", _E, model_file.dims_differ),
    Rule("reshape-size", _E, tensors.reshape_size),
    Rule("reshape-empty", _E, tensors.reshape_empty),
    Rule("format-rank", _E, tensors.format_rank),
    Rule("input-missing", _E, model_file.input_missing),
    Rule("input-unknown", _E, model_file.input_unknown),
    Rule("output-unknown", _E, model_file.output_unknown),
    Rule("optional-without-default", _E, model_file.optional_without_default),
    Rule("default-not-optional", _E, model_file.default_not_optional),
    Rule("optional-batched", _W, model_file.optional_batched),
    *BATCHING,
    # names, files and backends
    Rule("name-invalid", _E, files.name_invalid),
    Rule("name-differs", _W, files.name_differs),
    Rule("version-policy-ignored", _W, files.version_policy_ignored),
    Rule("label-file-missing", _E, files.label_file_missing),
    Rule("label-file-misplaced", _E, files.label_file_misplaced),
    Rule("platform-unknown", _E, files.platform_unknown),
    Rule("backend-unknown", _W, files.backend_unknown),
    Rule("backend-missing", _E, files.backend_missing),
    Rule("platform-against-backend", _E, files.platform_against_backend),
    Rule("platform-against-file", _E, files.platform_against_file),
    Rule("tensorflow-ended", _E, files.tensorflow_ended),
    Rule("version-empty", _E, files.version_empty),
    Rule("model-file-missing", _E, files.model_file_missing),
    Rule("default-file-missing", _E, files.default_file_missing),
    Rule("external-data-missing", _E, files.external_data_missing),
    Rule("external-data-outside", _E, files.external_data_outside),
    Rule("opset-new", _W, files.opset_new),
    Rule("graph-invalid", _W, files.graph_invalid),
    # how it is run
    Rule("unsupported-here", _W, batching.unsupported_here),
    Rule("accelerator-unknown", _E, execution.accelerator_unknown),
    Rule("accelerator-parameter", _E, execution.accelerator_parameter),
    Rule("precision-mode-removed", _W, execution.precision_mode_removed),
    Rule("parameter-value", _E, execution.parameter_value),
    Rule("parameter-path", _W, execution.parameter_path),
    Rule("graph-level", _E, execution.graph_level),
    Rule("field-new", _W, execution.field_new),
    Rule("field-refused", _E, refusals.field_refused),
    # flavours
    Rule("flavours-malformed", _E, flavours.flavours_malformed),
    Rule("flavour-override", _E, flavours.flavour_override),
    Rule("flavour-needs", _E, flavours.flavour_needs),
    # documents
    Rule("preprocessing-malformed", _W, preprocessing.preprocessing_malformed),
    Rule("preprocessing-unfit", _W, preprocessing.preprocessing_unfit),
    Rule("conversion-unverified", _W, files.conversion_unverified),
    # ensembles
    Rule("ensemble-platform", _E, ensembles.ensemble_platform),
    Rule("ensemble-only", _E, ensembles.ensemble_only),
    Rule("step-unknown", _E, ensembles.step_unknown),
    Rule("step-itself", _E, ensembles.step_itself),
    Rule("step-input-unknown", _E, ensembles.step_input_unknown),
    Rule("step-output-unknown", _E, ensembles.step_output_unknown),
    Rule("step-input-missing", _E, ensembles.step_input_missing),
    Rule("tensor-unproduced", _E, ensembles.tensor_unproduced),
    Rule("tensor-unused", _E, ensembles.tensor_unused),
    Rule("tensor-produced-twice", _E, ensembles.tensor_produced_twice),
    Rule("input-overwritten", _E, ensembles.input_overwritten),
    Rule("tensor-cycle", _E, cycles.tensor_cycle),
    Rule("edge-datatype", _E, ensembles.edge_datatype),
    Rule("edge-dims", _E, ensembles.edge_dims),
    Rule("ensemble-batch-size", _E, ensembles.ensemble_batch_size),
)


def lint(subject: Subject, rules: Sequence[Rule] = RULES) -> tuple[Diagnosis, ...]:
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


def _run(subject: Subject, rules: Sequence[Rule]) -> list[Diagnosis]:
    return [
        Diagnosis(rule.name, rule.severity, *finding)
        for rule in rules
        for finding in rule.check(subject)
    ]
