"""Outliers: when a replica that fails calls is ejected, how it is probed, and by whom it is not."""

import random
from collections.abc import Callable

from builders import Clock, DataPlane, call, snapshot, target, view

from serve.core import faults
from serve.core.calls import Reply, Verb
from serve.core.errors import DeadlineExceeded, NotSent, OutcomeUnknown, ServegateError
from serve.proxy.attempts import Attempt
from serve.proxy.outliers import BASE, FORGOTTEN, IN_A_ROW, JITTER, LONGEST, PROBE, Outliers

BROKEN = OutcomeUnknown("the connection broke")
PAIR = snapshot(view(target(1, "a", "b")))
FOUR = snapshot(view(target(1, "a", "b", "c", "d")))
GOOD, BAD, WRONG = 200, 500, 400
Outcome = int | ServegateError


def end(attempt: Attempt, outcome: Outcome) -> None:
    if isinstance(outcome, ServegateError):
        attempt.failed(outcome)
    else:
        attempt.answered(outcome, good=outcome < 300)


def calls(plane: DataPlane, outcomes: dict[str, Outcome], count: int) -> list[str]:
    """So many calls, one after the other; replicas that are not named answer well. Who got them."""
    got = []
    for _ in range(count):
        attempt = plane.begin()
        got.append(attempt.replica.name)
        end(attempt, outcomes.get(attempt.replica.name, GOOD))
    return got


def ejected(plane: DataPlane) -> set[str]:
    return {name for name, _ in plane.health.outliers.ejected}


# --- it is ejected --------------------------------------------------------------------------------


def test_a_replica_that_fails_every_call_gets_five_of_them() -> None:
    for fleet in (PAIR, FOUR):
        for outcome in (BROKEN, BAD, 502, 504):
            plane = DataPlane(fleet)
            assert calls(plane, {"a": outcome}, 200).count("a") == IN_A_ROW, (outcome, fleet)
            assert ejected(plane) == {"a"}, (outcome, fleet)
            assert not plane.health.is_usable("a", "m/1")
            labels = {"replica": "a", "model": "m", "version": "1"}
            assert plane.count("servegate_ejections_total", **labels) == 1


def test_calls_that_fail_together_are_enough() -> None:
    plane = DataPlane(PAIR)
    together = [plane.begin() for _ in range(2 * IN_A_ROW)]
    for attempt in together:
        if attempt.replica.name == "a":
            attempt.failed(BROKEN)
    assert ejected(plane) == {"a"}


def test_a_good_answer_in_between_begins_the_row_anew_and_a_wrong_call_does_not() -> None:
    plane = DataPlane(PAIR)
    for _ in range(10):
        calls(plane, {"a": BAD}, 2 * (IN_A_ROW - 1))
        calls(plane, {}, 2)
    assert not ejected(plane)
    assert not plane.health.outliers.rows
    calls(plane, {"a": BAD}, 2 * (IN_A_ROW - 1))
    calls(plane, {"a": WRONG}, 2)
    calls(plane, {"a": BAD}, 2)
    assert ejected(plane) == {"a"}


def test_every_way_of_calling_counts() -> None:
    for verb in (Verb.INFER, Verb.GENERATE, Verb.STREAM):
        for protocol in ("http", "grpc"):
            plane, asked = DataPlane(PAIR), call(verb, protocol=protocol)
            bad = BAD if protocol == "http" else 13
            got = []
            for _ in range(100):
                attempt = plane.begin(asked)
                got.append(attempt.replica.name)
                attempt.answered(bad if got[-1] == "a" else 0, good=got[-1] != "a")
            assert got.count("a") == IN_A_ROW, (protocol, verb)


def test_what_is_not_the_replicas_fault_does_not_count() -> None:
    for outcome in (WRONG, 404, 429, 501, 503, DeadlineExceeded(), OutcomeUnknown(faults.WHAT)):
        plane = DataPlane(PAIR)
        assert calls(plane, {"a": outcome}, 100).count("a") == 50, outcome
        assert not ejected(plane), outcome


def test_answers_to_questions_neither_count_nor_clear() -> None:
    plane = DataPlane(PAIR)
    for verb in (Verb.METADATA, Verb.CONFIG, Verb.READY):
        for _ in range(20):
            end(plane.begin(call(verb)), BAD)
    assert not plane.health.outliers.rows
    calls(plane, {"a": BROKEN}, 20)
    end(plane.begin(call(Verb.METADATA)), GOOD)
    assert ejected(plane) == {"a"}


def test_a_version_that_answers_badly_is_ejected_alone_and_a_broken_replica_for_all() -> None:
    both = snapshot(view(target(1, "a", "b")), view(target(1, "a", "b", model="n"), name="n"))
    bad, broken = DataPlane(both), DataPlane(both)
    calls(bad, {"a": BAD}, 20)
    calls(broken, {"a": BROKEN}, 20)
    seen: list[set[str]] = []
    for plane in (bad, broken):
        others = [plane.begin(call(model="n")) for _ in range(4)]
        seen.append({attempt.replica.name for attempt in others})
    assert seen == [{"a", "b"}, {"b"}]


# --- but not by its callers -----------------------------------------------------------------------


UNREADABLE = (
    Reply(500, b'{"error":"failed to parse the request JSON buffer: Invalid value. at 0"}'),
    Reply(500, b'{"error":"Unable to parse \'inputs\': attempt to access non-existing object"}'),
    Reply(500, b'{"error":"failed to get request params.: attempt to get members for non-object"}'),
)


def test_what_triton_cannot_read_is_the_callers_fault() -> None:
    for reply in UNREADABLE:
        plane = DataPlane(PAIR)
        for _ in range(50):
            attempt = plane.begin()
            assert not attempt.refused(reply)
            attempt.answered(500, good=False)
        assert not plane.health.outliers.rows, reply


def test_a_caller_whose_calls_fail_everywhere_ejects_no_replica() -> None:
    for fleet in (PAIR, FOUR):
        plane, every = DataPlane(fleet), dict.fromkeys("abcd", BAD)
        for _ in range(500):
            calls(plane, every, 1)
            assert not ejected(plane)


def test_such_a_caller_among_others_ejects_seldom_and_never_more_than_half() -> None:
    for fleet in (PAIR, FOUR):
        for share in (0.1, 0.5, 0.9):
            plane, draw = DataPlane(fleet), random.Random(1)
            for _ in range(3000):
                end(plane.begin(), BAD if draw.random() < share else GOOD)
                assert 2 * len(ejected(plane)) <= len(fleet.replicas)
                plane.clock.now += 0.01
            seldom = sum(
                plane.count("servegate_ejections_total", replica=name, model="m", version="1")
                for name in fleet.replicas
            )
            assert seldom <= 2, (share, fleet)
            plane.clock.now += 2 * LONGEST
            calls(plane, {}, 20)
            assert not plane.health.outliers.rows, (share, fleet)


def test_never_more_than_half_of_the_replicas_are_ejected() -> None:
    for outcome in (BAD, BROKEN):
        plane = DataPlane(FOUR)
        got = calls(plane, dict.fromkeys("abc", outcome), 300)
        assert len(ejected(plane)) == 2, outcome
        assert len(set(got[-50:])) == 2, outcome
    alone = DataPlane(snapshot(view(target(1, "a"))))
    calls(alone, {"a": BROKEN}, 50)
    assert not ejected(alone)


def test_a_pool_that_has_been_bad_is_served_by_all_after_a_good_answer() -> None:
    plane = DataPlane(FOUR)
    calls(plane, dict.fromkeys("abc", BAD), 300)
    plane.clock.now += 2 * BASE
    calls(plane, {}, 10)
    assert not plane.health.outliers.rows
    assert set(calls(plane, {}, 20)) == set("abcd")


# --- it is probed ---------------------------------------------------------------------------------


def test_after_its_time_one_call_is_the_probe_and_the_others_go_elsewhere() -> None:
    plane = with_a_due_for_a_probe()
    attempts = [plane.begin() for _ in range(20)]
    assert [one.replica.name for one in attempts].count("a") == 1
    [probe] = [one for one in attempts if one.replica.name == "a"]
    probe.answered(GOOD, good=True)
    assert not ejected(plane)
    assert {plane.begin().replica.name for _ in range(4)} >= {"a"}


def test_a_probe_that_fails_makes_the_next_time_longer_up_to_the_longest() -> None:
    plane = DataPlane(PAIR)
    calls(plane, {"a": BROKEN}, 20)
    times = []
    for _ in range(15):
        begun = plane.clock.now
        while "a" not in calls(plane, {"a": BROKEN}, 2):
            plane.clock.now += 1
        times.append(plane.clock.now - begun)
    assert times[:3] == [BASE, 2 * BASE, 3 * BASE]
    assert times[-1] == LONGEST


def with_a_due_for_a_probe() -> DataPlane:
    plane = DataPlane(PAIR)
    calls(plane, {"a": BROKEN}, 20)
    plane.clock.now += BASE
    return plane


def next_probe(plane: DataPlane) -> Attempt:
    return next(one for one in iter(plane.begin, None) if one.replica.name == "a")


def end_elsewhere(probe: Attempt) -> None:
    probe.not_sent(NotSent("refused"))
    assert probe.replica.name == "b"
    probe.answered(GOOD, good=True)


INCONCLUSIVE: dict[str, Callable[[Attempt], object]] = {
    "wrong": lambda probe: probe.answered(WRONG, good=False),
    "left": lambda probe: probe.left(),
    "late": lambda probe: probe.failed(DeadlineExceeded()),
    "not sent": end_elsewhere,
    "not loaded": lambda probe: probe.refused(
        Reply(404, b'{"error":"Request for unknown model: \'m\' version 1 is not found"}')
    ),
}


def test_a_probe_that_shows_nothing_is_followed_by_another() -> None:
    for outcome, end_probe in INCONCLUSIVE.items():
        plane = with_a_due_for_a_probe()
        end_probe(next_probe(plane))
        plane.clock.now += 1  # the pause of one that could not be reached is over
        assert next_probe(plane)
        assert ejected(plane) in ({"a"}, set()), outcome


def test_a_probe_that_does_not_end_is_not_waited_for_forever() -> None:
    plane = with_a_due_for_a_probe()
    assert "a" in {plane.begin().replica.name for _ in range(4)}
    assert "a" not in {plane.begin().replica.name for _ in range(20)}
    plane.clock.now += PROBE
    assert [plane.begin().replica.name for _ in range(40)].count("a") == 1


def test_the_jitter_makes_a_time_longer() -> None:
    clock = Clock()
    outliers = Outliers(clock, lambda: 1.0)
    for _ in range(IN_A_ROW):
        outliers.failed("a", "m/1", None, ("a", "b"), broke=True)
    clock.now += BASE * (1 + JITTER) - 0.1
    assert outliers.avoided("m/1") == {"a"}
    clock.now += 0.1
    assert outliers.avoided("m/1") == set()


# --- it is forgotten ------------------------------------------------------------------------------


def test_a_replica_that_stays_keeps_its_past_and_one_that_leaves_has_none() -> None:
    plane = DataPlane(PAIR)
    calls(plane, {"a": BROKEN}, 20)
    plane.live.swap(snapshot(view(target(1, "a", "b")), generation=2))
    assert set(calls(plane, {}, 10)) == {"b"}
    plane.live.swap(snapshot(view(target(1, "b")), generation=3))
    calls(plane, {}, 1)
    plane.live.swap(snapshot(view(target(1, "a", "b")), generation=4))
    assert "a" in calls(plane, {}, 2)


def test_a_row_without_a_new_failure_is_forgotten_at_last() -> None:
    plane = DataPlane(PAIR)
    calls(plane, {"a": BAD}, 4)
    plane.clock.now += FORGOTTEN + 1
    plane.begin()
    assert not plane.health.outliers.rows
