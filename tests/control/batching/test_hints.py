"""Hints: each rule has calls that have left what was tuned for, and no other speaks of them."""

import logging
from collections.abc import Mapping
from typing import Any

import pytest
from builders import Clock
from control.batching.situations import situation
from prometheus_client.core import Metric

from serve.control.batching.hints import BEGINS, ENDS, HINTS, BatchingHints, judged
from serve.control.batching.latencies import Took
from serve.control.batching.situation import Situation

TUNED: Mapping[str, Any] = {
    "at": 1_700_000_000,
    "objective": "p99<50ms",
    "rate": 100.0,
    "rows": 1.0,
    "rows_per_execution": 6.7,
    "p99": 0.041,
    "service": {"fixed": 0.004, "per_row": 0.001, "scatter": 0.0},
}
AS_TUNED = {4: (500, 8.0), 8: (1000, 12.0)}  # 10,000 calls in 100 s
FAST = Took({0.01: 10_000.0}, 100.0, 10_000.0)
SLOW = Took({0.05: 9_000.0, 0.1: 10_000.0}, 400.0, 10_000.0)


def tuned(sizes: Any = None, **others: Any) -> Situation:
    return situation(sizes or AS_TUNED, tuned=TUNED, **{"took": FAST, "queue": 4, **others})


_AGAIN = "servegate batching tune m@1 --slo 'p99<50ms'"
CASES: dict[str, tuple[Situation, str]] = {
    "rate-above": (
        tuned(replicas={"a": 50.0}),
        "a replica gets 200 calls/s, and it was tuned for up to 100",
    ),
    "rows-differ": (
        tuned(calls=2500),
        "calls have 4 rows, and it was tuned with calls of 1 row",
    ),
    "service-drifted": (
        tuned({4: (500, 12.0), 8: (1000, 18.0)}),
        "an execution takes 16 ms, 50 % more than one of the same size when it was tuned",
    ),
    "objective-missed": (tuned(took=SLOW), "p99 is 95 ms, but the objective is p99<50ms"),
}


def test_every_rule_has_a_case_and_every_case_a_rule() -> None:
    assert [rule.name for rule in HINTS] == list(CASES)
    assert all(rule.meaning.endswith(".") for rule in HINTS)


@pytest.mark.parametrize("name", CASES)
def test_a_rule_speaks_in_its_own_case_and_no_other_does(name: str) -> None:
    asked, why = CASES[name]
    assert list(judged(asked)) == [(name, why, _AGAIN)]


def test_calls_as_they_were_tuned_for_or_past_the_gateway_give_no_hint() -> None:
    assert list(judged(tuned())) == []
    assert list(judged(tuned(took=Took({0.1: 10.0}, 1.0, 10.0)))) == []


def test_executions_that_became_faster_are_a_drift_too() -> None:
    ((name, why, _),) = judged(tuned({4: (500, 4.0), 8: (1000, 6.0)}))
    assert name == "service-drifted"
    assert "50 % less than" in why


def test_a_model_that_was_not_tuned_is_held_against_its_objective_only() -> None:
    asked = situation(AS_TUNED, objective="p99<20ms", took=SLOW, queue=4)
    ((name, why, fix),) = judged(asked)
    assert (name, why) == ("objective-missed", "p99 is 95 ms, but the objective is p99<20ms")
    assert fix == "servegate batching tune m@1 --slo 'p99<20ms'"


def test_what_was_written_by_hand_and_is_no_number_is_not_compared() -> None:
    odd = {"rate": "high", "rows": None, "service": [1], "objective": 5}
    assert list(judged(situation(AS_TUNED, tuned=odd, took=SLOW))) == []
    assert list(judged(situation(AS_TUNED, tuned={"service": {}}))) == []


class Scene:
    """One version, judged round by round."""

    def __init__(self) -> None:
        self.wall = Clock(1_700_000_000.0)
        self.hints = BatchingHints(wall=self.wall)

    def judge(self, *asked: Situation, rounds: int = 1) -> None:
        for _ in range(rounds):
            self.hints.judge({("m", place): one for place, one in enumerate(asked, 1)})
            self.wall.now += 15

    @property
    def names(self) -> list[str]:
        return [one.hint for one in self.hints.of("m", 1)]


ABOVE = CASES["rate-above"][0]


def test_a_hint_begins_when_its_rule_spoke_twice_in_a_row() -> None:
    scene = Scene()
    for _ in range(5):  # one odd round makes no hint
        scene.judge(ABOVE, rounds=BEGINS - 1)
        assert scene.names == []
        scene.judge(tuned())
        assert scene.names == []
    since = scene.wall()
    scene.judge(ABOVE, rounds=BEGINS)
    assert scene.names == ["rate-above"]
    assert scene.hints.all()[0].since == since


@pytest.mark.parametrize("silent", [(tuned(),), ()], ids=["its rule is silent", "it went"])
def test_a_hint_ends_when_its_rule_was_silent_long_enough(silent: tuple[Situation, ...]) -> None:
    scene = Scene()
    scene.judge(ABOVE, rounds=BEGINS)
    scene.judge(*silent, rounds=ENDS - 1)
    assert not silent or scene.names == ["rate-above"]
    scene.judge(*silent)
    assert scene.names == []
    assert scene.hints.all() == ()


def test_a_hint_is_logged_once_when_it_begins_and_once_when_it_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene()
    with caplog.at_level(logging.INFO, "servegate.batching"):
        scene.judge(ABOVE, rounds=10)
        scene.judge(tuned(), rounds=10)
    assert caplog.messages == [
        "hint begins: m@1: a replica gets 200 calls/s, and it was tuned for up to 100. Try: "
        "servegate batching tune m@1 --slo 'p99<50ms' [rate-above]",
        "hint ends: m@1, rate-above",
    ]


def test_prometheus_is_told_while_a_hint_holds() -> None:
    scene = Scene()
    scene.judge(tuned(), ABOVE, rounds=BEGINS)
    (gauge,) = scene.hints.collect()
    assert isinstance(gauge, Metric)
    labels = {"model": "m", "version": "2", "hint": "rate-above"}
    assert [(one.name, one.labels, one.value) for one in gauge.samples] == [
        ("servegate_batching_hint", labels, 1.0)
    ]
