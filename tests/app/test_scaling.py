"""The parts that make hints, put together as the control plane has them."""

import asyncio
import dataclasses
from pathlib import Path
from typing import Any

import pytest
from builders import ControlPlane, replica
from ports import free_ports

from serve.app.autoscaler import Scaling, scaling_of
from serve.app.batch_observation import observing_of
from serve.control.decisions import POOL, Decisions
from serve.control.scaling.pools import NOTHING, Usual, usual_of
from serve.control.storage.store import StoredEntry
from serve.core.errors import Unavailable
from serve.settings import Settings


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
