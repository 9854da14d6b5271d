"""What configurations mean, in words."""

from serve.triton.batching_words import meaning
from serve.triton.config import parse


def told(text: str) -> dict[str, str]:
    return {one.field: one.text for one in meaning(parse(text))}


def test_a_configuration_that_says_nothing_is_told_with_what_triton_does() -> None:
    assert told("") == {
        "max_batch_size": "Not set: a call is run as it comes, and its tensors have no batch "
        "dimension.",
        "dynamic_batching": "Not set: each call is run alone, one after the other.",
        "dynamic_batching.default_queue_policy": "Not set: the queue has no limit.",
        "instance_group": "Not set: Triton or the backend decides; mostly one on each GPU, or one "
        "on the CPU.",
        "response_cache": "Not set: equal calls are run again.",
        "model_warmup": "Not set: the first calls may be slow.",
    }


def test_dynamic_batching_is_told_with_its_wait_and_its_sizes() -> None:
    found = told(
        "max_batch_size: 16 dynamic_batching { preferred_batch_size: [ 8, 16 ] "
        "max_queue_delay_microseconds: 500 preserve_ordering: true }"
    )
    assert found["max_batch_size"] == "Up to 16 rows are run at once."
    assert found["dynamic_batching"] == "Calls that wait at the same time are run together."
    assert found["dynamic_batching.max_queue_delay_microseconds"] == (
        "A call waits for company for at most 500 µs, less once 8 or 16 rows are there."
    )
    assert found["dynamic_batching.preferred_batch_size"] == (
        "Batches are made of 8 or 16 rows where so many wait."
    )
    assert found["dynamic_batching.preserve_ordering"] == (
        "Answers come in the order of the calls; one that is ready waits for earlier ones."
    )


def test_without_a_delay_nothing_waits_and_the_largest_batch_is_preferred() -> None:
    found = told("max_batch_size: 16 dynamic_batching { }")
    assert found["dynamic_batching.max_queue_delay_microseconds"] == (
        "Not set: as soon as an instance is free, it takes what waits by then."
    )
    assert "16 rows" in found["dynamic_batching.preferred_batch_size"]
    assert found["dynamic_batching.default_queue_policy"] == (
        "Not set: any number of calls may wait, for any time."
    )


def test_batches_without_dynamic_batching_are_those_of_callers() -> None:
    assert told("max_batch_size: 4")["max_batch_size"] == (
        "A call may bring up to 4 rows; calls are never put together."
    )


def test_queues_are_told_with_their_limits() -> None:
    for policy, words in (
        ("", "Any number of calls may wait. None times out."),
        ("max_queue_size: 1", "Up to 1 call may wait; more are refused with 503. None times out."),
        (
            "default_timeout_microseconds: 2500 allow_timeout_override: true",
            "Any number of calls may wait. A call that has waited for 2.5 ms is refused. A caller "
            "may shorten that.",
        ),
        (
            "default_timeout_microseconds: 60000000 timeout_action: DELAY",
            "Any number of calls may wait. A call that has waited for 60 s stands behind all "
            "others.",
        ),
    ):
        found = told(
            f"max_batch_size: 8 dynamic_batching {{ default_queue_policy {{ {policy} }} "
            f"priority_levels: 3 default_priority_level: 2 "
            f"priority_queue_policy {{ key: 3 value {{ {policy} }} }} }}"
        )
        assert found["dynamic_batching.default_queue_policy"] == words, policy
        assert found["dynamic_batching.priority_queue_policy[3]"] == f"Of priority 3: {words}", (
            policy
        )
        assert found["dynamic_batching.priority_levels"] == (
            "There are priorities from 1, the first, to 3; a call that names none has 2."
        ), policy


def test_direct_sequences_are_told_with_their_slots() -> None:
    found = told(
        "max_batch_size: 4 sequence_batching { direct { max_queue_delay_microseconds: 1000 "
        "minimum_slot_utilization: 0.5 } }"
    )
    assert found["sequence_batching.direct"] == (
        "Each instance has slots for 4 sequences; further ones wait until one has ended."
    )
    assert found["sequence_batching.direct.max_queue_delay_microseconds"] == (
        "An instance waits for at most 1 ms until 50 % of them have one."
    )
    assert found["sequence_batching.max_sequence_idle_microseconds"] == (
        "Not set: a sequence that is silent for 1 s is given up."
    )
    assert "dynamic_batching" not in found


def test_oldest_sequences_are_told_with_their_candidates() -> None:
    found = told(
        "max_batch_size: 4 sequence_batching { max_sequence_idle_microseconds: 5000000 oldest { "
        "max_candidate_sequences: 32 max_queue_delay_microseconds: 100 } }"
    )
    assert found["sequence_batching.oldest"] == (
        "Each instance looks after 32 sequences at a time, and puts their calls together, the "
        "oldest first."
    )
    assert "at most 100 µs" in found["sequence_batching.oldest.max_queue_delay_microseconds"]
    assert found["sequence_batching.max_sequence_idle_microseconds"] == (
        "A sequence that is silent for 5 s is given up."
    )


def test_instances_are_told_with_where_they_are() -> None:
    for group, words in (
        ("kind: KIND_CPU count: 2", "2 batches can be run at the same time on the CPU."),
        ("kind: KIND_GPU", "1 batch can be run at the same time on each GPU."),
        (
            "kind: KIND_GPU count: 2 gpus: [ 0, 1 ]",
            "2 batches can be run at the same time on each of the GPUs 0, 1.",
        ),
        (
            "count: 1 passive: true",
            "1 batch can be run at the same time on GPU, or CPU where there is none. They answer "
            "no calls: they are passive.",
        ),
    ):
        assert told(f"instance_group {{ {group} }}")["instance_group[0]"] == words, group


def test_what_a_triton_must_be_started_for_is_told_with_the_flag() -> None:
    found = told(
        'response_cache { enable: true } instance_group { rate_limiter { resources { name: "R" '
        "count: 2 } } }"
    )
    assert "--cache-config" in found["response_cache"]
    assert found["instance_group[0].rate_limiter"].startswith(
        "Each of these instances needs 2 of R"
    )


def test_warm_up_is_told_with_rows_and_times() -> None:
    assert told('model_warmup { name: "w" batch_size: 8 count: 2 }')["model_warmup 'w'"] == (
        "Before the model is ready, 8 rows are sent through it 2 times."
    )
    assert told('model_warmup { name: "w" batch_size: 1 }')["model_warmup 'w'"] == (
        "Before the model is ready, 1 row is sent through it 1 time."
    )


def test_an_ensemble_runs_nothing_itself() -> None:
    assert list(told('platform: "ensemble"')) == ["ensemble_scheduling"]
