"""Balancing: the least busy replica, turns among equals, and sequences that stay where they are."""

from collections import Counter
from collections.abc import Mapping

from serve.proxy.balancing import pick

NAMES = ("a", "b", "c", "d")


def choose(
    *names: str,
    loads: Mapping[str, int] | None = None,
    avoided: str = "",
    turn: int = 0,
    sequence: str = "",
) -> str | None:
    busy = loads or {}
    return pick(
        names,
        load=lambda name: busy.get(name, 0),
        is_usable=lambda name: name not in avoided,
        turn=turn,
        sequence=sequence,
    )


def test_the_replica_with_the_fewest_calls_is_picked() -> None:
    assert choose("a", "b", "c", loads={"a": 3, "b": 1, "c": 2}, turn=7) == "b"


def test_among_equals_the_turn_goes_round() -> None:
    loads = {"a": 1, "b": 0, "c": 0, "d": 0}
    assert [choose(*NAMES, loads=loads, turn=turn) for turn in range(6)] == list("bcdbcd")


def test_an_avoided_replica_is_passed_over_even_when_it_is_idle() -> None:
    assert choose("a", "b", loads={"b": 50}, avoided="a") == "b"


def test_when_all_are_avoided_they_are_tried_as_if_none_were() -> None:
    assert choose("a", "b", loads={"a": 1}, avoided="ab") == "b"


def test_without_replicas_there_is_none_to_try() -> None:
    assert choose() is None
    assert choose(sequence="n1") is None


def test_a_sequence_stays_on_its_replica_whatever_the_loads_and_turns() -> None:
    places = {
        choose(*names, loads={"a": n}, avoided="b", turn=n, sequence="n77")
        for n, names in enumerate([NAMES, NAMES[::-1], ("c", "a", "d", "b")])
    }
    assert len(places) == 1


def test_a_replica_that_leaves_moves_only_its_own_sequences() -> None:
    sequences = [f"n{n}" for n in range(500)]
    before = {one: choose(*NAMES, sequence=one) for one in sequences}
    after = {one: choose("a", "b", "d", sequence=one) for one in sequences}
    assert all(after[one] == before[one] for one in sequences if before[one] != "c")
    assert {after[one] for one in sequences if before[one] == "c"} == {"a", "b", "d"}


def test_sequences_are_spread_over_all_replicas() -> None:
    counts = Counter(choose(*NAMES, sequence=f"n{n}") for n in range(2000))
    assert set(counts) == set(NAMES)
    assert all(400 < count < 600 for count in counts.values())
