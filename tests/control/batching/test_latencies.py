"""How long calls took as callers see it."""

import pytest

from serve.control.batching.latencies import NONE, Latencies


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


def test_protocols_are_summed_and_versions_are_not() -> None:
    latencies = Latencies(300.0)
    first = metrics((0.01, 0)) + metrics((0.01, 0), protocol="grpc") + metrics((0.01, 0), version=2)
    later = metrics((0.01, 5)) + metrics((0.01, 7), protocol="grpc") + metrics((0.01, 9), version=2)
    latencies.tell(first, 0.0)
    latencies.tell(later, 15.0)
    assert (latencies.of("m", 1).calls, latencies.of("m", 2).calls) == (12, 9)
    assert latencies.of("m", 3) == NONE


def test_a_gateway_that_started_anew_counts_from_zero() -> None:
    latencies = Latencies(300.0)
    latencies.tell(metrics((0.01, 1000)), 0.0)
    latencies.tell(metrics((0.01, 40)), 15.0)
    assert latencies.of("m", 1).calls == 40


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
    assert (NONE.mean, NONE.quantile(99)) == (0.0, None)
    with pytest.raises(ValueError):
        Latencies(300.0).tell("<html>", 0.0)
