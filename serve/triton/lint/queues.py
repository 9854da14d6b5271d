"""Rules about the queue of dynamic batching: its order, its limits, how long calls stay in it."""

from collections.abc import Iterator
from typing import Any

from tritonclient.grpc import model_config_pb2

from serve.triton.lint.subject import Findings, LintFinding, LintSubject

LONGEST_TIMEOUT = 600_000_000  # microseconds
_DELAY = model_config_pb2.ModelQueuePolicy.DELAY


def ordering_with_priorities(subject: LintSubject) -> Findings:
    """`preserve_ordering` is used together with several priority levels.

    Triton: `Only one priority level is allowed when 'preserve_ordering' is true`.
    """
    batching = subject.message.dynamic_batching
    if batching.preserve_ordering and batching.priority_levels > 1:
        yield LintFinding(
            "dynamic_batching.preserve_ordering",
            f"calls of {batching.priority_levels} priority levels overtake each other",
            "set preserve_ordering: false, or remove the priorities",
        )


def ordering_with_delayed(subject: LintSubject) -> Findings:
    """`preserve_ordering` is used together with the timeout action DELAY.

    Triton: `Queue policy can not have DELAY as timeout action when 'preserve_ordering' is true`.
    """
    for field, policy in policies(subject):
        if (
            subject.message.dynamic_batching.preserve_ordering
            and policy.timeout_action == _DELAY
            and policy.default_timeout_microseconds
        ):
            yield LintFinding(
                f"{field}.timeout_action",
                "a delayed call gets its response after later ones",
                "set timeout_action: REJECT, or preserve_ordering: false",
            )


def ordering_holds_answers(subject: LintSubject) -> Findings:
    """`preserve_ordering` is used with several instances.

    Triton holds back each response until all earlier calls have been answered.
    """
    message = subject.message
    instances = sum(max(group.count, 1) for group in message.instance_group if not group.passive)
    if message.dynamic_batching.preserve_ordering and instances > 1:
        yield LintFinding(
            "dynamic_batching.preserve_ordering",
            f"responses of {instances} instances wait for slower earlier calls",
            "set preserve_ordering: false; HTTP clients do not see the order",
        )


def timeout_never(subject: LintSubject) -> Findings:
    """`timeout_action` is set, but there is no timeout.

    Triton 2.51 loads the model, and calls never time out in the queue.
    """
    for field, policy in policies(subject):
        if policy.timeout_action == _DELAY and not policy.default_timeout_microseconds:
            yield LintFinding(
                f"{field}.timeout_action",
                "DELAY applies to calls that time out, but there is no timeout",
                "set default_timeout_microseconds: 50000, or remove timeout_action",
            )


def timeout_override_without_effect(subject: LintSubject) -> Findings:
    """`allow_timeout_override` is set, but the queue has no default timeout.

    Triton uses the smaller of the call's timeout and the queue's. The queue's is 0, so the
    parameter `timeout` of a call has no effect.
    """
    for field, policy in policies(subject):
        if policy.allow_timeout_override and not policy.default_timeout_microseconds:
            yield LintFinding(
                f"{field}.allow_timeout_override",
                "a client can only shorten the timeout, and there is none",
                "set default_timeout_microseconds: 1000000, or remove allow_timeout_override",
            )


def timeout_before_delay(subject: LintSubject) -> Findings:
    """The queue timeout is shorter than the queue delay.

    Triton rejects a call that arrives on its own with `Request timeout expired`, status 503.
    """
    delay = subject.message.dynamic_batching.max_queue_delay_microseconds
    for field, policy in policies(subject):
        timeout = policy.default_timeout_microseconds
        if policy.timeout_action != _DELAY and 0 < timeout <= delay:
            yield LintFinding(
                f"{field}.default_timeout_microseconds",
                f"a call that arrives alone times out after {timeout} µs, but waits {delay} µs",
                f"use a timeout well above max_queue_delay_microseconds ({delay})",
            )


def timeout_absurd(subject: LintSubject) -> Findings:
    """The queue timeout is longer than ten minutes; the field is in microseconds.

    Clients will have given up by then.
    """
    for field, policy in policies(subject):
        timeout = policy.default_timeout_microseconds
        if timeout > LONGEST_TIMEOUT:
            yield LintFinding(
                f"{field}.default_timeout_microseconds",
                f"{timeout} is {timeout / 1_000_000:g} s",
                "use a time that clients wait, such as 1000000",
            )


def queue_below_batch(subject: LintSubject) -> Findings:
    """`max_queue_size` is smaller than `max_batch_size`.

    If the queue is full, Triton rejects calls with `Exceeds maximum queue size`, status 503. In
    2.51, a batch of single-row calls cannot have more rows than the queue has places.
    """
    largest = subject.message.max_batch_size
    for field, policy in policies(subject):
        if 0 < policy.max_queue_size < largest:
            yield LintFinding(
                f"{field}.max_queue_size",
                f"at most {policy.max_queue_size} can wait, so calls of one row rarely fill a "
                f"batch of {largest}",
                f"set max_queue_size: {4 * largest}, or 0 for no limit",
            )


def priority_single(subject: LintSubject) -> Findings:
    """There is only one priority level.

    Triton 2.51 loads the model. All calls have the same priority, whatever they request.
    """
    if subject.message.dynamic_batching.priority_levels == 1:
        yield LintFinding(
            "dynamic_batching.priority_levels",
            "with one level, all calls have the same priority",
            "set priority_levels: 2, or remove the priorities",
        )


def policies(subject: LintSubject) -> Iterator[tuple[str, Any]]:
    """Each queue policy, and where it stands."""
    batching = subject.message.dynamic_batching
    if batching.HasField("default_queue_policy"):
        yield "dynamic_batching.default_queue_policy", batching.default_queue_policy
    for level in sorted(batching.priority_queue_policy):
        field = f"dynamic_batching.priority_queue_policy[{level}]"
        yield field, batching.priority_queue_policy[level]
