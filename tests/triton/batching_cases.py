"""Configurations with exactly one thing wrong about batching."""

from collections.abc import Mapping, Sequence

from serve.triton.lint import Subject

from .lint_cases import group, onnx, sample, warmup


def dynamic(text: str) -> Subject:
    """The good model with dynamic batching."""
    return onnx(f"dynamic_batching {{ {text} }}")


def queue(text: str, more: str = "") -> Subject:
    """The good model with a default queue policy."""
    return dynamic(f"default_queue_policy {{ {text} }} {more}")


def prioritised(text: str, more: str = "") -> Subject:
    """The good model with two priorities, and a policy for the second."""
    policy = f"priority_queue_policy {{ key: 2 value {{ {text} }} }}"
    return dynamic(f"priority_levels: 2 default_priority_level: 1 {policy} {more}")


def oldest(text: str) -> Subject:
    """The good model with sequences, the oldest first."""
    return onnx(f"sequence_batching {{ oldest {{ {text} }} }}")


def limited(*resources: str) -> Subject:
    """The good model with a rate limiter."""
    wanted = " ".join(f"resources {{ {each} }}" for each in resources)
    return group(f"kind: KIND_CPU rate_limiter {{ {wanted} }}")


CASES: Mapping[str, Sequence[Subject]] = {
    "preferred-twice": [dynamic("preferred_batch_size: [ 4, 8, 4 ]")],
    "preferred-one": [
        dynamic("preferred_batch_size: [ 1, 8 ]"),
        oldest("preferred_batch_size: [ 1 ]"),
    ],
    "preferred-caps": [
        dynamic("preferred_batch_size: [ 2, 4 ] max_queue_delay_microseconds: 100"),
        oldest("preferred_batch_size: [ 4 ]"),
    ],
    "ordering-with-priorities": [
        dynamic("preserve_ordering: true priority_levels: 2 default_priority_level: 1")
    ],
    "ordering-with-delayed": [
        queue("timeout_action: DELAY default_timeout_microseconds: 9000", "preserve_ordering: true")
    ],
    "ordering-holds-answers": [
        onnx(
            "dynamic_batching { preserve_ordering: true } "
            "instance_group { count: 2 kind: KIND_CPU }"
        )
    ],
    "timeout-never": [queue("timeout_action: DELAY"), prioritised("timeout_action: DELAY")],
    "timeout-override-without-effect": [
        queue("allow_timeout_override: true"),
        prioritised("allow_timeout_override: true"),
    ],
    "timeout-before-delay": [
        queue("default_timeout_microseconds: 1000", "max_queue_delay_microseconds: 5000"),
        prioritised("default_timeout_microseconds: 5000", "max_queue_delay_microseconds: 5000"),
    ],
    "timeout-absurd": [queue("default_timeout_microseconds: 5000000000")],
    "queue-below-batch": [queue("max_queue_size: 7"), prioritised("max_queue_size: 1")],
    "priority-single": [dynamic("priority_levels: 1 default_priority_level: 1")],
    "slot-utilization": [
        onnx(f"sequence_batching {{ direct {{ minimum_slot_utilization: {share} }} }}")
        for share in ("1.5", "-0.5")
    ],
    "candidates-negative": [oldest("max_candidate_sequences: -4")],
    "candidates-few": [oldest("max_candidate_sequences: 4")],
    "idle-absurd": [
        onnx(f"sequence_batching {{ max_sequence_idle_microseconds: {idle} }}")
        for idle in (500, 7_200_000_000)
    ],
    "instances-many": [group("kind: KIND_CPU count: 100")],
    "instances-passive": [group("kind: KIND_CPU count: 1 passive: true")],
    "profile-without-plan": [group('kind: KIND_CPU profile: "0"')],
    "resource-twice": [limited('name: "R" count: 1', 'name: "R" count: 2')],
    "resource-both": [limited('name: "R" count: 1', 'name: "R" global: true count: 1')],
    "resource-empty": [limited('name: "R"'), limited("count: 2")],
    "rate-limiter-off": [limited('name: "R" count: 1'), limited()],
    "cache-off": [onnx("response_cache { enable: true }")],
    "warmup-count": [warmup("count: 5000 " + sample())],
}
