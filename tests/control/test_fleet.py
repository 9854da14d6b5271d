"""The fleet: who holds a version, and what stays in force when replicas are lost."""

import pytest
from builders import Clock, replica

from serve.control.fleet import Fleet
from serve.control.observations import Failure


def fleet(*names: str) -> Fleet:
    return Fleet(tuple(replica(name) for name in names), clock=Clock(5.0))


def test_a_version_is_held_by_the_replicas_on_which_it_is_ready() -> None:
    three = fleet("a", "b", "c")
    three.saw("c", {"m": (1, 2)})
    three.saw("a", {"m": (1,)})
    three.saw("b", {"x": (1,)})
    assert three.holders("m", 1, "default") == ("a", "c")
    assert three.holders("m", 2, "default") == ("c",)
    assert three.holders("m", 3, "default") == ()


def test_what_is_about_to_go_is_held_no_longer_until_it_has_gone_or_has_not() -> None:
    two = fleet("a", "b")
    two.saw("a", {"m": (1, 2)})
    two.saw("b", {"m": (1, 2)})
    two.leave("a", "m", (1,))
    assert (two.holders("m", 1, "default"), two.holders("m", 2, "default")) == (("b",), ("a", "b"))
    assert not two.wrong("a")
    assert not two.left("b") and two.left("a")
    assert two.holders("m", 1, "default") == ("a", "b")


def test_replicas_of_another_pool_do_not_count() -> None:
    two = Fleet((replica("a"), replica("b", pool="a100")), clock=Clock())
    two.saw("a", {"m": (1,)})
    two.saw("b", {"m": (1,)})
    assert two.holders("m", 1, "a100") == ("b",)
    assert two.pools == {"default", "a100"}


def test_a_lost_replica_gets_no_calls_while_another_holds_the_version() -> None:
    two = fleet("a", "b")
    two.saw("a", {"m": (1,)})
    two.saw("b", {"m": (1,)})
    two.lost("a", "refused")
    assert two.holders("m", 1, "default") == ("b",)


def test_a_control_plane_that_has_lost_sight_of_everything_switches_nothing_off() -> None:
    two = fleet("a", "b")
    two.saw("a", {"m": (1,)})
    two.saw("b", {"m": (1,)})
    two.lost("a", "refused")
    two.lost("b", "refused")
    assert two.holders("m", 1, "default") == ("a", "b")


def test_a_version_that_only_a_lost_replica_held_stays_where_it_was() -> None:
    two = fleet("a", "b")
    two.saw("a", {"m": (1,)})
    two.saw("b", {"x": (1,)})
    two.lost("a", "refused")
    assert two.holders("m", 1, "default") == ("a",)


def test_a_replica_that_comes_back_empty_holds_nothing() -> None:
    two = fleet("a", "b")
    two.saw("a", {"m": (1,)})
    two.lost("a", "refused")
    two.saw("a", {})
    assert two.holders("m", 1, "default") == ()


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


@pytest.mark.parametrize("state", ["unseen", "up", "lost"])
def test_an_operator_sees_the_state_of_a_replica_and_why(state: str) -> None:
    one = fleet("a")
    if state == "up":
        one.saw("a", {})
    if state == "lost":
        one.lost("a", "refused")
    seen = one.observations["a"]
    assert (seen.state, seen.why) == (state, "refused" if state == "lost" else "")


def test_the_time_of_a_state_begins_when_the_state_does() -> None:
    clock = Clock(10.0)
    one = Fleet((replica("a"),), clock=clock)
    one.saw("a", {})
    clock.now = 20.0
    one.saw("a", {"m": (1,)})
    assert one.observations["a"].since == 10.0
    one.lost("a", "refused")
    assert one.observations["a"].since == 20.0


def test_what_failed_on_a_lost_replica_is_forgotten_since_it_may_come_back_as_another() -> None:
    two = fleet("a", "b")
    two.failures["a", "m"] = two.failures["b", "m"] = Failure("bad file", (), 1, 0.0)
    two.lost("a", "refused")
    assert list(two.failures) == [("b", "m")]


def test_a_replica_that_comes_back_may_take_load_calls_again() -> None:
    one = fleet("a")
    one.saw("a", {})
    one.manages_itself("a")
    one.lost("a", "refused")
    one.saw("a", {})
    assert not one.observations["a"].self_managed


def test_the_fleet_is_known_once_every_replica_was_looked_at_and_one_has_answered() -> None:
    two = fleet("a", "b")
    known = [two.is_known]
    two.lost("a", "refused")
    known.append(two.is_known)
    two.lost("b", "refused")
    known.append(two.is_known)
    two.saw("b", {})
    known.append(two.is_known)
    two.lost("b", "refused")
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
    assert one.holders("m", 1, "default") == ()
    assert one.in_pool("default") == () and not one.staying
    assert not one.is_present("a") and not one.can_be_called("a", "m", 1)
    one.take_back("a")
    assert one.holders("m", 1, "default") == ("a",)


def test_nothing_is_left_of_one_that_is_removed() -> None:
    two = fleet("a", "b")
    for name in ("a", "b"):
        two.saw(name, {"m": (1,)})
        two.bar(name, "m", [1], "wrong")
        two.failures[name, "m"] = Failure("bad file", (), 1, 0.0)
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
    assert two.holders("m", 1, "default") == ("a",)


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


def test_of_a_fleet_that_was_discovered_one_has_to_answer() -> None:
    found = Fleet((), clock=Clock(), is_complete=False)
    found.join(replica("a"))
    found.complete()
    found.lost("a", "refused")
    assert not found.is_known
    found.saw("a", {})
    assert found.is_known


def test_where_nobody_was_discovered_that_is_known() -> None:
    found = Fleet((), clock=Clock(), is_complete=False)
    assert not found.is_known
    found.complete()
    assert found.is_known
