"""Merging statistics and index: sums, states, names, and counters that only rise."""

from __future__ import annotations

import json
from typing import Any

from builders import snapshot, target, view

from serve.wire.statistics import Entry, ReplicaTally, StatisticsNames, add, has_fallen, index

NAMES = StatisticsNames(snapshot(view(target(1, "a", "b"), target(2, "a"))))
RENAMED = StatisticsNames(
    snapshot(view(target(1, "a", physical="m--0a1b2c3d"), target(2, "b", physical="m--99999999")))
)
TRITONS = (
    b'[{"name":"m","version":"1","state":"READY"},'
    b'{"name":"m","version":"2","state":"UNAVAILABLE","reason":"unloaded"},{"name":"n"}]'
)


def anything(_: str) -> bool:
    return True


def entry(count: int, *, name: str = "m", version: str = "1", **more: Any) -> Entry:
    """As Triton writes it, in its order."""
    return {
        "name": name,
        "version": version,
        "last_inference": count,
        "inference_count": count,
        "execution_count": count,
        "inference_stats": {"success": {"count": count, "ns": 10 * count}},
        "response_stats": {},
        "batch_stats": [],
        "memory_usage": [],
        **more,
    }


def batch(size: int, count: int) -> Entry:
    return {"batch_size": size, "compute_infer": {"count": count, "ns": count}}


def memory(place: str, number: int, size: int) -> Entry:
    return {"type": place, "id": number, "byte_size": size}


# --- the index ------------------------------------------------------------------------------------


def test_the_index_of_one_replica_is_what_it_said() -> None:
    told = index([json.loads(TRITONS)], NAMES, anything)
    assert json.dumps(told, separators=(",", ":")).encode() == TRITONS


def test_a_version_is_ready_when_it_is_anywhere_and_unloaded_only_when_it_is_everywhere() -> None:
    loading = {"name": "m", "version": "1", "state": "LOADING"}
    ready = {"name": "m", "version": "1", "state": "READY"}
    for answers in ([[loading], [ready]], [[ready], [loading]]):
        assert index(answers, NAMES, anything) == [ready]
    told = index([[{"name": "m"}, {"name": "n"}], [ready, {"name": "n"}]], NAMES, anything)
    assert told == [ready, {"name": "n"}]


def test_versions_come_in_the_order_of_their_numbers() -> None:
    versions = [{"name": "m", "version": str(number), "state": "READY"} for number in (10, 9, 1)]
    told = index([versions[:1], versions[1:]], NAMES, anything)
    assert [one["version"] for one in told] == ["1", "9", "10"]


def test_what_triton_knows_by_other_names_is_told_by_its_own() -> None:
    told = index(
        [
            [{"name": "m--0a1b2c3d", "version": "1", "state": "READY"}],
            [{"name": "m--99999999", "version": "2", "state": "READY"}],
            [{"name": "m--ffffffff", "version": "3", "state": "LOADING"}],
            [{"name": "n--ffffffff", "version": "1", "state": "READY"}],
        ],
        RENAMED,
        anything,
    )
    assert [(one["name"], one["version"]) for one in told] == [
        ("m", "1"),
        ("m", "2"),
        ("m", "3"),  # a version that has not been routed to yet
        ("n--ffffffff", "1"),  # there is no model n
    ]


def test_what_the_caller_may_not_see_is_left_out_and_remembered_for_another() -> None:
    entries = [{"name": "m--0a1b2c3d", "version": "1", "state": "READY"}, {"name": "other"}]
    assert index([entries], RENAMED, lambda name: name == "other") == [{"name": "other"}]
    tally = ReplicaTally()
    first = tally.merged({"a": [entry(3)]}, NAMES, lambda name: name == "other", is_complete=True)
    assert first == []
    assert count(tally.merged({"a": [entry(1)]}, NAMES, anything)) == 4


# --- sums -----------------------------------------------------------------------------------------


def test_counters_are_summed_by_what_they_count_and_the_latest_time_counts() -> None:
    def answered(**counts: int) -> Entry:
        stats = {number[1:]: {"success": {"count": n, "ns": n}} for number, n in counts.items()}
        return entry(0, response_stats=stats)

    both = add(entry(3, last_inference=70), entry(4, last_inference=50))
    assert both == entry(7, last_inference=70)
    assert list(both) == list(entry(0))
    assert add(answered(r0=1, r1=2), answered(r1=3, r2=4)) == answered(r0=1, r1=5, r2=4)
    old, new = {"name": "m", "old": 1}, {"name": "m", "new": 2}
    assert add(old, new) == {"name": "m", "old": 1, "new": 2}, "what only one knows is kept"


def test_batches_are_summed_by_their_size_and_memory_by_its_place() -> None:
    left = entry(0, batch_stats=[batch(1, 5), batch(8, 1)], memory_usage=[memory("GPU", 0, 9)])
    right = entry(0, batch_stats=[batch(4, 2), batch(8, 3)], memory_usage=[memory("GPU", 1, 5)])
    both = add(left, right)
    assert both["batch_stats"] == [batch(1, 5), batch(4, 2), batch(8, 4)]
    assert both["memory_usage"] == [memory("GPU", 0, 9), memory("GPU", 1, 5)]
    assert add(left, left)["memory_usage"] == [memory("GPU", 0, 18)]


def test_counters_have_fallen_when_any_of_them_has() -> None:
    for before, now, fallen in (
        (entry(3), entry(3), False),
        (entry(3), entry(4), False),
        (entry(3), entry(2), True),
        (entry(3, last_inference=9), entry(3, last_inference=1), False),
        (entry(3, memory_usage=[memory("GPU", 0, 9)]), entry(3), False),
        (entry(3, batch_stats=[batch(8, 1)]), entry(3, batch_stats=[batch(8, 2)]), False),
        (entry(3, batch_stats=[batch(8, 2)]), entry(3, batch_stats=[batch(8, 1)]), True),
        (entry(3, batch_stats=[batch(8, 2)]), entry(3), True),
        (entry(3), entry(3, batch_stats=[batch(8, 2)]), False),
    ):
        assert has_fallen(before, now) is fallen, (before, now)


# --- counters that only rise ----------------------------------------------------------------------


def count(told: list[Entry]) -> int:
    [one] = told
    return int(one["inference_count"])


def test_the_replicas_of_a_version_are_one_and_a_single_one_is_told_as_it_tells() -> None:
    given = entry(3, batch_stats=[batch(1, 3)], memory_usage=[memory("CPU", 0, 7)])
    tally = ReplicaTally()
    for _ in range(3):
        assert tally.merged({"a": [given]}, NAMES, anything) == [given]
    replicas = {"a": [entry(3), entry(5, version="2")], "b": [entry(4)]}
    told = ReplicaTally().merged(replicas, NAMES, anything)
    assert [(one["version"], one["inference_count"]) for one in told] == [("1", 7), ("2", 5)]


def test_what_a_replica_had_counted_before_it_was_loaded_anew_stays() -> None:
    tally = ReplicaTally()
    told = [count(tally.merged({"a": [entry(n)]}, NAMES, anything)) for n in (3, 5, 0, 2, 1, 6)]
    assert told == [3, 5, 5, 7, 8, 13]


def test_what_a_replica_that_left_had_counted_stays_without_its_memory() -> None:
    tally = ReplicaTally()
    a, b = entry(3), entry(4, memory_usage=[memory("GPU", 0, 9)])
    tally.merged({"a": [a], "b": [b]}, NAMES, anything)
    [left] = tally.merged({"a": [a]}, NAMES, anything)
    assert (left["inference_count"], left["memory_usage"]) == (7, [])
    assert count(tally.merged({"a": [a], "b": [entry(5)]}, NAMES, anything)) == 8


def test_a_version_that_nobody_tells_of_is_not_told_and_forgotten_when_all_were_asked() -> None:
    tally = ReplicaTally()
    tally.merged({"a": [entry(3)]}, NAMES, anything)
    assert tally.merged({"a": []}, NAMES, anything) == []
    assert count(tally.merged({"a": [entry(1)]}, NAMES, anything)) == 4
    tally.merged({"a": []}, NAMES, anything, is_complete=True)
    assert count(tally.merged({"a": [entry(2)]}, NAMES, anything)) == 2


def test_a_version_under_two_names_in_triton_is_one_with_the_models_own() -> None:
    names = StatisticsNames(snapshot(view(target(1, "a", physical="m--0a1b2c3d"))))
    given = {"a": [entry(3, name="m"), entry(4, name="m--0a1b2c3d")]}
    [told] = ReplicaTally().merged(given, names, anything)
    assert (told["name"], told["version"], told["inference_count"]) == ("m", "1", 7)
