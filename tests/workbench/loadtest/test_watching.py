"""What the other side says of a run: subtracted from reading to reading, over time, and observed.

The observer asks on a real socket: everything is told of a run, and nobody is in the way.
"""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from builders import until
from control.live.advised import told as hint
from workbench.loadtest.fake_sides import (
    GPU,
    Side,
    gateway_text,
    page,
    replica_page,
    revision,
    side,
    stats,
)

from serve.workbench.loadtest.observations import gateway_counts
from serve.workbench.loadtest.observations.gateway_counts import GatewayCounts
from serve.workbench.loadtest.observations.local_tritons import is_here
from serve.workbench.loadtest.observations.triton_counts import TritonCounts
from serve.workbench.loadtest.observed import Observed, ObservedEvent, ObservedSeries
from serve.workbench.loadtest.observer import Changes, LoadTarget, RunObserver, RunReadings

STATS = "/v2/models/digits/stats"


def counted(*pages):
    counts = TritonCounts("digits")
    for one in pages:
        counts.add(one)
    return counts


def gateway(*texts, requests=0, mean=None):
    counts = GatewayCounts()
    for text in texts:
        counts.add(gateway_counts.read(text, "digits"))
    return counts.times(requests, mean)


# --- Triton's statistics --------------------------------------------------------------------------


def test_only_what_triton_counted_during_the_run_is_told() -> None:
    (times,) = counted(page(stats(count=100)), page(stats(count=140, batch=1, queue=0))).times
    assert (times.version, times.requests, times.rows, times.executions) == ("1", 40, 40, 40)
    assert (times.infer, times.input) == (0.0005, 0.0001)
    assert times.batches == {1: 40}


def test_versions_are_kept_apart_and_idle_ones_left_out() -> None:
    before = page(stats("1", 5), stats("2", 7), stats("10", 1))
    after = page(stats("1", 5), stats("2", 9), stats("10", 4))
    assert [one.version for one in counted(before, after).times] == ["2", "10"]


def test_a_version_that_is_loaded_during_the_run_counts_from_zero() -> None:
    (times,) = counted(page(), page(stats("3", 12))).times
    assert (times.version, times.requests) == ("3", 12)


def test_a_fall_adds_nothing_and_is_told() -> None:
    counts = counted(page(stats(count=100)), page(stats(count=10)), page(stats(count=15)))
    assert counts.requests == 5
    assert "decreased during the run" in counts.problems[0]


# --- the gateway's metrics ------------------------------------------------------------------------


def test_the_gateways_time_is_of_this_model_and_this_run() -> None:
    times = gateway(gateway_text(100, 1.0), gateway_text(200, 1.4), requests=100, mean=0.003)
    assert times is not None
    assert (times.calls, times.whole) == (100, pytest.approx(0.004))
    assert times.added == pytest.approx(0.001)


def test_nothing_is_added_where_the_difference_means_nothing() -> None:
    for after, requests in (
        (gateway_text(100, 0.4), 80),  # Triton answered other calls too
        (gateway_text(100, 0.4, messages=50), 100),  # messages of streams
        (gateway_text(100, 0.2), 100),  # less than Triton's own time
    ):
        times = gateway(gateway_text(), after, requests=requests, mean=0.003)
        assert times is not None and times.added is None


def test_errors_and_retries_are_those_of_the_run() -> None:
    before, after = gateway_text(shed=3, retries=1), gateway_text(shed=10, retries=3)
    times = gateway(before, after)
    assert times is not None
    assert (times.errors, times.retries) == ({"overloaded": 7}, 2)


def test_a_process_that_starts_anew_does_not_take_cpu_seconds_back() -> None:
    texts = [gateway_text(cpu=cpu, resident=size) for cpu, size in ((5, 5e7), (7, 9e7), (1, 4e7))]
    times = gateway(*texts)
    assert times is not None
    assert (times.cpu, times.resident) == (3.0, 90_000_000)


def test_counters_of_a_gateway_that_fell_are_told() -> None:
    counts = GatewayCounts()
    for calls in (10, 4):
        counts.add(gateway_counts.read(gateway_text(calls), "digits"))
    assert counts.problems == (
        "the gateway's counters decreased during the run, because it was restarted",
    )
    times = counts.times(0, None)
    assert times is not None and times.calls == 0


def test_readings_of_replicas_and_their_gpus_are_series() -> None:
    readings = RunReadings("http://gateway:8000")
    told = {"utilization": 0.5, "memory_used": 1e9, "memory_total": 8e9, "power": None}
    readings.replicas(1.0, [replica_page(gpus={"GPU-1": told})])
    found = {(one.group, one.of, one.name): one for one in readings.series}
    assert found["gpu", "GPU-1", "memory"] == ObservedSeries(
        "gpu", "GPU-1", "memory", "B", (1.0,), (1e9,)
    )
    assert ("gpu", "GPU-1", "power") not in found
    assert found["replica", "local-0", "waiting in Triton"].values == (4.0,)


def test_a_bare_triton_tells_its_queue_and_its_gpus() -> None:
    readings = RunReadings("http://gpu-1:8000")
    readings.triton(1.0, GPU)
    found = {(one.of, one.name): one.values for one in readings.series}
    assert found == {
        ("gpu-1:8000", "waiting in Triton"): (7.0,),
        ("GPU-1", "utilisation"): (0.5,),
        ("GPU-1", "memory"): (1e9,),
        ("GPU-1", "power"): (250.0,),
    }


def test_only_loopback_is_this_machine() -> None:
    hosts = {"127.0.0.1": True, "[::1]": True, "localhost": True, "gpu-1": False}
    assert {host: is_here(host) for host in hosts} == hosts


# --- changes --------------------------------------------------------------------------------------


def test_states_of_replicas_that_change_are_marks() -> None:
    changes = Changes()
    for at, one in ((0.0, replica_page()), (1.0, replica_page("lost", why="refused")), (2.0, None)):
        changes.replicas(at, [one] if one else [])
    assert changes.marks == (
        ObservedEvent(1.0, "local-0 is lost: refused"),
        ObservedEvent(2.0, "local-0 was removed"),
    )


def test_replicas_that_workers_avoid_are_marks() -> None:
    changes = Changes()
    for at, names in ((0.0, set()), (1.0, {"a"}), (2.0, {"a"}), (3.0, set())):
        changes.avoided(at, frozenset(names))
    assert [mark.text for mark in changes.marks] == [
        "the gateway does not call a",
        "the gateway calls a again",
    ]


def test_revisions_that_are_new_are_marks_at_their_time() -> None:
    changes = Changes()
    changes.revisions(0.0, 1.0, 0.0, [revision(1)])
    zero = 1795341598.0  # two seconds before the revision
    changes.revisions(1.0, 3.0, zero, [revision(2), revision(1)])
    assert changes.marks == (ObservedEvent(2.0, "revision 2: route digits: split.1: 90 → 2"),)


# --- the observer ---------------------------------------------------------------------------------

Play = Callable[[RunObserver], Awaitable[None]]


async def nothing(_: RunObserver) -> None:
    """The run is over at once."""


def observe(told: Side, target: LoadTarget, during: Play = nothing) -> Observed:
    """What is seen of a run in which Triton counts from 10 to 30."""

    async def run() -> Observed:
        observer = RunObserver(target)
        await observer.begin()
        watching = asyncio.create_task(observer.watch(asyncio.get_running_loop().time()))
        told.asked.clear()
        told.answers[STATS] = page(stats(count=30))
        await during(observer)
        watching.cancel()
        return await observer.end()

    return asyncio.run(run())


def everything(**changed):
    return {
        STATS: page(stats(count=10)),
        "/metrics": gateway_text(10, 0.1),
        "/api/replicas": [replica_page()],
        "/api/history": [revision(1)],
        "/api/hints": {"hints": [hint().to_json()]},
        "/v2": {"name": "triton", "version": "2.51.0"},
        "/v2/models/digits/config": {"max_batch_size": 64},
    } | changed


def target_of(told: Side, **changed) -> LoadTarget:
    metrics = f"{told.url}/metrics"
    wanted = {"http_url": told.url, "admin_url": told.url, "metrics_url": metrics}
    return LoadTarget(**wanted | {"model": "digits"} | changed)


def test_everything_is_told_of_a_run() -> None:
    with side(**everything()) as told:

        async def during(observer: RunObserver) -> None:
            told.answers["/metrics"] = gateway_text(30, 0.15)
            observer.mark(0.5, "something")
            await until(lambda: [path for path, _ in told.asked].count("/metrics") > 1, within=20.0)

        seen = observe(told, target_of(told), during)
    assert [one.requests for one in seen.triton] == [20]
    assert seen.gateway is not None and seen.gateway.added == pytest.approx(0.0015)
    assert ObservedEvent(0.5, "something") in seen.marks
    assert [(one.pool, one.desired) for one in seen.hints] == [("default", 3)]
    assert seen.facts["config"] == {"max_batch_size": 64}
    assert seen.facts["server"] == {"name": "triton", "version": "2.51.0"}
    assert (seen.problems, Observed.from_json(seen.to_json())) == ((), seen)


def test_who_does_not_answer_is_a_problem_and_disturbs_nobody() -> None:
    with side(**everything(**{"/api/replicas": None, "/api/history": {"not": "a list"}})) as told:
        seen = observe(told, target_of(told))
    assert [one.requests for one in seen.triton] == [20]
    assert "/api/replicas failed" in seen.problems[0]
    assert any("the history cannot be read" in one for one in seen.problems)


def test_a_bare_triton_is_asked_for_its_statistics_and_its_own_metrics() -> None:
    with side(**everything(**{"/metrics": GPU})) as told:
        seen = observe(told, target_of(told, admin_url=""))
        assert {path for path, _ in told.asked} == {STATS, "/metrics"}
    assert seen.gateway is None
    assert ("gpu", "GPU-1", "power") in {(one.group, one.of, one.name) for one in seen.series}


def test_keys_are_shown_to_whom_they_are_for() -> None:
    with side(**everything()) as told:

        async def during(_: RunObserver) -> None:
            await until(lambda: len({path for path, _ in told.asked}) == 5, within=20.0)

        observe(told, target_of(told, key="sg_data", admin_key="sg_admin"), during)
        keys = dict(told.asked)
    assert (keys[STATS], keys["/api/replicas"]) == ("Bearer sg_data", "Bearer sg_admin")
