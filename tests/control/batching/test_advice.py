"""Advice and hints: each rule has a situation in which it speaks, and no other does."""

import logging
from collections.abc import Mapping
from typing import Any

import pytest
from builders import Clock
from control.batching.situations import situation
from prometheus_client.core import Metric

from serve.capacity.setup import BatchSetup
from serve.control.batching.advice import RULES, advise
from serve.control.batching.hints import BEGINS, ENDS, HINTS, BatchingHints, judged
from serve.control.batching.latencies import Took
from serve.control.batching.situation import ENOUGH, Situation

WELL = situation({1: (1000, 5), 4: (500, 8), 8: (1000, 12)}, queue=4, objective="p99<30ms", cpu=0.9)
_DELAYED = BatchSetup(8, delay=0.005)

CASES: dict[str, tuple[Situation, str]] = {
    "batching-off": (
        situation({1: (3000, 10)}, setup=BatchSetup(8, batches=False), queue=20),
        "dynamic_batching: it is off, but calls of 1 row wait 20 ms for an execution of 10 ms, "
        "and up to 8 rows could be executed together. Try: servegate batching set m@1 --on "
        "[batching-off]",
    ),
    "clients-batch": (
        situation({6: (1000, 10)}, calls=1000, queue=1),
        "dynamic_batching: calls have 6 rows each, and an execution has at most 8, so two calls "
        "do not fit into one execution. Try: servegate batching set m@1 --max-batch-size 32 "
        "[clients-batch]",
    ),
    "delay-beyond-objective": (
        situation(
            {4: (500, 12), 8: (1000, 20)},
            setup=BatchSetup(8, delay=0.030),
            queue=12,
            objective="p99<50ms",
        ),
        "dynamic_batching.max_queue_delay_microseconds: calls can wait 30 ms for others, but two "
        "executions of 6.7 rows leave only 15.3 ms of the objective p99<50ms. Try: servegate "
        "batching set m@1 --delay 7666us [delay-beyond-objective]",
    ),
    "delay-without-company": (
        situation({1: (1000, 5)}, setup=_DELAYED, queue=5),
        "dynamic_batching.max_queue_delay_microseconds: calls wait 5 ms of at most 5 ms for "
        "others, but an execution has only 1.00 calls. Try: servegate batching set m@1 --delay "
        "0us [delay-without-company]",
    ),
    "delay-in-vain": (
        situation({1: (500, 5), 2: (500, 6)}, setup=_DELAYED, queue=4),
        "dynamic_batching.max_queue_delay_microseconds: calls wait 4 ms of at most 5 ms, but "
        "batches have 1.5 rows of 8, and instances are busy only 6 % of the time. Try: servegate "
        "batching set m@1 --delay 0us [delay-in-vain]",
    ),
    "preferred-unreached": (
        situation({1: (500, 5), 3: (500, 6)}, setup=BatchSetup(8, preferred=(4, 8)), queue=1),
        "dynamic_batching.preferred_batch_size: 0 of 1,000 executions had the size 4 or 8; the "
        "largest had 3 rows. Try: servegate batching set m@1 --preferred none "
        "[preferred-unreached]",
    ),
    "largest-below-objective": (
        situation({4: (500, 8), 8: (1000, 12)}, queue=10, objective="p99<50ms", cpu=0.9),
        "max_batch_size: 67 % of the executions are full with 8 rows, and the objective p99<50ms "
        "allows 20; two executions of that size take 48 ms. Try: servegate batching set m@1 "
        "--max-batch-size 16 [largest-below-objective]",
    ),
    "largest-beyond-objective": (
        situation(
            {4: (500, 14), 16: (1000, 38)},
            setup=BatchSetup(16),
            queue=20,
            objective="p99<50ms",
            cpu=0.9,
        ),
        "max_batch_size: it is 16, but the objective p99<50ms allows 9; 67 % of the executions "
        "are larger, and two of 16 rows take 76 ms. Try: servegate batching set m@1 "
        "--max-batch-size 9 [largest-beyond-objective]",
    ),
    "largest-unreached": (
        situation({1: (4000, 5), 3: (6000, 8)}, setup=BatchSetup(64), queue=2),
        "max_batch_size: it is 64, but the largest execution had 3 rows, although instances are "
        "busy 68 % of the time; larger batches only reserve memory. Try: servegate batching set "
        "m@1 --max-batch-size 4 [largest-unreached]",
    ),
    "instances-starved": (
        situation({4: (100, 8), 8: (8000, 12)}, queue=30, cpu=0.3),
        "instance_group.count: calls wait 30 ms for an execution of 12 ms, one instance is busy "
        "97 % of the time, and the CPU utilisation is 30 %. Try: servegate batching set m@1 "
        "--instances 2 [instances-starved]",
    ),
    "instances-idle": (
        situation({1: (500, 5), 4: (500, 8)}, setup=BatchSetup(8, instances=4), queue=0.1),
        "instance_group.count: 4 instances are busy only 2 % of the time, and each has a copy of "
        "the model in memory. Try: servegate batching set m@1 --instances 1 [instances-idle]",
    ),
    "cache-useless": (
        situation({1: (500, 5), 4: (500, 8)}, hits=3, misses=2500, batched={"caches": True}),
        "response_cache: it had the response for 3 of 2,503 calls, but hashes every call and "
        "stores every response. Try: servegate batching set m@1 --no-cache [cache-useless]",
    ),
    "queue-rejects": (
        situation(
            {4: (500, 8), 8: (1000, 12)},
            queue=4,
            took=Took({0.1: 10_500.0}, 105.0, 10_500.0, refused=500.0),
            batched={"queue_limit": 8},
        ),
        "dynamic_batching.default_queue_policy.max_queue_size: 8 calls can wait, and 500 of "
        "10,500 calls were rejected. Try: servegate batching set m@1 --queue size=16 "
        "[queue-rejects]",
    ),
}


def test_every_rule_has_a_case_and_every_case_a_rule() -> None:
    assert [rule.name for rule in RULES] == list(CASES)
    assert [rule.name for rule in HINTS] == list(DRIFTED)
    assert all(rule.meaning.endswith(".") for rule in (*RULES, *HINTS))


@pytest.mark.parametrize("name", CASES)
def test_a_rule_speaks_in_its_own_case_and_no_other_does(name: str) -> None:
    found = advise(CASES[name][0])
    assert [str(one) for one in found] == [CASES[name][1]]


def test_a_version_that_is_batched_well_or_that_is_called_too_little_gets_no_advice() -> None:
    assert advise(WELL) == ()
    few = situation({1: (ENOUGH - 1, 10)}, setup=BatchSetup(8, batches=False), queue=20)
    assert not few.is_enough
    assert advise(few) == ()
    assert advise(situation({1: (ENOUGH, 10)}, setup=BatchSetup(8, batches=False), queue=20))


def test_what_runs_nothing_itself_or_has_sequences_is_not_told_to_batch() -> None:
    off = BatchSetup(8, batches=False)
    for kind in ("ensemble", "sequences"):
        assert advise(situation({1: (3000, 10)}, setup=off, queue=20, batched={kind: True})) == ()


def test_clients_that_batch_are_told_not_to_wait_where_there_is_a_delay() -> None:
    (found,) = advise(situation({6: (1000, 10)}, calls=1000, queue=5, setup=_DELAYED))
    assert (found.rule, found.fix) == ("clients-batch", "servegate batching set m@1 --delay 0us")


def test_a_machine_without_room_gets_no_more_instances_but_a_gpu_with_room_does() -> None:
    sizes = {4: (100, 8.0), 8: (8000, 12.0)}
    assert advise(situation(sizes, queue=30, cpu=0.95)) == ()
    assert advise(situation(sizes, queue=30)) == ()  # nobody tells how much room there is
    (found,) = advise(situation(sizes, queue=30, cpu=0.95, gpu=0.4))
    assert "the GPU utilisation is 40 %" in found.why


# --- hints: calls have left what was tuned for ---------------------------------------------------

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
DRIFTED: dict[str, tuple[Situation, str]] = {
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


@pytest.mark.parametrize("name", DRIFTED)
def test_a_hint_speaks_in_its_own_case_and_no_other_does(name: str) -> None:
    asked, why = DRIFTED[name]
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


ABOVE = DRIFTED["rate-above"][0]


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
