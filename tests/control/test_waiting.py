"""What versions wait for, and what people decide meanwhile: the later word counts."""

import asyncio
from pathlib import Path

import pytest
from control.publishing import ADA, Scene, files, play

from serve.control.models import By
from serve.control.observations import Failure
from serve.control.publishing.publications import Ask
from serve.core.errors import InUse, PreconditionFailed, VersionNotReady
from serve.core.routes import Split

BOB = By("bob", "I decide")
ALL_OF_1 = Split.of({1: 100})


async def two_of_which_one_is_ready(scene: Scene, ask: Ask) -> None:
    """Version 1 serves; version 2 was pushed with `ask`, and no replica holds it yet."""
    await scene.publish("m", files(b"one"))
    await become_ready(scene, 1)
    await scene.publish("m", files(b"two"), ask)


async def become_ready(scene: Scene, *numbers: int) -> None:
    scene.plane.fleet.saw("a", {"m": numbers})
    await scene.plane.publisher.refresh()


def test_a_route_that_is_set_later_is_not_undone_by_a_version_that_was_to_be_live(
    tmp_path: Path,
) -> None:
    scene = Scene(tmp_path)

    async def run() -> None:
        await two_of_which_one_is_ready(scene, Ask(labels=("new",), live=True))
        await scene.plane.models.set_route("m", ALL_OF_1, BOB)
        assert (scene.version("m", 2).live, scene.version("m", 2).labels) == (False, ("new",))

    play(scene, run)


def test_a_label_that_is_set_later_is_not_moved_by_a_version_that_waited_for_it(
    tmp_path: Path,
) -> None:
    scene = Scene(tmp_path)

    async def run() -> None:
        await two_of_which_one_is_ready(scene, Ask(labels=("new", "other"), live=True))
        await scene.plane.models.set_label("m", "new", 1, BOB)
        assert (scene.version("m", 2).live, scene.version("m", 2).labels) == (True, ("other",))
        await scene.plane.models.remove_label("m", "new", BOB)
        assert scene.version("m", 2).labels == ("other",)

    play(scene, run)


def test_a_route_that_is_refused_leaves_what_waits_alone(tmp_path: Path) -> None:
    scene = Scene(tmp_path)

    async def run() -> None:
        await two_of_which_one_is_ready(scene, Ask(live=True))
        with pytest.raises(PreconditionFailed):
            await scene.plane.models.set_route("m", ALL_OF_1, By("bob", if_match='"12345"'))
        with pytest.raises(VersionNotReady):
            await scene.plane.models.set_route("m", Split.of({2: 1}), BOB)
        assert scene.version("m", 2).live

    play(scene, run)


def test_what_waits_is_given_up_even_if_the_record_changes_at_the_same_moment(
    tmp_path: Path,
) -> None:
    scene = Scene(tmp_path)

    async def run() -> None:
        await two_of_which_one_is_ready(scene, Ask(live=True))
        amend = scene.publications.amend("m", 2, tags={"a": "b"}, labels=None, by=ADA)
        await asyncio.gather(scene.plane.models.set_route("m", ALL_OF_1, BOB), amend)
        assert (scene.version("m", 2).live, dict(scene.version("m", 2).tags)) == (False, {"a": "b"})

    play(scene, run)


def test_a_version_is_not_retired_while_a_label_is_just_being_set_to_it(tmp_path: Path) -> None:
    scene = Scene(tmp_path)

    async def run() -> None:
        await two_of_which_one_is_ready(scene, Ask())
        await become_ready(scene, 1, 2)
        set_label = scene.plane.models.set_label("m", "new", 2, BOB)
        retire = scene.retention.retire("m", 2, ADA)
        outcome = await asyncio.gather(set_label, retire, return_exceptions=True)
        assert isinstance(outcome[1], InUse)
        assert scene.version("m", 2).is_published

    play(scene, run)


def test_a_label_is_not_set_to_a_version_that_is_just_being_retired(tmp_path: Path) -> None:
    scene = Scene(tmp_path, serving_now=True)

    async def run() -> None:
        await two_of_which_one_is_ready(scene, Ask())
        await become_ready(scene, 1, 2)
        retire = scene.retention.retire("m", 2, ADA)
        set_route = scene.plane.models.set_route("m", Split.of({2: 100}), BOB)
        outcome = await asyncio.gather(retire, set_route, return_exceptions=True)
        assert isinstance(outcome[1], VersionNotReady)
        assert scene.plane.decisions.split("m") == ALL_OF_1

    play(scene, run)


# --- calls stay where they are, also where nobody has decided anything ----------------------------


def test_the_first_version_keeps_its_calls_although_it_is_not_ready_before_the_second_is_published(
    tmp_path: Path,
) -> None:
    scene = Scene(tmp_path, serving_now=True)

    async def run() -> None:
        await scene.publish("m", files(b"one"))
        await scene.publish("m", files(b"two"))
        assert scene.plane.decisions.split("m") == ALL_OF_1
        await become_ready(scene, 2)
        assert scene.plane.publisher.snapshot.models["m"].split == ALL_OF_1

    play(scene, run)


def test_after_a_restart_calls_stay_although_no_replica_has_been_looked_at_yet(
    tmp_path: Path,
) -> None:
    scene = Scene(tmp_path, serving_now=True)

    async def run() -> None:
        await scene.publish("m", files(b"one"))
        await become_ready(scene, 1)
        await scene.push("m", files(b"two"))

    play(scene, run)
    again = Scene(tmp_path, serving_now=True)

    async def resume() -> None:
        await again.plane.reload()
        await again.pipeline.round()
        assert again.plane.decisions.split("m") == ALL_OF_1

    asyncio.run(resume())


def test_a_version_that_replicas_cannot_load_gives_way_to_the_next(tmp_path: Path) -> None:
    scene = Scene(tmp_path, serving_now=True)

    async def run() -> None:
        await scene.publish("m", files(b"one"))
        scene.plane.fleet.failures["a", "m"] = Failure("it is broken", (), 1, 0.0)
        await scene.plane.publisher.refresh()
        await scene.publish("m", files(b"two"))
        assert scene.plane.decisions.split("m") is None

    play(scene, run)
