"""Rules about the queue of dynamic batching: its order, its limits, how long calls stay in it."""

from collections.abc import Iterator
from typing import Any

from tritonclient.grpc import model_config_pb2

from serve.triton.lint.subject import Finding, Findings, Subject

LONGEST_TIMEOUT = 600_000_000  # microseconds
_DELAY = model_config_pb2.ModelQueuePolicy.DELAY


def ordering_with_priorities(subject: Subject) -> Findings:
    """`preserve_ordering` together with several priorities.

    Triton: `Only one priority level is allowed when 'preserve_ordering' is true`.
    """
    batching = subject.message.dynamic_batching
    if batching.preserve_ordering and batching.priority_levels > 1:
        yield Finding(
            "dynamic_batching.preserve_ordering",
            f"calls of {batching.priority_levels} priorities overtake each other",
            "preserve_ordering: false, or no priorities",
        )


def ordering_with_delayed(subject: Subject) -> Findings:
    """`preserve_ordering` together with calls that are put off after a time.

    Triton: `Queue policy can not have DELAY as timeout action when 'preserve_ordering' is true`.
    """
    for field, policy in policies(subject):
        if (
            subject.message.dynamic_batching.preserve_ordering
            and policy.timeout_action == _DELAY
            and policy.default_timeout_microseconds
        ):
            yield Finding(
                f"{field}.timeout_action",
                "a call that is put off is answered after later ones",
                "timeout_action: REJECT, or preserve_ordering: false",
            )


def ordering_holds_answers(subject: Subject) -> Findings:
    """`preserve_ordering` where several instances work at a time.

    Triton keeps an answer that is ready until all earlier calls are answered.
    """
    message = subject.message
    instances = sum(max(group.count, 1) for group in message.instance_group if not group.passive)
    if message.dynamic_batching.preserve_ordering and instances > 1:
        yield Finding(
            "dynamic_batching.preserve_ordering",
            f"answers of {instances} instances wait for the slowest of the earlier ones",
            "preserve_ordering: false; over HTTP nobody sees an order",
        )


def timeout_never(subject: Subject) -> Findings:
    """An action for calls that time out, and no timeout.

    Triton 2.51 loads it; no call ever times out in the queue.
    """
    for field, policy in policies(subject):
        if policy.timeout_action == _DELAY and not policy.default_timeout_microseconds:
            yield Finding(
                f"{field}.timeout_action",
                "DELAY is for calls that time out, and without a timeout none does",
                "default_timeout_microseconds: 50000, or no timeout_action",
            )


def timeout_override_without_effect(subject: Subject) -> Findings:
    """Callers may name a timeout of their own, and there is none to shorten.

    Triton takes the shorter of both, and 0 is the shorter one: the parameter `timeout` of a call is
    not looked at.
    """
    for field, policy in policies(subject):
        if policy.allow_timeout_override and not policy.default_timeout_microseconds:
            yield Finding(
                f"{field}.allow_timeout_override",
                "a caller can only shorten the timeout, and there is none",
                "default_timeout_microseconds: 1000000, or no allow_timeout_override",
            )


def timeout_before_delay(subject: Subject) -> Findings:
    """Calls are refused before they have waited for company.

    Triton answers a call that comes alone with `Request timeout expired`, status 503.
    """
    delay = subject.message.dynamic_batching.max_queue_delay_microseconds
    for field, policy in policies(subject):
        timeout = policy.default_timeout_microseconds
        if policy.timeout_action != _DELAY and 0 < timeout <= delay:
            yield Finding(
                f"{field}.default_timeout_microseconds",
                f"a call that comes alone is refused after {timeout} µs, and would wait {delay} µs",
                f"a timeout well above max_queue_delay_microseconds: {delay}",
            )


def timeout_absurd(subject: Subject) -> Findings:
    """Calls stay in the queue for more than ten minutes before they time out.

    Triton does as it is told; callers have gone by then. The unit is the microsecond.
    """
    for field, policy in policies(subject):
        timeout = policy.default_timeout_microseconds
        if timeout > LONGEST_TIMEOUT:
            yield Finding(
                f"{field}.default_timeout_microseconds",
                f"{timeout} is {timeout / 1_000_000:g} s",
                "a time that callers wait, such as 1000000",
            )


def queue_below_batch(subject: Subject) -> Findings:
    """A queue that is shorter than a batch.

    Triton refuses further calls with `Exceeds maximum queue size`, status 503. In 2.51, calls of
    one row are put together to as many as may wait, and no more.
    """
    largest = subject.message.max_batch_size
    for field, policy in policies(subject):
        if 0 < policy.max_queue_size < largest:
            yield Finding(
                f"{field}.max_queue_size",
                f"while {policy.max_queue_size} may wait, calls of one row hardly fill a batch of "
                f"{largest}",
                f"max_queue_size: {4 * largest}, or 0 for no limit",
            )


def priority_single(subject: Subject) -> Findings:
    """One priority level.

    Triton 2.51 loads it: all calls have the same priority, whatever they ask for.
    """
    if subject.message.dynamic_batching.priority_levels == 1:
        yield Finding(
            "dynamic_batching.priority_levels",
            "with one level all calls have the same priority",
            "priority_levels: 2, or no priorities",
        )


def policies(subject: Subject) -> Iterator[tuple[str, Any]]:
    """Each queue policy, and where it stands."""
    batching = subject.message.dynamic_batching
    if batching.HasField("default_queue_policy"):
        yield "dynamic_batching.default_queue_policy", batching.default_queue_policy
    for level in sorted(batching.priority_queue_policy):
        field = f"dynamic_batching.priority_queue_policy[{level}]"
        yield field, batching.priority_queue_policy[level]
