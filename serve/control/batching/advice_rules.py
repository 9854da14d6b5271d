"""The rules of advice: what a version's last minutes say about how it is batched.

Every rule is a function of a `Situation`. It finds at most one thing: the field, why it should be
otherwise, with the numbers, and a command that changes it. Two rules never speak of one cause.
"""

import math
from collections.abc import Iterator

from serve.control.batching.situation import Situation
from serve.control.batching.texts import count, per_cent, rows, seconds
from serve.triton.lint.subject import LintFinding

_WAITS = 0.25  # seconds queued for each second computed: from then on calls queue
_ALONE = 1.1  # calls per execution: up to then nobody shares
_SMALL = 0.25  # of max_batch_size: up to then batches are small
_SELDOM = 0.01  # of executions, or of calls: up to then it does not matter
_IDLE, _HALF, _FULL = 0.1, 0.5, 0.9  # shares of time in which instances compute
_ROOM = 0.7  # utilisation of a machine below which there is room on it
_DELAY = "dynamic_batching.max_queue_delay_microseconds"

Findings = Iterator[LintFinding]


def batching_off(one: Situation) -> Findings:
    """Calls queue, have few rows, and are executed one by one."""
    setup, window = one.setup, one.window
    small = window.rows_per_call <= setup.max_batch_size / 2
    if (
        not setup.batches
        and setup.max_batch_size > 1
        and not one.batched.sequences
        and small
        and one.queues >= _WAITS
    ):
        yield LintFinding(
            "dynamic_batching",
            f"it is off, but calls of {rows(window.rows_per_call)} wait "
            f"{seconds(window.queue)} for an execution of {seconds(window.compute)}, and up to "
            f"{setup.max_batch_size} rows could be executed together",
            f"servegate batching set {one.asked} --on",
        )


def delay_beyond_objective(one: Situation) -> Findings:
    """With this delay, a call that arrives at the wrong moment misses the objective."""
    worst = one.worst(one.window.rows_per_execution)
    if not one.setup.batches or one.objective is None or worst is None:
        return
    left = one.objective.limit - worst
    if 0 <= left < one.setup.delay:
        yield LintFinding(
            _DELAY,
            f"calls can wait {seconds(one.setup.delay)} for others, but two executions of "
            f"{rows(one.window.rows_per_execution)} leave only {seconds(left)} of the objective "
            f"{one.objective}",
            f"servegate batching set {one.asked} --delay {math.floor(left / 2 * 1e6)}us",
        )


def delay_without_company(one: Situation) -> Findings:
    """There is a delay, but a second call hardly ever arrives."""
    if _is_delayed(one) and one.window.calls_per_execution < _ALONE and not _brings_much(one):
        yield LintFinding(
            _DELAY,
            f"calls wait {seconds(one.window.queue)} of at most {seconds(one.setup.delay)} for "
            f"others, but an execution has only {one.window.calls_per_execution:.2f} calls",
            f"servegate batching set {one.asked} --delay 0us",
        )


def delay_in_vain(one: Situation) -> Findings:
    """Calls wait for the whole delay, although the instances do not need larger batches."""
    window = one.window
    if (
        _is_delayed(one)
        and window.calls_per_execution >= _ALONE
        and window.rows_per_execution <= _SMALL * one.setup.max_batch_size
        and one.busy < _HALF
    ):
        yield LintFinding(
            _DELAY,
            f"calls wait {seconds(window.queue)} of at most {seconds(one.setup.delay)}, but "
            f"batches have {rows(window.rows_per_execution)} of {one.setup.max_batch_size}, and "
            f"instances are busy only {per_cent(one.busy)} of the time",
            f"servegate batching set {one.asked} --delay 0us",
        )


def _is_delayed(one: Situation) -> bool:
    """Whether the delay, not a queue, is what calls wait for."""
    setup = one.setup
    is_whole = 0.7 * setup.delay <= one.window.queue <= 1.5 * setup.delay
    return setup.batches and setup.delay > 0 and is_whole and one.busy < _FULL


def preferred_unreached(one: Situation) -> Findings:
    """Executions hardly ever have a preferred size."""
    setup, sizes = one.setup, one.window.counted.sizes
    every = sum(each.count for each in sizes.values())
    if not setup.batches or not setup.preferred or not every:
        return
    reached = sum(sizes[size].count for size in setup.preferred if size in sizes)
    if reached / every < _SELDOM:
        named = " or ".join(map(str, setup.preferred))
        yield LintFinding(
            "dynamic_batching.preferred_batch_size",
            f"{count(reached)} of {count(every)} executions had the size {named}; the largest "
            f"had {rows(one.window.largest)}",
            f"servegate batching set {one.asked} --preferred none",
        )


def instances_starved(one: Situation) -> Findings:
    """Calls wait longer than they execute, and the machine has capacity for another instance."""
    gpu, cpu = one.window.gpu, one.window.cpu
    name, used = ("GPU", gpu) if gpu is not None else ("CPU", cpu)
    is_batched = one.setup.batches or one.setup.max_batch_size <= 1
    if used is None or used >= _ROOM or not is_batched:
        return
    if one.queues > 1 and one.busy >= _FULL:
        yield LintFinding(
            "instance_group.count",
            f"calls wait {seconds(one.window.queue)} for an execution of "
            f"{seconds(one.window.compute)}, {_instances(one)} busy {per_cent(one.busy)} of the "
            f"time, and the {name} utilisation is {per_cent(used)}",
            f"servegate batching set {one.asked} --instances {one.setup.instances + 1}",
        )


def instances_idle(one: Situation) -> Findings:
    """Several instances are mostly idle, and each has its own copy of the model."""
    if one.setup.instances > 1 and one.window.computing and one.busy < _IDLE:
        yield LintFinding(
            "instance_group.count",
            f"{_instances(one)} busy only {per_cent(one.busy)} of the time, and each has a copy of "
            "the model in memory",
            f"servegate batching set {one.asked} --instances 1",
        )


def largest_below_objective(one: Situation) -> Findings:
    """Batches are full, and the objective allows larger ones."""
    largest, allowed = one.setup.max_batch_size, one.allowed
    full = one.window.share_from(largest)
    if not one.setup.batches or allowed is None or allowed < 2 * largest:
        return
    if full >= _SMALL and not _brings_much(one):
        yield LintFinding(
            "max_batch_size",
            f"{per_cent(full)} of the executions are full with {rows(largest)}, and the objective "
            f"{one.objective} allows {allowed}; two executions of that size take "
            f"{seconds(one.worst(allowed) or 0)}",
            f"servegate batching set {one.asked} --max-batch-size {_power(allowed)}",
        )


def largest_beyond_objective(one: Situation) -> Findings:
    """Batches are larger than the objective allows."""
    allowed, worst = one.allowed, one.worst(one.window.largest)
    if not one.setup.batches or not allowed or worst is None or one.objective is None:
        return
    beyond = one.window.share_from(allowed + 1)
    if beyond > _SELDOM and one.setup.max_batch_size > allowed:
        yield LintFinding(
            "max_batch_size",
            f"it is {one.setup.max_batch_size}, but the objective {one.objective} allows "
            f"{allowed}; {per_cent(beyond)} of the executions are larger, and two of "
            f"{rows(one.window.largest)} take {seconds(worst)}",
            f"servegate batching set {one.asked} --max-batch-size {allowed}",
        )


def largest_unreached(one: Situation) -> Findings:
    """The largest batch is far below `max_batch_size`, even under load."""
    largest, seen = one.setup.max_batch_size, one.window.largest
    if one.setup.batches and 0 < seen <= _SMALL * largest and one.busy >= _HALF:
        yield LintFinding(
            "max_batch_size",
            f"it is {largest}, but the largest execution had {rows(seen)}, although instances are "
            f"busy {per_cent(one.busy)} of the time; larger batches only reserve memory",
            f"servegate batching set {one.asked} --max-batch-size {_power(2 * seen)}",
        )


def clients_batch(one: Situation) -> Findings:
    """Calls have so many rows that two do not fit into one execution."""
    if one.setup.batches and one.setup.max_batch_size > 1 and _brings_much(one):
        to = (
            "--delay 0us" if one.setup.delay else f"--max-batch-size {4 * one.setup.max_batch_size}"
        )
        yield LintFinding(
            "dynamic_batching",
            f"calls have {rows(one.window.rows_per_call)} each, and an execution has at most "
            f"{one.setup.max_batch_size}, so two calls do not fit into one execution",
            f"servegate batching set {one.asked} {to}",
        )


def _brings_much(one: Situation) -> bool:
    return one.window.rows_per_call > one.setup.max_batch_size / 2


def cache_useless(one: Situation) -> Findings:
    """The response cache hardly ever has the response."""
    hits, misses = one.window.counted.hits, one.window.counted.misses
    asked = hits + misses
    if one.batched.caches and asked and hits / asked < _SELDOM:
        yield LintFinding(
            "response_cache",
            f"it had the response for {count(hits)} of {count(asked)} calls, but hashes every call "
            "and stores every response",
            f"servegate batching set {one.asked} --no-cache",
        )


def queue_rejects(one: Situation) -> Findings:
    """A full queue rejects calls."""
    refused, came, limit = one.took.refused, one.took.calls, one.batched.queue_limit
    if limit and came and refused / came > _SELDOM:
        yield LintFinding(
            "dynamic_batching.default_queue_policy.max_queue_size",
            f"{limit} calls can wait, and {count(refused)} of {count(came)} calls were rejected",
            f"servegate batching set {one.asked} --queue size={2 * limit}",
        )


def _instances(one: Situation) -> str:
    many = one.setup.instances
    return "one instance is" if many == 1 else f"{many} instances are"


def _power(size: int) -> int:
    """The largest power of two that is not above it."""
    return 1 << (size.bit_length() - 1)
