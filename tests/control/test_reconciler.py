"""The keeper of one replica: from what it holds to what is wanted, whatever happened to it."""

import asyncio
from pathlib import Path

from builders import CONFIG, until, write_model

from .keeping import Scene, nothing


def test_what_is_lacking_is_loaded_and_published(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    write_model(scene.repository, "m", 1, 2)
    assert scene.play() == ["load m"]
    assert scene.triton.held == {"m": {1, 2}}
    assert set(scene.plane.publisher.snapshot.models["m"].targets) == {1, 2}


def test_what_is_there_is_not_loaded_again(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    write_model(scene.repository)
    assert scene.play(nothing, nothing) == ["load m"]


def test_a_new_version_folder_is_loaded(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    folder = write_model(scene.repository, "m", 1)
    scene.play((folder / "2").mkdir)
    assert scene.triton.held == {"m": {1, 2}}


def test_a_changed_configuration_is_loaded(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    folder = write_model(scene.repository)
    changed = CONFIG + "max_batch_size: 8\n"
    asked = scene.play(lambda: (folder / "config.pbtxt").write_text(changed), nothing)
    assert asked == ["load m", "load m"]


def test_a_replica_that_was_restarted_empty_is_filled_again(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    write_model(scene.repository)
    assert scene.play(scene.triton.held.clear) == ["load m", "load m"]
    assert scene.triton.held == {"m": {1, 2}}


def test_a_version_whose_folder_has_gone_is_dropped(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    folder = write_model(scene.repository)
    scene.play(lambda: (folder / "1").rename(scene.repository / ".1"))
    assert scene.triton.held == {"m": {2}}


def test_a_model_whose_folder_has_gone_is_unloaded_and_no_longer_routed(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    folder = write_model(scene.repository)
    scene.play(lambda: folder.rename(scene.repository / ".m"))
    assert scene.triton.held == {}
    assert scene.plane.publisher.snapshot.models == {}


def test_nothing_goes_before_the_whole_fleet_was_looked_at(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "b")  # of which nothing is known yet
    write_model(scene.repository, "m", 2)
    scene.triton.held["m"] = {1, 2}
    scene.play(nothing)
    assert scene.triton.held == {"m": {1, 2}}
    scene.play(lambda: scene.fleet.lost("b", "refused"))
    assert scene.triton.held == {"m": {2}}


async def test_nothing_goes_while_a_worker_may_still_call_it(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    folder = write_model(scene.repository)
    publisher = scene.plane.publisher
    await scene.round()
    await publisher.poll("worker-0", publisher.snapshot.generation, 0)
    folder.rename(scene.repository / ".m")
    await publisher.close()  # nobody waits any longer for the worker to follow
    await scene.round()
    assert publisher.snapshot.models == {}
    assert scene.triton.held == {"m": {1, 2}}


def test_models_that_the_repository_never_had_are_left_alone(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.triton.held["foreign"] = {1}
    assert scene.play(nothing) == []


async def test_the_keeper_works_by_itself_and_closes_its_connection(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    write_model(scene.repository)
    await scene.plane.inventory.scan()
    running = asyncio.create_task(scene.keeper.run())
    await until(lambda: bool(scene.triton.held))
    running.cancel()
    await asyncio.wait([running])
    assert (scene.triton.held, scene.triton.closed) == ({"m": {1, 2}}, True)
