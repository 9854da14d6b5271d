"""Rules about batches: how large they get, how long calls wait for each other, who comes first."""

from serve.tensors.signature import DYNAMIC
from serve.triton.lint.subject import Finding, Findings, Subject
from serve.triton.lint.tensors import shown

LONGEST_DELAY = 1_000_000  # microseconds


def batch_size_negative(subject: Subject) -> Findings:
    """`max_batch_size` below 0.

    Triton: `'max_batch_size' must be non-negative value`.
    """
    if subject.message.max_batch_size < 0:
        yield Finding("max_batch_size", f"it is {subject.message.max_batch_size}", "0 or more")


def batch_dimension_fixed(subject: Subject) -> Findings:
    """`max_batch_size` above 0 for a model file whose first dimension is fixed, or that has none.

    The onnxruntime backend refuses the load; a TensorRT plan without a dynamic batch does as well.
    """
    largest = subject.message.max_batch_size
    if largest <= 0:
        return
    for role, specs in (("input", subject.inputs), ("output", subject.outputs)):
        for spec in specs.values():
            if spec.shape is not None and spec.shape[:1] != (DYNAMIC,):
                yield Finding(
                    "max_batch_size",
                    f"it is {largest}, but {role} '{spec.name}' is {shown(spec.shape)} in the "
                    "model file: the first dimension is not free",
                    "max_batch_size: 0, or export the model with a free first dimension",
                )
                return


def batching_without_batches(subject: Subject) -> Findings:
    """`dynamic_batching` although `max_batch_size` is 0.

    Triton 2.51 loads it and never batches anything.
    """
    message = subject.message
    if message.HasField("dynamic_batching") and message.max_batch_size == 0:
        yield Finding(
            "dynamic_batching",
            "max_batch_size is 0, so no request is ever put together with another",
            "max_batch_size: 8, or no dynamic_batching",
        )


def delay_absurd(subject: Subject) -> Findings:
    """Requests wait for others for more than a second.

    Triton does as it is told: every lone request takes that much longer.
    """
    message = subject.message
    for field, delay in (
        ("dynamic_batching", message.dynamic_batching.max_queue_delay_microseconds),
        ("sequence_batching.oldest", message.sequence_batching.oldest.max_queue_delay_microseconds),
        ("sequence_batching.direct", message.sequence_batching.direct.max_queue_delay_microseconds),
    ):
        if delay > LONGEST_DELAY:
            yield Finding(
                f"{field}.max_queue_delay_microseconds",
                f"{delay} is {delay / 1_000_000:g} s for a request that comes alone",
                "a delay that callers do not notice, such as 100",
            )


def delay_without_effect(subject: Subject) -> Findings:
    """A queue delay where nothing can be waited for.

    With `max_batch_size` 1 every request is a whole batch. The direct strategy of sequences waits
    only for `minimum_slot_utilization`.
    """
    message = subject.message
    if message.max_batch_size == 1 and message.dynamic_batching.max_queue_delay_microseconds:
        yield Finding(
            "dynamic_batching.max_queue_delay_microseconds",
            "max_batch_size is 1: every request is a whole batch",
            "a larger max_batch_size, or no delay",
        )
    direct = message.sequence_batching.direct
    if direct.max_queue_delay_microseconds and not direct.minimum_slot_utilization:
        yield Finding(
            "sequence_batching.direct.max_queue_delay_microseconds",
            "without minimum_slot_utilization nothing waits",
            "minimum_slot_utilization: 0.5, or no delay",
        )


def priority_default_outside(subject: Subject) -> Findings:
    """`default_priority_level` is not one of the priority levels.

    Triton: `default priority level must be in range [1, 2]`; 0 is outside, too.
    """
    batching = subject.message.dynamic_batching
    levels, default = batching.priority_levels, batching.default_priority_level
    if levels and not 1 <= default <= levels:
        yield Finding(
            "dynamic_batching.default_priority_level",
            f"{default} is none of the levels 1 to {levels}",
            f"default_priority_level: {levels}",
        )


def priority_policy_outside(subject: Subject) -> Findings:
    """A queue policy for a level that does not exist.

    Triton: `priority queue policy must have priority level in range [1, 2]`.
    """
    batching = subject.message.dynamic_batching
    for level in sorted(batching.priority_queue_policy) if batching.priority_levels else ():
        if not 1 <= level <= batching.priority_levels:
            yield Finding(
                "dynamic_batching.priority_queue_policy",
                f"there is no level {level}, only 1 to {batching.priority_levels}",
                "a key among the levels",
            )


def priority_without_levels(subject: Subject) -> Findings:
    """Priorities are used, and `priority_levels` is 0.

    Triton 2.51 loads it and ignores them.
    """
    batching = subject.message.dynamic_batching
    if batching.priority_levels == 0 and (
        batching.default_priority_level or batching.priority_queue_policy
    ):
        yield Finding(
            "dynamic_batching.priority_levels",
            "it is 0, so all requests have the same priority",
            "priority_levels: 2, or no priorities",
        )


def unsupported_here(subject: Subject) -> Findings:
    """What NVIDIA's onnxruntime backend can do, and the one that Servegate starts cannot.

    The Python backend of local Tritons refuses the load.
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
            yield Finding(
                field,
                "the onnxruntime backend of a Triton that Servegate starts does not support it",
                "leave it out, or serve it with NVIDIA's Triton image",
            )
