"""Rules about preferred batch sizes, of dynamic batching and of the oldest sequences.

What Triton does with them (`GetDynamicBatch` in its dynamic_batch_scheduler.cc): it counts rows of
waiting calls together, and as soon as their number is a preferred one, or the next call would lead
beyond the largest preferred one, so many are run at once, unless the oldest call has waited for the
whole delay. Without preferred sizes there is one: `max_batch_size`.
"""

from serve.triton.lint.subject import Findings, LintFinding, LintSubject
from serve.triton.lint.tensors import shown


def preferred_beyond_largest(subject: LintSubject) -> Findings:
    """A preferred batch size is greater than `max_batch_size`.

    Triton: `dynamic batching preferred size must be <= max batch size`.
    """
    message = subject.message
    if message.max_batch_size <= 0:
        return
    for field, sizes in _preferred(subject):
        for size in sizes:
            if size > message.max_batch_size:
                yield LintFinding(
                    field,
                    f"{size} is above max_batch_size {message.max_batch_size}, and never reached",
                    f"use sizes up to {message.max_batch_size}",
                )


def preferred_not_positive(subject: LintSubject) -> Findings:
    """A preferred batch size is below 1.

    Triton: `dynamic batching preferred size must be positive`.
    """
    for field, sizes in _preferred(subject):
        if any(size < 1 for size in sizes):
            yield LintFinding(field, f"{shown(sizes)} contains a size below 1", "use sizes from 1")


def preferred_twice(subject: LintSubject) -> Findings:
    """A preferred batch size is listed twice.

    Triton 2.51 loads the model and ignores the duplicate.
    """
    for field, sizes in _preferred(subject):
        for size in sorted(set(sizes)):
            if sizes.count(size) > 1:
                yield LintFinding(
                    field, f"{size} is listed {sizes.count(size)} times", "list each size once"
                )


def preferred_one(subject: LintSubject) -> Findings:
    """The preferred batch sizes include 1.

    If an instance is idle, Triton executes a call with a single row immediately, regardless of the
    delay.
    """
    for field, sizes in _preferred(subject):
        if 1 in sizes and subject.message.max_batch_size > 1:
            yield LintFinding(
                field,
                "1 is a preferred size, so a call of one row never waits for another",
                f"{_others(sizes, subject.message.max_batch_size)}",
            )


def preferred_caps(subject: LintSubject) -> Findings:
    """The largest preferred batch size is below `max_batch_size`.

    Triton 2.51 runs batches of that size, no matter how many calls are queued. If a queue delay is
    set, batches sometimes have one row more. Only calls whose queue delay has expired are executed
    in larger batches.
    """
    largest = subject.message.max_batch_size
    for field, sizes in _preferred(subject):
        if sizes and min(sizes) > 0 and max(sizes) < largest and sizes != [1]:
            yield LintFinding(
                field,
                f"batches rarely exceed {max(sizes)} rows, although max_batch_size is {largest}",
                f"add {largest}, or set max_batch_size: {max(sizes)}",
            )


def _others(sizes: list[int], largest: int) -> str:
    """What to prefer instead of 1."""
    rest = sorted({size for size in sizes if size > 1})
    return f"set preferred_batch_size: {shown(rest or [largest])}"


def _preferred(subject: LintSubject) -> list[tuple[str, list[int]]]:
    message = subject.message
    return [
        (
            "dynamic_batching.preferred_batch_size",
            list(message.dynamic_batching.preferred_batch_size),
        ),
        (
            "sequence_batching.oldest.preferred_batch_size",
            list(message.sequence_batching.oldest.preferred_batch_size),
        ),
    ]
