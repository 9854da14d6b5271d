"""Places of benches: what is loaded there, and what they refuse."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from builders import write_model
from control.publishing import Scene, ensemble, files
from loops import in_loop

from serve.control.batching.bench_places import Drained, Notes, ThrowAway
from serve.control.batching.bench_subjects import Subjects
from serve.control.fleet import Fleet
from serve.control.publication.ensembles import PinnableVersions
from serve.core.errors import Invalid, NotFound, TrialFailed
from serve.core.flavours import UNKNOWN

BATCHES = {"dynamic_batching": {"max_queue_delay_microseconds": 500}}


def subjects(scene: Scene) -> Subjects:
    plane = scene.plane
    parts = PinnableVersions(
        lambda: plane.decisions, lambda: plane.inventory.loadables, lambda _: None
    )
    return Subjects(plane.models, plane.inventory, parts)


def throw_away(scene: Scene, folder: Path, *, there: bool = True) -> ThrowAway:
    return ThrowAway(
        scene.quarantine if there else None,  # type: ignore[arg-type]
        scene.storage,
        folder=folder / "benches",
        plain=scene.plane.repository,
        machine=UNKNOWN,
    )


async def begun(folder: Path) -> Scene:
    scene = Scene(folder)
    write_model(scene.plane.repository, "plain")
    await scene.begin()
    await scene.publish("m", files())
    await scene.publish("e", ensemble("m"))
    return scene


async def loaded(
    scene: Scene, folder: Path, model: str, number: int, fields: Mapping[str, Any]
) -> dict[str, Any]:
    """The configurations that a throw-away Triton was given, by name, in order."""
    scene.quarantine.orders.clear()
    subject = subjects(scene).find(model, number)
    async with throw_away(scene, folder).open(subject, fields) as opened:
        assert opened.replica.name == "quarantine"
    (orders,) = scene.quarantine.orders
    return {order.name: json.loads(order.config_json) for order in orders}


@in_loop
async def test_a_version_is_loaded_with_other_fields_and_its_own_files(tmp_path: Path) -> None:
    scene = await begun(tmp_path)
    (config,) = (await loaded(scene, tmp_path, "m", 1, BATCHES)).values()
    assert config["dynamic_batching"] == {"max_queue_delay_microseconds": "500"}
    assert config["max_batch_size"] == 8
    assert any(path.endswith("1/model.onnx") for path in scene.quarantine.trees[-1])
    # what an ensemble is made of comes before it
    names = list(await loaded(scene, tmp_path, "e", 1, {}))
    assert names == [scene.version(name).physical for name in ("m", "e")]
    # a folder of the plain repository can be measured, too
    found = await loaded(scene, tmp_path, "plain", 2, {"max_batch_size": 4})
    assert found["plain"]["max_batch_size"] == 4
    assert found["plain"]["version_policy"]["specific"]["versions"] == ["2"]


@in_loop
async def test_what_does_not_load_in_a_triton_of_its_own_is_refused(tmp_path: Path) -> None:
    scene = await begun(tmp_path)
    with pytest.raises(Invalid, match="cannot be changed"):
        await loaded(scene, tmp_path, "m", 1, {"input": []})
    scene.quarantine.fails = TrialFailed("it did not load")
    with pytest.raises(TrialFailed):
        await loaded(scene, tmp_path, "m", 1, {})
    place = throw_away(scene, tmp_path, there=False)
    with pytest.raises(Invalid, match="no Triton for measurements") as caught:
        async with place.open(subjects(scene).find("m", 1), {}):
            pass
    assert "--replica" in caught.value.try_this


@in_loop
async def test_a_replica_that_cannot_be_lent_says_why(tmp_path: Path) -> None:
    scene = await begun(tmp_path)
    subject, fleet = subjects(scene).find("m", 1), scene.plane.fleet
    for loads, held, why in (
        (True, False, "it does not have version 1 of model 'm'"),
        (False, True, "this gateway does not load models there"),
    ):
        fleet.saw("a", {subject.name: (1,)} if held else {})
        with pytest.raises(Invalid, match="replica a cannot run measurements") as caught:
            async with drained(fleet, tmp_path, loads=loads).on("a").open(subject, {}):
                pass
        assert caught.value.why == why
    with pytest.raises(NotFound, match="there is no replica 'z'"):
        drained(fleet, tmp_path).on("z")


def drained(fleet: Fleet, folder: Path, *, loads: bool = True) -> Drained:
    lendings: Any = {"a": object()}
    notes = Notes(folder / "lent")
    return Drained(lendings.get, fleet, machine=lambda _: UNKNOWN, loads=lambda: loads, notes=notes)
