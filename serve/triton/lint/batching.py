"""Rules about batches: how large they get, how long calls wait for each other, who comes first."""

from serve.tensors.signature import DYNAMIC
from serve.triton.lint.subject import Findings, LintFinding, LintSubject
from serve.triton.lint.tensors import shown

LONGEST_DELAY = 1_000_000  # microseconds


def batch_size_negative(subject: LintSubject) -> Findings:
    """`max_batch_size` is below 0.

    Triton: `'max_batch_size' must be non-negative value`.
    """
    if subject.message.max_batch_size < 0:
        yield LintFinding(
            "max_batch_size", f"it is {subject.message.max_batch_size}", "set it to 0 or more"
        )


def batch_dimension_fixed(subject: LintSubject) -> Findings:
    """`max_batch_size` is greater than 0, but a tensor's first dimension is fixed or missing.

    The onnxruntime and tensorrt backends refuse to load the model.
    """
    largest = subject.message.max_batch_size
    if largest <= 0:
        return
    for role, specs in (("input", subject.inputs), ("output", subject.outputs)):
        for spec in specs.values():
            if spec.shape is not None and spec.shape[:1] != (DYNAMIC,):
                yield LintFinding(
                    "max_batch_size",
                    f"it is {largest}, but {role} '{spec.name}' is {shown(spec.shape)} in the "
                    "model file, without a free first dimension",
                    "set max_batch_size: 0, or export the model with a free first dimension",
                )
                return


def batching_without_batches(subject: LintSubject) -> Findings:
    """`dynamic_batching` is set, but `max_batch_size` is 0.

    Triton 2.51 loads the model and never batches requests.
    """
    message = subject.message
    if message.HasField("dynamic_batching") and message.max_batch_size == 0:
        yield LintFinding(
            "dynamic_batching",
            "max_batch_size is 0, so requests are never batched",
            "set max_batch_size: 8, or remove dynamic_batching",
        )


def delay_absurd(subject: LintSubject) -> Findings:
    """The queue delay is longer than one second.

    A call that arrives on its own waits for the whole delay.
    """
    message = subject.message
    for field, delay in (
        ("dynamic_batching", message.dynamic_batching.max_queue_delay_microseconds),
        ("sequence_batching.oldest", message.sequence_batching.oldest.max_queue_delay_microseconds),
        ("sequence_batching.direct", message.sequence_batching.direct.max_queue_delay_microseconds),
    ):
        if delay > LONGEST_DELAY:
            yield LintFinding(
                f"{field}.max_queue_delay_microseconds",
                f"a request that arrives alone waits {delay / 1_000_000:g} s",
                "use a shorter delay, such as 100",
            )


def delay_without_effect(subject: LintSubject) -> Findings:
    """A queue delay has no effect.

    With `max_batch_size` 1, every request is a full batch. The sequence batcher's direct strategy
    waits only if `minimum_slot_utilization` is set.
    """
    message = subject.message
    if message.max_batch_size == 1 and message.dynamic_batching.max_queue_delay_microseconds:
        yield LintFinding(
            "dynamic_batching.max_queue_delay_microseconds",
            "max_batch_size is 1, so every request is a full batch",
            "use a larger max_batch_size, or remove the delay",
        )
    direct = message.sequence_batching.direct
    if direct.max_queue_delay_microseconds and not direct.minimum_slot_utilization:
        yield LintFinding(
            "sequence_batching.direct.max_queue_delay_microseconds",
            "without minimum_slot_utilization, requests do not wait",
            "set minimum_slot_utilization: 0.5, or remove the delay",
        )


def priority_default_outside(subject: LintSubject) -> Findings:
    """`default_priority_level` is not one of the priority levels.

    Triton: `default priority level must be in range [1, 2]`. 0 is out of range, too.
    """
    batching = subject.message.dynamic_batching
    levels, default = batching.priority_levels, batching.default_priority_level
    if levels and not 1 <= default <= levels:
        yield LintFinding(
            "dynamic_batching.default_priority_level",
            f"{default} is not one of the levels 1 to {levels}",
            f"set default_priority_level: {levels}",
        )


def priority_policy_outside(subject: LintSubject) -> Findings:
    """A queue policy is set for a level that does not exist.

    Triton: `priority queue policy must have priority level in range [1, 2]`.
    """
    batching = subject.message.dynamic_batching
    for level in sorted(batching.priority_queue_policy) if batching.priority_levels else ():
        if not 1 <= level <= batching.priority_levels:
            yield LintFinding(
                "dynamic_batching.priority_queue_policy",
                f"there is no level {level}, only 1 to {batching.priority_levels}",
                f"use a level from 1 to {batching.priority_levels}",
            )


def priority_without_levels(subject: LintSubject) -> Findings:
    """Priorities are used, but `priority_levels` is 0.

    Triton 2.51 loads the model and ignores the priorities.
    """
    batching = subject.message.dynamic_batching
    if batching.priority_levels == 0 and (
        batching.default_priority_level or batching.priority_queue_policy
    ):
        yield LintFinding(
            "dynamic_batching.priority_levels",
            "it is 0, so all requests have the same priority",
            "set priority_levels: 2, or remove the priorities",
        )


def unsupported_here(subject: LintSubject) -> Findings:
    """Servegate's onnxruntime backend does not support a field that NVIDIA's backend supports.

    Local Tritons refuse to load the model.
    """
    message = subject.message
    used = {
        "batch_input": bool(message.batch_input),
        "batch_output": bool(message.batch_output),
        "allow_ragged_batch": any(entry.allow_ragged_batch for entry in message.input),
        "sequence_batching.state": bool(message.sequence_batching.state),
        "model_transaction_policy.decoupled": message.model_transaction_policy.decoupled,
    }
    for field, is_used in used.items():
        if is_used and subject.backend == "onnxruntime":
            yield LintFinding(
                field,
                "the onnxruntime backend of local Tritons does not support it",
                "remove it, or serve the model with NVIDIA's Triton image",
            )
