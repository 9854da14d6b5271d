"""Pools of which nobody has set anything; and the parts that make hints, put together."""

import asyncio
import dataclasses
from pathlib import Path
from typing import Any

import pytest
from builders import ControlPlane, replica
from ports import free_ports

from serve.app.autoscaler import Scaling, scaling_of
from serve.app.batch_observation import observing_of
from serve.app.discovery import may_all_sleep, may_begin_empty
from serve.app.pools import usual_pools
from serve.control.decisions import MODEL, POOL, Decisions
from serve.control.scaling.pools import NOTHING, PoolSettings, Usual, usual_of
from serve.control.storage.store import StoredEntry
from serve.core.errors import Unavailable
from serve.settings import Settings

SLEEPS = {"to_zero": True}


def test_the_pool_of_local_tritons_has_the_range_that_they_scale_in() -> None:
    for autoscale, usual in (
        ("", {}),
        ("1..4", {"default": PoolSettings(1, 4)}),
        ("0..2", {"default": PoolSettings(1, 2, to_zero=True)}),
    ):
        assert usual_pools(Settings(autoscale=autoscale)) == usual


def test_a_control_plane_may_begin_without_a_replica_where_some_may_come() -> None:
    assert not may_begin_empty(Settings())
    assert may_begin_empty(Settings(autoscale="1..4"))
    assert may_begin_empty(Settings(discover=("kubernetes",)))


def decisions(**pools: dict[str, bool]) -> Decisions:
    """Model b is in pool large, all others are in the default one."""
    placed = {(MODEL, "b"): StoredEntry({"pool": "large"}, 1)}
    return Decisions(placed | {(POOL, name): StoredEntry(body, 2) for name, body in pools.items()})


def test_there_may_be_none_at_all_where_every_pool_of_a_known_model_may_sleep() -> None:
    settings, both = Settings(), decisions(default=SLEEPS, large=SLEEPS)
    assert may_all_sleep(settings, both, ["a", "b"])
    assert may_all_sleep(settings, decisions(default=SLEEPS), ["a"])
    assert not may_all_sleep(settings, decisions(default=SLEEPS), ["a", "b"])
    assert not may_all_sleep(settings, decisions(), ["a"])
    assert may_all_sleep(Settings(autoscale="0..2"), decisions(), ["a"])
    assert not may_all_sleep(settings, decisions(default=SLEEPS), [])


# --- hints ----------------------------------------------------------------------------------------


class Gateway:
    async def metrics(self) -> str:
        raise Unavailable("it is being started")


def composed(
    plane: ControlPlane, usual: Usual = NOTHING, settings: Settings | None = None
) -> Scaling:
    gateway: Any = Gateway()
    watching = observing_of(plane.models, plane.fleet, plane.publisher, gateway)
    return scaling_of(
        settings or Settings(),
        watching,
        usual,
        fleet=plane.fleet,
        inventory=plane.inventory,
        publisher=plane.publisher,
        decisions=lambda: plane.decisions,
        starting=lambda: {"default": 1},
    )


def lost(folder: Path) -> ControlPlane:
    plane = ControlPlane(folder, replicas=[replica("a"), replica("b", pool="large")])
    return asyncio.run(plane.begin())


def test_every_pool_has_a_hint_within_what_is_usual_for_it(tmp_path: Path) -> None:
    scaling = composed(lost(tmp_path), usual_of("default", 3, 5))
    assert all(not family.samples for family in scaling.meters.collect())
    asyncio.run(scaling.scaler.round())
    families = {family.name: family for family in scaling.meters.collect()}
    pools = [sample.labels["pool"] for sample in families["servegate_desired_replicas"].samples]
    assert pools == ["default", "large"]
    told = {one.pool: one for one in scaling.board.all()}
    assert set(told) == {"default", "large"}
    assert (told["default"].bounds.least, told["default"].bounds.most) == (3, 5)
    assert (told["large"].bounds.least, told["large"].bounds.most) == (1, 8)
    assert told["default"].hint.desired == 3
    assert told["default"].hint.starting >= 1


def test_what_people_have_set_comes_before_what_is_usual(tmp_path: Path) -> None:
    plane = lost(tmp_path)
    body = {"least": 2, "most": 2, "group": "both", "cost": 4.0}
    plane.decisions = Decisions(
        {(POOL, "default"): StoredEntry(body, 1), (POOL, "x"): StoredEntry({}, 2)}
    )
    scaling = composed(plane, usual_of("default", 3, 5))
    asyncio.run(scaling.scaler.round())
    told = {one.pool: one for one in scaling.board.all()}
    assert (told["default"].bounds.least, told["default"].bounds.most) == (2, 2)
    assert "x" in told


def test_hints_are_made_whatever_is_wrong_with_a_gpu(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    http, grpc, metrics = free_ports(3)
    nobody = dataclasses.replace(replica("a"), http_port=http, grpc_port=grpc, metrics_port=metrics)
    plane = asyncio.run(ControlPlane(tmp_path, replicas=[nobody]).begin(a={"m": (1,)}))
    settings = Settings(gpu_metrics=("default=this is no URL",))
    scaling = composed(plane, settings=settings)
    asyncio.run(scaling.scaler.round())
    assert "cannot read the GPU metrics of a" in caplog.text
    assert scaling.board.of("default").hint.ready == 1


def test_there_is_no_hint_before_it_is_known_which_replicas_there_are(tmp_path: Path) -> None:
    plane = ControlPlane(tmp_path, discovers=True)
    scaling = composed(plane, usual_of("default", 3, 5))
    asyncio.run(scaling.scaler.round())
    scaling.scaler.wake(["m"])
    assert scaling.board.all() == ()
    plane.fleet.complete()
    asyncio.run(scaling.scaler.round())
    assert [one.pool for one in scaling.board.all()] == ["default"]
