"""The keeper of one replica: from what it holds to what is wanted, whatever happened to it."""

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from builders import CONFIG, ControlPlane, replica, until, write_model

from serve.control.models import By
from serve.control.observations import LoadFailure
from serve.control.reconciliation.loader import FIRST_RETRY, LAST_RETRY
from serve.control.reconciliation.reconciler import PER_SECOND, REPEATED, Looks, Resting
from serve.core.errors import TritonFailed, Unavailable

from .keeping import Scene, nothing

ONCE, TWICE = ["load m"], ["load m", "load m"]
BAD = TritonFailed("bad file")


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """Versions 1 and 2 of model m are in the folder."""
    scene = Scene(tmp_path)
    write_model(scene.repository)
    return scene


def configure(scene: Scene, more: str) -> None:
    (scene.repository / "m" / "config.pbtxt").write_text(CONFIG + more)


def take_away(scene: Scene, path: str) -> None:
    (scene.repository / path).rename(scene.repository / ".gone")


@pytest.mark.parametrize(
    ("change", "asked", "held"),
    [
        (lambda scene: None, ONCE, {1, 2}),  # what is there is not loaded again
        (lambda scene: (scene.repository / "m" / "3").mkdir(), TWICE, {1, 2, 3}),
        (lambda scene: configure(scene, "max_batch_size: 8\n"), TWICE, {1, 2}),
        (lambda scene: scene.triton.held.clear(), TWICE, {1, 2}),  # it was restarted
        (lambda scene: take_away(scene, "m/1"), TWICE, {2}),
        (lambda scene: take_away(scene, "m"), ["load m", "unload m"], set()),
    ],
    ids=["nothing", "a version", "a configuration", "a restart", "one fewer", "no model"],
)
def test_what_is_lacking_is_loaded_and_what_has_gone_is_dropped_and_that_is_published(
    scene: Scene, change: Callable[[Scene], None], asked: list[str], held: set[int]
) -> None:
    assert scene.play() == ONCE
    assert scene.play(lambda: change(scene), nothing, nothing) == asked
    assert scene.triton.held == ({"m": held} if held else {})
    published = scene.plane.publisher.snapshot.models
    assert {name: set(view.targets) for name, view in published.items()} == scene.triton.held


def test_nothing_goes_before_the_whole_fleet_was_looked_at(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "b")  # of which nothing is known yet
    write_model(scene.repository, "m", 2)
    scene.triton.held["m"] = {1, 2}
    scene.play(nothing)
    assert scene.triton.held == {"m": {1, 2}}
    scene.play(lambda: scene.fleet.lost("b", "refused"))
    assert scene.triton.held == {"m": {2}}


async def test_nothing_goes_while_a_worker_may_still_call_it(scene: Scene) -> None:
    publisher = scene.plane.publisher
    await scene.round()
    await publisher.poll("worker-0", publisher.snapshot.generation, 0)
    take_away(scene, "m")
    await publisher.close()  # nobody waits any longer for the worker to follow
    await scene.round()
    assert publisher.snapshot.models == {}
    assert scene.triton.held == {"m": {1, 2}}


def test_models_that_the_repository_never_had_are_left_alone(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.triton.held["foreign"] = {1}
    assert scene.play(nothing) == []


async def test_the_keeper_works_by_itself_and_closes_its_connection(scene: Scene) -> None:
    await scene.plane.inventory.scan()
    running = asyncio.create_task(scene.keeper.run())
    await until(lambda: bool(scene.triton.held))
    running.cancel()
    await asyncio.wait([running])
    assert (scene.triton.held, scene.triton.closed) == ({"m": {1, 2}}, True)


# --- loads that fail -----------------------------------------------------------------------------


def test_a_load_that_failed_is_tried_again_only_after_its_pause(scene: Scene) -> None:
    scene.triton.broken["m"] = BAD

    def wait(seconds: float) -> Callable[[], None]:
        return lambda: setattr(scene.plane.clock, "now", scene.plane.clock.now + seconds)

    asked = scene.play(nothing, wait(FIRST_RETRY - 0.1), nothing)
    assert (len(asked), scene.fleet.failures["a", "m"].reason) == (1, "bad file")
    assert len(scene.play(wait(0.1), wait(FIRST_RETRY))) == 2
    assert len(scene.play(wait(FIRST_RETRY))) == 3


async def test_the_pause_doubles_up_to_its_longest_and_stays_there_for_weeks(scene: Scene) -> None:
    scene.triton.broken["m"] = BAD
    clock, pauses = scene.plane.clock, list[float]()
    await scene.round()
    for _ in range(1100):
        await scene.keeper.reconcile()
        pauses.append(scene.fleet.failures["a", "m"].retry_at - clock.now)
        clock.now = scene.fleet.failures["a", "m"].retry_at
    assert pauses[:6] == [10.0, 20.0, 40.0, 80.0, 160.0, LAST_RETRY]
    assert pauses[-1] == LAST_RETRY


def test_a_load_that_failed_is_published_and_tried_at_once_when_the_folder_changes(
    scene: Scene,
) -> None:
    seen = list[bool]()

    def damage() -> None:
        configure(scene, "max_batch_size: 8\n")
        scene.triton.broken["m"] = BAD

    def repair() -> None:
        seen.append(scene.plane.publisher.snapshot.models["m"].failed)
        (scene.repository / "m" / "1" / "model.onnx").write_bytes(b"a better model")
        scene.triton.broken.clear()

    assert scene.play(damage, repair) == ["load m"] * 3
    assert (seen, scene.plane.publisher.snapshot.models["m"].failed) == ([True], False)
    assert scene.fleet.failures == {}


def test_a_model_that_fails_does_not_keep_the_others_from_loading(scene: Scene) -> None:
    write_model(scene.repository, "bad")
    scene.triton.broken["bad"] = BAD
    scene.play()
    assert scene.triton.held == {"m": {1, 2}}


def test_a_failure_is_forgotten_when_what_failed_is_no_longer_wanted(scene: Scene) -> None:
    broken = scene.repository / "m" / "3"

    def add_a_broken_version() -> None:
        broken.mkdir()
        scene.triton.broken["m"] = BAD

    scene.play(add_a_broken_version, broken.rmdir)
    assert scene.triton.held == {"m": {1, 2}}
    assert scene.fleet.failures == {}


# --- replicas that are lost, and Tritons of others -----------------------------------------------


def test_a_replica_that_manages_itself_is_asked_once_and_then_left_alone(scene: Scene) -> None:
    write_model(scene.repository, "x")
    scene.triton.is_explicit = False
    assert scene.play(nothing, nothing) == ["load m"]
    assert scene.fleet.observations["a"].self_managed


def test_a_replica_that_answers_but_cannot_list_its_models_keeps_them(scene: Scene) -> None:
    scene.play(lambda: setattr(scene.triton, "cannot_list", TritonFailed("no such folder")))
    assert scene.fleet.observations["a"].is_up
    assert scene.fleet.observations["a"].held == {"m": (1, 2)}


def test_what_was_held_when_control_started_is_loaded_only_once_its_configuration_is_edited(
    scene: Scene,
) -> None:
    scene.triton.held["m"] = {1, 2}  # loaded by an earlier control plane
    assert (scene.play(nothing), set(scene.targets())) == ([], {1, 2})
    assert scene.play(lambda: configure(scene, "max_batch_size: 8\n")) == ["load m"]


def test_a_replica_that_is_lost_is_asked_for_nothing_until_it_is_back(scene: Scene) -> None:
    scene.triton.is_up = False
    assert scene.play(nothing) == []
    assert scene.fleet.observations["a"].why == "connection refused"
    assert scene.play(lambda: setattr(scene.triton, "is_up", True)) == ["load m"]


def test_a_replica_that_is_lost_during_a_round_ends_the_round(scene: Scene) -> None:
    write_model(scene.repository, "a")
    scene.triton.broken["a"] = Unavailable("loading failed")
    assert scene.play() == ["load a"]
    assert scene.fleet.failures == {}


@pytest.mark.parametrize("error", [TritonFailed("no"), Unavailable("is not at ready state")])
def test_without_a_repository_nothing_is_loaded_and_what_is_held_is_served_as_it_is_configured(
    tmp_path: Path, error: Exception
) -> None:
    scene = Scene(tmp_path, discovering=True)
    scene.triton.held["m"] = {3}
    scene.triton.configs["m"] = 'backend: "x" sequence_batching { }'
    scene.triton.broken["m"] = error  # its configuration cannot be read, for a while
    seen = list[bool]()

    def repair() -> None:
        seen.append(scene.fleet.observations["a"].is_up)
        scene.triton.broken.clear()

    assert scene.play(repair) == []
    served = scene.plane.publisher.snapshot.models["m"]
    assert (seen, set(served.targets), served.sequences) == ([True], {3}, True)


# --- rounds that are left out, until anything has changed -----------------------------------------

HELD = {"m": (1, 2)}
Change = Callable[[ControlPlane], object]


async def another_model(plane: ControlPlane) -> None:
    write_model(plane.repository, "n")
    await plane.inventory.scan()


async def a_model_less(plane: ControlPlane) -> None:
    shutil.rmtree(plane.repository / "m")
    await plane.inventory.scan()


async def another_pool(plane: ControlPlane) -> None:
    plane.fleet.join(replica("c", pool="a100"))
    await plane.models.configure("m", objective=None, pool="a100", by=By("tests"))


IDLE: dict[str, Change] = {
    "nothing": lambda plane: plane.inventory.scan(settled=True),
    "seen again": lambda plane: plane.fleet.saw("a", dict(HELD)),
    "another is lost": lambda plane: plane.fleet.lost("b", "refused"),
    "a label": lambda plane: plane.models.set_label("m", "stable", 1, By("tests")),
}
BUSY: dict[str, Change] = {
    "lost": lambda plane: plane.fleet.lost("a", "refused"),
    "holds less": lambda plane: plane.fleet.saw("a", {"m": (1,)}),
    "answers wrongly": lambda plane: plane.fleet.bar("a", "m", [1], "wrong"),
    "joins": lambda plane: plane.fleet.joining.add("a"),
    "another model": another_model,
    "a model less": a_model_less,
    "another pool": another_pool,
    "half a minute": lambda plane: setattr(plane.clock, "now", plane.clock.now + REPEATED),
}


async def resting_on_a(plane: ControlPlane) -> Callable[[], bool]:
    """Replicas a and b hold everything; gives whether a rests, from now on."""
    write_model(plane.repository, "m")
    await plane.begin(a=HELD, b=HELD)
    resting = Resting("a", plane.fleet, plane.inventory, clock=plane.clock)
    resting.begin()
    return lambda: resting.holds(plane.fleet.observations["a"])


@pytest.mark.parametrize("change", IDLE | BUSY)
async def test_a_replica_that_has_everything_rests_until_anything_has_changed_for_it(
    tmp_path: Path, change: str
) -> None:
    plane = ControlPlane(tmp_path)
    rests = await resting_on_a(plane)
    assert rests()
    done = (IDLE | BUSY)[change](plane)
    if isinstance(done, Awaitable):
        await done
    assert rests() is (change in IDLE)


async def test_a_replica_with_something_to_do_does_not_rest(tmp_path: Path) -> None:
    plane = ControlPlane(tmp_path)
    await resting_on_a(plane)
    resting = Resting("a", plane.fleet, plane.inventory, clock=plane.clock)
    resting.begin()
    assert repr(resting) == "<Resting a yes>"
    resting.end()
    assert not resting.holds(plane.fleet.observations["a"])
    plane.fleet.failures["a", "m"] = LoadFailure("bad file", (), 1, 0.0)
    resting.begin()
    assert not resting.holds(plane.fleet.observations["a"])
    plane.fleet.failures.clear()
    await another_pool(plane)  # it waits until no calls come there any more
    resting.begin()
    assert not resting.holds(plane.fleet.observations["a"])


def test_a_large_fleet_is_looked_at_in_turn() -> None:
    for replicas, tick, pause, rounds in (
        (0, 0.5, 0.5, 1.0),
        (1, 0.5, 0.5, 1.0),
        (PER_SECOND // 2, 0.5, 0.5, 1.0),
        (PER_SECOND, 0.5, 1.0, 2.0),
        (10 * PER_SECOND, 0.5, 10.0, 5.0),
        (5000, 60.0, 60.0, 120.0),  # rounds are no closer than looks that were asked for
    ):
        looks = Looks(lambda count=replicas: int(count), tick=tick)  # type: ignore[misc]
        assert (looks.pause, looks.rounds) == (pause, rounds), replicas
