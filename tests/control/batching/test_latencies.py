"""How long calls took as callers see it, and whether they are served as well after a change."""

from math import inf

import pytest

from serve.control.batching.latencies import NONE, Latencies
from serve.control.batching.regressions import CallWindow, judged, window
from serve.control.live.gateway_metrics import GatewayReading
from serve.core.objectives import Objective


def metrics(*counts: tuple[float, int], version: int = 1, protocol: str = "http") -> str:
    """Calls up to each bound in seconds; all take a hundredth."""
    labels = f'model="m",version="{version}",route="number",protocol="{protocol}"'
    bounds = [f'servegate_call_seconds_bucket{{le="{b}",{labels}}} {n}' for b, n in counts]
    most = max(n for _, n in counts)
    bounds += [
        f'servegate_call_seconds_bucket{{le="+Inf",{labels}}} {most}',
        f"servegate_call_seconds_sum{{{labels}}} {most / 100}",
        f"servegate_call_seconds_count{{{labels}}} {most}",
    ]
    return "\n".join(["# HELP some text", *bounds, ""])


def test_only_what_rises_counts() -> None:
    latencies = Latencies(300.0)
    latencies.tell(metrics((0.01, 1000), (0.02, 1000)), 0.0)
    assert latencies.of("m", 1) == NONE
    latencies.tell(metrics((0.01, 1050), (0.02, 1100)), 15.0)
    took = latencies.of("m", 1)
    assert (took.calls, took.mean) == (100, pytest.approx(0.01))
    assert took.quantile(50) == pytest.approx(0.01)
    assert took.quantile(75) == pytest.approx(0.015)
    latencies.tell(metrics((0.01, 30), (0.02, 40)), 30.0)  # the gateway has started anew
    assert latencies.of("m", 1).calls == 140


def test_protocols_are_summed_and_versions_are_not() -> None:
    latencies = Latencies(300.0)
    first = metrics((0.01, 0)) + metrics((0.01, 0), protocol="grpc") + metrics((0.01, 0), version=2)
    later = metrics((0.01, 5)) + metrics((0.01, 7), protocol="grpc") + metrics((0.01, 9), version=2)
    latencies.tell(first, 0.0)
    latencies.tell(later, 15.0)
    assert (latencies.of("m", 1).calls, latencies.of("m", 2).calls) == (12, 9)


def test_calls_that_a_full_queue_refused_are_those_that_triton_answered_so() -> None:
    def errors(http: int, grpc: int) -> str:
        counts = {"503": http, "UNAVAILABLE": grpc, "500": 99, "overloaded": 99}
        lines = [
            f'servegate_errors_total{{model="m",version="1",error="{code}"}} {count}'
            for code, count in counts.items()
        ]
        return "\n".join([*lines, ""])

    latencies = Latencies(300.0)
    latencies.tell(metrics((0.01, 100)) + errors(3, 1), 0.0)
    latencies.tell(metrics((0.01, 200)) + errors(8, 7), 15.0)
    assert latencies.of("m", 1).refused == 11


def test_what_is_old_is_dropped() -> None:
    latencies = Latencies(300.0)
    for count in range(100):
        latencies.tell(metrics((0.01, count)), count * 15.0)
    assert latencies.of("m", 1).calls == 20
    assert repr(latencies) == "<Latencies steps=20>"


def test_nothing_has_no_quantile_and_what_is_no_metrics_is_refused() -> None:
    assert Latencies(300.0).of("m", 3) == NONE
    assert (NONE.mean, NONE.quantile(99)) == (0.0, None)
    with pytest.raises(ValueError):
        Latencies(300.0).tell("<html>", 0.0)


# --- after a change ------------------------------------------------------------------------------

P99 = Objective.parse("p99<50ms")
GOOD = CallWindow(calls=1000, slow=5, errors=0)


def reading(calls: float, fast: float, errors: float = 0.0) -> GatewayReading:
    """So many calls of `m` since the start, of which some took up to 50 ms."""
    where = ("m", "1", "http")
    buckets = {"m": {0.01: fast / 2, 0.05: fast, 1.0: calls, inf: calls}}
    failed = {(where, "no_replica"): errors}
    return GatewayReading({where: calls}, failed, {}, buckets, {}, None, {}, {}, {}, {})


def test_a_window_holds_what_rose_between_two_readings() -> None:
    found = window("m", P99, reading(100, 90, 1), reading(300, 250, 4))
    assert found == CallWindow(calls=200, slow=40, errors=3)
    # within a bucket calls are taken to lie evenly
    between = Objective.parse("p90<525ms")
    assert window("m", between, reading(0, 0), reading(100, 60)).slow == pytest.approx(20)


def test_a_change_stays_while_the_objective_is_met_or_where_it_was_missed_before() -> None:
    verdict = judged(GOOD, CallWindow(1000, 8, 0), P99, ended=True)
    assert not verdict.why
    assert verdict.told == "p99<50ms is met: 8 of 1000 calls took longer"
    verdict = judged(CallWindow(1000, 100, 0), CallWindow(1000, 900, 0), P99, ended=True)
    assert (verdict.why, verdict.told) == ("", "p99<50ms was not met before the change either")


def test_the_clearer_the_objective_is_missed_the_sooner_it_is_known() -> None:
    for slow, at_once, at_the_end in ((15, False, False), (18, False, True), (30, True, True)):
        after = CallWindow(1000, slow, 0)
        assert bool(judged(GOOD, after, P99).why) == at_once, slow
        assert bool(judged(GOOD, after, P99, ended=True).why) == at_the_end, slow


def test_few_calls_are_no_reason_for_anything() -> None:
    for before, after in ((49, 1000), (1000, 49), (0, 0)):
        verdict = judged(CallWindow(before), CallWindow(after, after, after), P99, ended=True)
        assert not verdict.why and "too few calls" in verdict.told, (before, after)


def test_errors_that_were_not_there_before_take_a_change_back_without_an_objective() -> None:
    assert "20 of 1000 calls failed" in judged(GOOD, CallWindow(1000, 0, 20), None).why
    assert not judged(CallWindow(1000, 0, 18), CallWindow(1000, 0, 20), None).why
