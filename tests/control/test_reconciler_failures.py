"""The keeper of one replica: loads that fail, replicas that are lost, and Tritons of others."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from builders import CONFIG, write_model

from serve.control.reconciliation.loader import FIRST_RETRY, LAST_RETRY
from serve.core.errors import TritonFailed, Unavailable

from .keeping import Scene, nothing


def test_a_load_that_failed_is_tried_again_only_after_its_pause(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    write_model(scene.repository)
    scene.triton.broken["m"] = TritonFailed("bad file")

    def wait(seconds: float) -> Callable[[], None]:
        return lambda: setattr(scene.plane.clock, "now", scene.plane.clock.now + seconds)

    asked = scene.play(nothing, wait(FIRST_RETRY - 0.1), nothing)
    assert (len(asked), scene.fleet.failures["a", "m"].reason) == (1, "bad file")
    assert len(scene.play(wait(0.1), wait(FIRST_RETRY))) == 2
    assert len(scene.play(wait(FIRST_RETRY))) == 3


def test_the_pause_doubles_up_to_its_longest_and_stays_there_for_weeks(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    write_model(scene.repository)
    scene.triton.broken["m"] = TritonFailed("bad file")
    clock, pauses = scene.plane.clock, list[float]()

    async def weeks() -> None:
        await scene.round()
        for _ in range(1100):
            await scene.keeper.reconcile()
            pauses.append(scene.fleet.failures["a", "m"].retry_at - clock.now)
            clock.now = scene.fleet.failures["a", "m"].retry_at

    asyncio.run(weeks())
    assert pauses[:6] == [10.0, 20.0, 40.0, 80.0, 160.0, LAST_RETRY]
    assert pauses[-1] == LAST_RETRY


def test_a_load_that_failed_is_tried_at_once_when_the_folder_changes(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    folder = write_model(scene.repository)
    scene.triton.broken["m"] = TritonFailed("bad file")

    def repair() -> None:
        scene.triton.broken.clear()
        (folder / "1" / "model.onnx").write_bytes(b"a better model")

    assert scene.play(repair) == ["load m", "load m"]
    assert scene.fleet.failures == {}


def test_whether_a_model_has_failed_is_published_and_so_is_its_repair(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    folder = write_model(scene.repository)
    seen = list[bool]()

    def damage() -> None:
        (folder / "config.pbtxt").write_text(CONFIG + "max_batch_size: 8\n")
        scene.triton.broken["m"] = TritonFailed("max_batch_size cannot be 8")

    def repair() -> None:
        seen.append(scene.plane.publisher.snapshot.models["m"].failed)
        (folder / "config.pbtxt").write_text(CONFIG + "max_batch_size: 4\n")
        scene.triton.broken.clear()

    scene.play(damage, repair)
    assert (seen, scene.plane.publisher.snapshot.models["m"].failed) == ([True], False)


def test_a_model_that_fails_does_not_keep_the_others_from_loading(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    write_model(scene.repository, "bad")
    write_model(scene.repository, "good")
    scene.triton.broken["bad"] = TritonFailed("bad file")
    scene.play()
    assert scene.triton.held == {"good": {1, 2}}


def test_a_failure_is_forgotten_when_what_failed_is_no_longer_wanted(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    folder = write_model(scene.repository, "m", 1)

    def add_a_broken_version() -> None:
        (folder / "2").mkdir()
        scene.triton.broken["m"] = TritonFailed("bad file")

    scene.play(add_a_broken_version, (lambda: (folder / "2").rmdir()))
    assert scene.triton.held == {"m": {1}}
    assert scene.fleet.failures == {}


def test_a_replica_that_manages_itself_is_asked_once_and_then_left_alone(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    write_model(scene.repository, "m")
    write_model(scene.repository, "x")
    scene.triton.is_explicit = False
    assert scene.play(nothing, nothing) == ["load m"]
    assert scene.fleet.observations["a"].self_managed


def test_a_replica_that_answers_but_cannot_list_its_models_keeps_them(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    write_model(scene.repository)
    scene.play(lambda: setattr(scene.triton, "cannot_list", TritonFailed("no such folder")))
    assert scene.fleet.observations["a"].is_up
    assert scene.fleet.observations["a"].held == {"m": (1, 2)}


def test_a_configuration_edited_after_a_restart_of_control_is_loaded(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    folder = write_model(scene.repository)
    scene.triton.held["m"] = {1, 2}  # loaded by an earlier control plane

    def edit() -> None:
        (folder / "config.pbtxt").write_text(CONFIG + "max_batch_size: 8\n")

    assert scene.play(nothing, edit) == ["load m"]


def test_a_replica_that_is_lost_is_asked_for_nothing_until_it_is_back(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    write_model(scene.repository)
    scene.triton.is_up = False
    assert scene.play(nothing) == []
    assert scene.fleet.observations["a"].why == "connection refused"
    assert scene.play(lambda: setattr(scene.triton, "is_up", True)) == ["load m"]


def test_a_replica_that_is_lost_during_a_round_ends_the_round(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    for name in ("a", "b"):
        write_model(scene.repository, name)
    scene.triton.broken["a"] = Unavailable("loading failed")
    assert scene.play() == ["load a"]
    assert scene.fleet.failures == {}


def test_without_a_repository_nothing_is_loaded_and_what_is_held_is_served(tmp_path: Path) -> None:
    scene = Scene(tmp_path, discovering=True)
    scene.triton.held["m"] = {3}
    scene.triton.configs["m"] = 'backend: "x" sequence_batching { }'
    assert scene.play() == []
    served = scene.plane.publisher.snapshot.models["m"]
    assert (set(served.targets), served.sequences) == ({3}, True)


def test_a_configuration_that_was_learned_late_is_published(tmp_path: Path) -> None:
    scene = Scene(tmp_path, discovering=True)
    scene.triton.held["m"] = {3}
    scene.triton.configs["m"] = 'backend: "x" sequence_batching { }'
    scene.triton.broken["m"] = TritonFailed("not now")
    scene.play(scene.triton.broken.clear)
    assert scene.plane.publisher.snapshot.models["m"].sequences


@pytest.mark.parametrize("error", [TritonFailed("no"), Unavailable("is not at ready state")])
def test_a_replica_that_answers_is_not_lost_over_one_configuration(
    tmp_path: Path, error: Exception
) -> None:
    scene = Scene(tmp_path, discovering=True)
    scene.triton.held["m"] = {3}
    scene.triton.broken["m"] = error
    scene.play()
    assert scene.fleet.observations["a"].is_up
