"""The observer on a real socket: everything is told of a run, and nobody is in the way."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from builders import until
from workbench.loadtest.fake_sides import (
    GPU,
    Side,
    gateway_text,
    hint_page,
    page,
    replica_page,
    revision,
    side,
    stats,
)

from serve.workbench.loadtest.observed import Observed, ObservedEvent
from serve.workbench.loadtest.observer import LoadTarget, RunObserver

STATS = "/v2/models/digits/stats"


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
        "/api/hints": {"hints": [hint_page()]},
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
