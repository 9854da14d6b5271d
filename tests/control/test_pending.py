"""Labels and routes that wait for a version: set when it is ready, the last ask counts."""

from pathlib import Path

from control.publishing import ADA, Scene, files, play

from serve.control.models import By
from serve.control.publishing.publications import Ask
from serve.core.errors import VersionNotReady

BOTH = Ask(labels=("stable", "new"), live=True)


def test_labels_and_the_route_wait_until_the_version_is_ready(tmp_path: Path) -> None:
    scene = Scene(tmp_path)

    async def run() -> None:
        await scene.publish("m", files(), BOTH)
        await scene.pending.round()
        assert scene.set == []
        scene.ready.add(("m", 1))
        await scene.pending.round()
        assert scene.set == ["ada: m:stable=1", "ada: m:new=1", "ada: m {1: 100}"]
        assert (scene.version().labels, scene.version().live) == ((), False)
        await scene.pending.round()
        assert len(scene.set) == 3

    play(scene, run)


def test_what_waits_survives_a_restart(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    play(scene, lambda: scene.publish("m", files(), BOTH))
    again = Scene(tmp_path)
    again.ready.add(("m", 1))
    play(again, again.pending.round)
    assert len(again.set) == 3


def test_what_cannot_be_set_goes_on_waiting_and_says_why_once(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.ready.add(("m", 1))
    scene.refuses = VersionNotReady("m", 1, "it fell over")

    async def run() -> None:
        await scene.publish("m", files(), Ask(labels=("new",)))
        await scene.pending.round()
        waiting = scene.version()
        assert waiting.labels == ("new",) and "it fell over" in waiting.reason
        await scene.pending.round()
        assert scene.version().etag == waiting.etag
        scene.refuses = None
        await scene.pending.round()
        assert (scene.version().labels, scene.version().reason) == ((), "")

    play(scene, run)


def test_of_two_versions_that_wait_for_a_label_the_last_asked_for_gets_it(tmp_path: Path) -> None:
    scene = Scene(tmp_path)

    async def run() -> None:
        await scene.publish("m", files(b"one"), BOTH)
        await scene.publish("m", files(b"two"), Ask(labels=("new",)))
        assert (scene.version("m", 1).labels, scene.version("m", 1).live) == (("stable",), True)
        await scene.push("m", files(b"one"), Ask(labels=("new",)), By("bob"))
        assert scene.version("m", 1).labels == ("stable", "new")
        assert scene.version("m", 2).labels == ()
        await scene.publications.amend("m", 2, tags=None, labels=["stable"], by=ADA)
        assert scene.version("m", 1).labels == ("new",)

    play(scene, run)


def test_a_label_of_another_model_is_another_label(tmp_path: Path) -> None:
    scene = Scene(tmp_path)

    async def run() -> None:
        await scene.publish("m", files(), BOTH)
        await scene.publish("n", files(), BOTH)
        assert scene.version("m").labels == scene.version("n").labels == ("stable", "new")

    play(scene, run)
