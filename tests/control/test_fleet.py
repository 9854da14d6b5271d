"""The fleet: who holds a version, and what stays in force when replicas are lost."""

import asyncio
from pathlib import Path

from builders import Clock, ControlPlane, replica, write_model

from serve.control.barred_versions import Barring
from serve.control.fleet import LOADING, Fleet
from serve.control.fleet_meters import FleetMeters, missing_versions
from serve.control.observations import FlavourChoice, LoadFailure


def fleet(*names: str) -> Fleet:
    return Fleet(tuple(replica(name) for name in names), clock=Clock(5.0))


def held(one: Fleet, version: int, pool: str = "default") -> str:
    """The holders of a version of model m, whose names are letters."""
    return "".join(one.holders("m", version, pool))


def test_a_version_is_held_by_the_replicas_of_its_pool_on_which_it_is_ready() -> None:
    three = fleet("a", "b", "c")
    three.saw("c", {"m": (1, 2)})
    three.saw("a", {"m": (1,)})
    three.saw("b", {"x": (1,)})
    assert (held(three, 1), held(three, 2), held(three, 3)) == ("ac", "c", "")
    two = Fleet((replica("a"), replica("b", pool="a100")), clock=Clock())
    two.saw("a", {"m": (1,)})
    two.saw("b", {"m": (1,)})
    assert held(two, 1, "a100") == "b"
    assert two.pools == {"default", "a100"}


def test_what_is_about_to_go_is_held_no_longer_until_it_has_gone_or_has_not() -> None:
    two = fleet("a", "b")
    two.saw("a", {"m": (1, 2)})
    two.saw("b", {"m": (1, 2)})
    two.leave("a", "m", (1,))
    assert (held(two, 1), held(two, 2)) == ("b", "ab")
    assert not two.wrong("a")
    assert not two.left("b") and two.left("a")
    assert held(two, 1) == "ab"


def test_a_lost_replica_gets_no_calls_unless_no_other_holds_the_version() -> None:
    two = fleet("a", "b")
    two.saw("a", {"m": (1, 2)})
    two.saw("b", {"m": (1,)})
    two.lost("a", "refused")
    assert (held(two, 1), held(two, 2)) == ("b", "a")
    two.lost("b", "refused")  # who has lost sight of everything switches nothing off
    assert (held(two, 1), held(two, 2)) == ("ab", "a")
    two.saw("a", {})  # it comes back empty
    assert (held(two, 1), held(two, 2)) == ("b", "")


def test_only_news_is_news() -> None:
    one = fleet("a")
    news = [
        one.saw("a", {"m": (1,)}),
        one.saw("a", {"m": (1,)}),
        one.saw("a", {"m": (1, 2)}),
        one.lost("a", "refused"),
        one.lost("a", "refused again"),
        one.saw("a", {"m": (1, 2)}),
    ]
    assert news == [True, False, True, True, False, True]


def test_an_operator_sees_the_state_of_a_replica_since_when_and_why() -> None:
    clock = Clock(10.0)
    one = Fleet((replica("a"),), clock=clock)

    def seen() -> tuple[str, str, float]:
        found = one.observations["a"]
        return found.state, found.why, found.since

    assert seen()[:2] == ("unseen", "")
    one.saw("a", {})
    clock.now = 20.0
    one.saw("a", {"m": (1,)})
    assert seen() == ("up", "", 10.0)
    one.manages_itself("a")
    one.lost("a", "refused")
    assert seen() == ("lost", "refused", 20.0)
    one.saw("a", {})
    assert not one.observations["a"].self_managed  # it may take load calls again


def test_what_failed_on_a_lost_replica_is_forgotten_since_it_may_come_back_as_another() -> None:
    two = fleet("a", "b")
    two.failures["a", "m"] = two.failures["b", "m"] = LoadFailure("bad file", (), 1, 0.0)
    two.lost("a", "refused")
    assert list(two.failures) == [("b", "m")]


def test_the_fleet_is_known_once_every_replica_was_looked_at_and_one_has_answered() -> None:
    two = fleet("a", "b")
    known = [two.is_known]
    for look in (
        lambda: two.lost("a", "refused"),
        lambda: two.lost("b", "refused"),
        lambda: two.saw("b", {}),
        lambda: two.lost("b", "refused"),
    ):
        look()
        known.append(two.is_known)
    assert known == [False, False, False, True, True]


def test_one_that_joins_is_not_waited_for_and_one_that_nobody_waits_for_is_known() -> None:
    clock = Clock(10.0)
    one = Fleet((), clock=clock)
    assert one.is_known
    one.join(replica("a", pool="a100"), wished_at=4.0)
    assert one.is_known and one.pools == {"a100"}
    seen = one.observations["a"]
    assert (seen.state, seen.joined_at, seen.wished_at) == ("unseen", 10.0, 4.0)
    assert not one.is_present("a") and not one.is_free("a")


def test_one_that_retires_gets_no_calls_even_if_nobody_else_can_answer_them() -> None:
    one = fleet("a")
    one.saw("a", {"m": (1,)})
    one.retire("a")
    assert (held(one, 1), one.in_pool("default"), dict(one.staying)) == ("", (), {})
    assert not one.is_present("a") and not one.can_be_called("a", "m", 1)
    one.take_back("a")
    assert held(one, 1) == "a"


def test_nothing_is_left_of_one_that_is_removed() -> None:
    two = fleet("a", "b")
    for name in ("a", "b"):
        two.saw(name, {"m": (1,)})
        two.bar(name, "m", [1], "wrong")
        two.failures[name, "m"] = LoadFailure("bad file", (), 1, 0.0)
        two.flavours[name, "m"] = "fp16"
        two.joining.add(name)
        two.waiting[name] = "no spare"
    two.tries("a", "m", "r1")
    walked = iter(two.observations)
    two.retire("a")
    two.remove("a")
    assert list(walked) == ["a", "b"]  # who walks through it meanwhile goes on
    assert list(two.observations) == ["b"] and two.joining == {"b"} and list(two.waiting) == ["b"]
    assert list(two.failures) == list(two.flavours) == [("b", "m")]
    assert two.tried_by("m", "r1") == "" and not two.wrong("a") and two.wrong("b")
    two.join(replica("a"))
    two.saw("a", {"m": (1,)})
    assert held(two, 1) == "a"


def test_a_fleet_without_those_of_the_start_is_known() -> None:
    two = fleet("a", "b")
    two.lost("a", "refused")
    two.remove("b")
    assert not two.is_known
    two.remove("a")
    assert two.is_known


def test_a_fleet_that_is_yet_to_be_discovered_is_known_when_all_of_it_were_looked_at() -> None:
    found = Fleet((replica("s"),), clock=Clock(), is_complete=False)
    found.saw("s", {})
    assert not found.is_known and not found.is_complete
    found.join(replica("a"))
    found.complete()
    assert found.is_complete and not found.is_known
    found.lost("a", "refused")
    assert found.is_known
    found.join(replica("b"))
    assert found.is_known  # who joins later is not waited for


def test_of_a_fleet_that_was_discovered_one_has_to_answer_unless_there_is_none() -> None:
    found, empty = (Fleet((), clock=Clock(), is_complete=False) for _ in range(2))
    found.join(replica("a"))
    found.complete()
    found.lost("a", "refused")
    assert not found.is_known
    found.saw("a", {})
    assert found.is_known
    assert not empty.is_known
    empty.complete()
    assert empty.is_known


# --- what is barred -------------------------------------------------------------------------------


def barring() -> Barring:
    made = Barring()
    for name, model, why in (("a", "m", "wrong"), ("a", "n", "loading"), ("b", "m", "loading")):
        made.put(name, (model, 1), why)
    return made


def test_it_is_found_from_both_sides_and_the_last_reason_counts() -> None:
    made = barring()
    assert dict(made.on("a")) == {("m", 1): "wrong", ("n", 1): "loading"}
    assert (made.where(("m", 1)), made.where(("m", 2))) == ({"a", "b"}, set())
    assert (made.has("a", ("m", 1)), made.has("b", ("n", 1))) == (True, False)
    assert made.because_of("loading") == {("m", 1), ("n", 1)}
    made.put("a", ("m", 1), "loading")
    assert dict(made.on("a"))["m", 1] == "loading"
    assert made.because_of("wrong") == frozenset()


def test_what_is_taken_is_gone_and_the_others_stay() -> None:
    made = barring()
    for name in ("a", "a", "z"):
        made.take(name, ("m", 1))
    assert made.where(("m", 1)) == {"b"}
    assert (made.has_any("a"), made.has_any("b"), made.has_any("z")) == (True, True, False)
    for slot, _ in made.on("a"):  # it may be taken while it is walked through
        made.take("a", slot)
    made.drop("b")
    made.drop("z")
    assert not made.has_any("a") and not made.has_any("b")
    assert repr(made) == "<Barring 0>"


# --- what Prometheus is told of replicas ----------------------------------------------------------


def told(plane: ControlPlane) -> dict[str, dict[str, float]]:
    """By the metric's name and the replica."""
    found: dict[str, dict[str, float]] = {}
    for family in FleetMeters(plane.fleet, plane.inventory).collect():
        assert all(sample.labels["pool"] == "default" for sample in family.samples)
        name = family.name.removeprefix("servegate_replica_")
        found[name] = {sample.labels["replica"]: sample.value for sample in family.samples}
    return found


def begun(folder: Path, **held: dict[str, tuple[int, ...]]) -> ControlPlane:
    """A model with versions 1 and 2, which replicas a and b should hold."""
    plane = ControlPlane(folder)
    write_model(plane.repository)
    return asyncio.run(plane.begin(**held))


def test_a_replica_that_holds_everything_lacks_nothing(tmp_path: Path) -> None:
    plane = begun(tmp_path, a={"m": (1, 2)}, b={"m": (2,)})
    assert told(plane) == {"up": {"a": 1, "b": 1}, "missing_versions": {"a": 0, "b": 1}}


def test_one_that_does_not_answer_is_down_and_nobody_knows_what_it_lacks(tmp_path: Path) -> None:
    plane = begun(tmp_path, a={"m": (1, 2)})
    assert told(plane) == {"up": {"a": 1, "b": 0}, "missing_versions": {"a": 0}}


def test_a_version_that_is_held_and_may_not_be_called_is_missing(tmp_path: Path) -> None:
    plane = begun(tmp_path, a={"m": (1, 2)}, b={"m": (1, 2)})
    plane.fleet.bar("a", "m", [2], LOADING)
    plane.fleet.bar("b", "m", [1, 2], "it answers wrongly")
    assert told(plane)["missing_versions"] == {"a": 1, "b": 2}


def test_what_could_not_be_loaded_is_missing_and_is_not_waited_for(tmp_path: Path) -> None:
    plane = begun(tmp_path, a={"m": (1,)}, b={"m": (2,)})
    plane.fleet.failures["a", "m"] = LoadFailure("it is broken", (), 1, 0.0)
    assert told(plane)["missing_versions"] == {"a": 1, "b": 1}
    assert missing_versions(plane.fleet, plane.inventory, failed=False) == {"a": 0, "b": 1}


def test_nothing_is_missing_on_who_leaves_loads_for_itself_or_cannot_run_it(tmp_path: Path) -> None:
    plane = begun(tmp_path, a={}, b={})
    assert told(plane)["missing_versions"] == {"a": 2, "b": 2}
    plane.fleet.retire("a")
    plane.fleet.choose("b", {"m": FlavourChoice("", {"tensorrt": "a GPU"}, {})})
    assert told(plane)["missing_versions"] == {"b": 0}
    plane.fleet.manages_itself("b")
    assert told(plane)["missing_versions"] == {}
