"""What a serving configuration means, in plain words: sentences, each about one field.

What is not set is told as well, with what Triton does then. Sources: model_config.proto and the
schedulers of Triton's core, seen with 2.51.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tritonclient.grpc import model_config_pb2

from serve.triton.config import Configuration

_KINDS = {
    model_config_pb2.ModelInstanceGroup.KIND_CPU: "CPU",
    model_config_pb2.ModelInstanceGroup.KIND_GPU: "GPU",
    model_config_pb2.ModelInstanceGroup.KIND_AUTO: "each GPU, or on the CPU if there is none",
    model_config_pb2.ModelInstanceGroup.KIND_MODEL: "devices that the model chooses",
}
_DELAYED = model_config_pb2.ModelQueuePolicy.DELAY
_IDLE = 1_000_000  # microseconds: Triton's own, where none is set


@dataclass(frozen=True, slots=True)
class Meaning:
    """One sentence and the field that it is about, as people write it."""

    field: str
    text: str


def meaning(configuration: Configuration) -> tuple[Meaning, ...]:
    """All that a configuration says of how calls are put together, queued and run."""
    message = configuration.message
    if message.HasField("ensemble_scheduling") or message.platform == "ensemble":
        text = "An ensemble executes nothing itself; each of its models has its own configuration."
        return (Meaning("ensemble_scheduling", text),)
    parts = (_batches, _dynamic, _queues, _sequences, _instances, _limiters, _cache, _warmup)
    return tuple(Meaning(*each) for part in parts for each in part(message))


_Told = Iterator[tuple[str, str]]


def _batches(message: Any) -> _Told:
    largest = message.max_batch_size
    if largest <= 0:
        text = "Not set: calls are not batched, and their tensors have no batch dimension."
    elif message.HasField("dynamic_batching") or message.HasField("sequence_batching"):
        text = f"A batch has up to {_count(largest, 'row')}."
    else:
        text = f"A call can have up to {_count(largest, 'row')}; calls are not batched together."
    yield "max_batch_size", text


def _dynamic(message: Any) -> _Told:
    if message.HasField("sequence_batching"):
        return
    if not message.HasField("dynamic_batching"):
        yield "dynamic_batching", "Not set: calls are executed one by one."
        return
    batching = message.dynamic_batching
    if message.max_batch_size <= 1:
        yield "dynamic_batching", "Calls wait in a queue, but two do not fit into one batch."
    else:
        yield "dynamic_batching", "Calls that wait at the same time are batched."
        yield from _waiting(
            "dynamic_batching", batching.max_queue_delay_microseconds, _preferred(message, batching)
        )
    if batching.preserve_ordering:
        text = (
            "Responses are sent in the order of the calls; a finished one waits for earlier ones."
        )
        yield "dynamic_batching.preserve_ordering", text


def _waiting(field: str, delay: int, preferred: list[int]) -> _Told:
    """The delay, and the sizes that end it."""
    ends = " or ".join(map(str, preferred))
    if delay:
        text = (
            f"A call waits for others for at most {_time(delay)}, or until {ends} rows are waiting."
        )
    else:
        text = "Not set: a free instance takes the calls that are waiting."
    yield f"{field}.max_queue_delay_microseconds", text
    capped = f"Batches have {ends} rows if enough are waiting."
    yield f"{field}.preferred_batch_size", capped


def _preferred(message: Any, batching: Any) -> list[int]:
    """As Triton completes it."""
    return sorted(set(batching.preferred_batch_size)) or [message.max_batch_size]


def _queues(message: Any) -> _Told:
    batching = message.dynamic_batching
    if not message.HasField("dynamic_batching"):
        if not message.HasField("sequence_batching"):
            yield "dynamic_batching.default_queue_policy", "Not set: the queue has no limit."
        return
    if batching.priority_levels > 1:
        yield (
            "dynamic_batching.priority_levels",
            f"Priorities are 1 (highest) to {batching.priority_levels}; the default is "
            f"{batching.default_priority_level}.",
        )
    field = "dynamic_batching.default_queue_policy"
    if batching.HasField("default_queue_policy"):
        yield field, _policy(batching.default_queue_policy)
    else:
        yield field, "Not set: any number of calls can wait, for any length of time."
    for level in sorted(batching.priority_queue_policy):
        text = f"Priority {level}: {_policy(batching.priority_queue_policy[level])}"
        yield f"dynamic_batching.priority_queue_policy[{level}]", text


def _policy(policy: Any) -> str:
    if policy.max_queue_size:
        count = _count(policy.max_queue_size, "call")
        size = f"Up to {count} can wait; further calls are rejected with 503."
    else:
        size = "Any number of calls can wait."
    timeout = policy.default_timeout_microseconds
    if not timeout:
        return f"{size} They do not time out."
    does = "moves behind all others" if policy.timeout_action == _DELAYED else "is rejected"
    own = " Clients can shorten this time." if policy.allow_timeout_override else ""
    return f"{size} A call that has waited for {_time(timeout)} {does}.{own}"


def _sequences(message: Any) -> _Told:
    if not message.HasField("sequence_batching"):
        return
    batching = message.sequence_batching
    slots = max(1, message.max_batch_size)
    if batching.HasField("oldest"):
        oldest = batching.oldest
        count = oldest.max_candidate_sequences
        count = count if count > 0 else slots
        text = (
            f"Each instance serves {_count(count, 'sequence')} at a time, and batches their calls, "
            "the oldest first."
        )
        yield "sequence_batching.oldest", text
        delay = oldest.max_queue_delay_microseconds
        yield from _waiting("sequence_batching.oldest", delay, _preferred(message, oldest))
    else:
        held = _count(slots, "sequence")
        text = f"Each instance has slots for {held}; further ones wait for a free slot."
        yield "sequence_batching.direct", text
        yield from _direct(batching.direct)
    idle = batching.max_sequence_idle_microseconds
    text = f"A sequence expires after {_time(idle or _IDLE)} without a call."
    yield (
        "sequence_batching.max_sequence_idle_microseconds",
        text if idle else f"Not set: {_low(text)}",
    )


def _direct(direct: Any) -> _Told:
    share, delay = direct.minimum_slot_utilization, direct.max_queue_delay_microseconds
    if share and delay:
        part = f"{100 * share:g} % of its slots have a call"
        text = f"An instance waits for at most {_time(delay)} until {part}."
        yield "sequence_batching.direct.max_queue_delay_microseconds", text


def _instances(message: Any) -> _Told:
    if not message.instance_group:
        text = "Not set: Triton or the backend decides; usually one per GPU, or one on the CPU."
        yield "instance_group", text
    for index, group in enumerate(message.instance_group):
        count = _count(max(group.count, 1), "batch", "batches")
        numbers = ", ".join(map(str, group.gpus))
        where = f"each of the GPUs {numbers}" if numbers else _KINDS.get(group.kind, "a device")
        on_each = "each GPU" if where == "GPU" else f"the {where}" if where == "CPU" else where
        kept = " These instances are passive and get no calls." if group.passive else ""
        once = "at the same time" if group.count > 1 else "at a time"
        text = f"{count} can be executed {once} on {on_each}.{kept}"
        yield f"instance_group[{index}]", text


def _limiters(message: Any) -> _Told:
    for index, group in enumerate(message.instance_group):
        if group.HasField("rate_limiter"):
            needed = " and ".join(
                f"{one.count} of {one.name}" for one in group.rate_limiter.resources
            )
            text = f"Each of these instances needs {needed or 'nothing'} for an execution"
            text += ", if Triton was started with --rate-limit=execution_count."
            yield f"instance_group[{index}].rate_limiter", text


def _cache(message: Any) -> _Told:
    if message.response_cache.enable:
        text = "Identical calls get a cached response, if Triton was started with --cache-config."
    else:
        text = "Not set: identical calls are executed again."
    yield "response_cache", text


def _warmup(message: Any) -> _Told:
    if not message.model_warmup:
        yield "model_warmup", "Not set: the first calls may be slow."
    for sample in message.model_warmup:
        rows = _count(max(sample.batch_size, 1), "row")
        times = _count(max(sample.count, 1), "time")
        text = f"Triton sends {rows} through the model {times} before it is ready."
        yield f"model_warmup '{sample.name}'", text


def _count(count: int, noun: str, plural: str = "") -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {plural or noun + 's'}"


def _time(microseconds: int) -> str:
    """`500 µs`, `2.5 ms`, `60 s`."""
    if microseconds < 1000:
        return f"{microseconds} µs"
    if microseconds < 1_000_000:
        return f"{microseconds / 1000:g} ms"
    return f"{microseconds / 1_000_000:g} s"


def _low(text: str) -> str:
    return text[0].lower() + text[1:]
