"""What versions wait for, and what people decide meanwhile: the last word counts."""

import asyncio
from pathlib import Path

import pytest
from control.publishing import ADA, Scene, files

from serve.control.models import By
from serve.control.observations import LoadFailure
from serve.control.publication.publications import PublicationRequest
from serve.core.errors import InUse, PreconditionFailed, VersionNotReady
from serve.core.routes import Route, Split

BOB = By("bob", "I decide")
BOTH = PublicationRequest(labels=("stable", "new"), live=True)
ALL_OF_1 = Split.of({1: 100})


def waits(scene: Scene, number: int = 1) -> tuple[tuple[str, ...], bool]:
    """The labels that a version of model m waits for, and whether the route waits for it."""
    version = scene.version("m", number)
    return version.labels, version.live


async def test_labels_and_the_route_wait_until_the_version_is_ready(
    scene: Scene, tmp_path: Path
) -> None:
    await scene.publish("m", files(), BOTH)
    await scene.pending.round()
    assert scene.set == []
    again = await Scene(tmp_path).begin()  # what waits survives a restart
    again.ready.add(("m", 1))
    for _ in range(2):
        await again.pending.round()
        assert again.set == ["ada: m:stable=1", "ada: m:new=1", "ada: m {1: 100}"]
        assert waits(again) == ((), False)


async def test_what_cannot_be_set_goes_on_waiting_and_says_why_once(scene: Scene) -> None:
    scene.ready.add(("m", 1))
    scene.refuses = VersionNotReady("m", 1, "it fell over")
    await scene.publish("m", files(), PublicationRequest(labels=("new",)))
    await scene.pending.round()
    waiting = scene.version()
    assert waiting.labels == ("new",) and "it fell over" in waiting.reason
    await scene.pending.round()
    assert scene.version().etag == waiting.etag
    scene.refuses = None
    await scene.pending.round()
    assert (scene.version().labels, scene.version().reason) == ((), "")


async def test_of_two_versions_that_wait_for_a_label_the_last_one_gets_it(scene: Scene) -> None:
    await scene.publish("m", files(b"one"), BOTH)
    await scene.publish("other", files(), BOTH)  # whose labels are others
    await scene.publish("m", files(b"two"), PublicationRequest(labels=("new",)))
    assert waits(scene) == (("stable",), True)
    await scene.push("m", files(b"one"), PublicationRequest(labels=("new",)), By("bob"))
    assert (waits(scene), waits(scene, 2)) == ((("stable", "new"), True), ((), False))
    await scene.publications.amend("m", 2, tags=None, labels=["stable"], by=ADA)
    assert waits(scene) == (("new",), True)
    assert scene.version("other").labels == ("stable", "new")


# --- what people decide meanwhile ----------------------------------------------------------------


async def become_ready(scene: Scene, *numbers: int) -> None:
    scene.plane.fleet.saw("a", {"m": numbers})
    await scene.plane.publisher.refresh()


async def two_of_which_one_is_ready(scene: Scene, ask: PublicationRequest) -> None:
    """Version 1 serves; version 2 was pushed with `ask`, and no replica holds it yet."""
    await scene.publish("m", files(b"one"))
    await become_ready(scene, 1)
    await scene.publish("m", files(b"two"), ask)


async def test_what_is_decided_later_is_not_undone_by_a_version_that_waited(scene: Scene) -> None:
    await two_of_which_one_is_ready(scene, PublicationRequest(labels=("new", "other"), live=True))
    await scene.plane.models.set_label("m", "new", 1, BOB)
    assert waits(scene, 2) == (("other",), True)
    await scene.plane.models.remove_label("m", "new", BOB)
    assert waits(scene, 2) == (("other",), True)
    await scene.plane.models.set_route("m", ALL_OF_1, BOB)
    assert waits(scene, 2) == (("other",), False)


async def test_what_waits_is_given_up_for_a_route_that_is_not_refused(scene: Scene) -> None:
    await two_of_which_one_is_ready(scene, PublicationRequest(live=True))
    with pytest.raises(PreconditionFailed):
        await scene.plane.models.set_route("m", ALL_OF_1, By("bob", if_match='"12345"'))
    with pytest.raises(VersionNotReady):
        await scene.plane.models.set_route("m", Split.of({2: 1}), BOB)
    assert scene.version("m", 2).live
    amend = scene.publications.amend("m", 2, tags={"a": "b"}, labels=None, by=ADA)
    await asyncio.gather(scene.plane.models.set_route("m", ALL_OF_1, BOB), amend)
    assert (scene.version("m", 2).live, dict(scene.version("m", 2).tags)) == (False, {"a": "b"})


async def test_of_a_retirement_and_a_route_or_label_at_once_the_first_is_made(
    tmp_path: Path,
) -> None:
    scene = await Scene(tmp_path, serving_now=True).begin()
    await two_of_which_one_is_ready(scene, PublicationRequest())
    await become_ready(scene, 1, 2)
    set_label = scene.plane.models.set_label("m", "new", 2, BOB)
    retire = scene.retention.retire("m", 2, ADA)
    _, refused = await asyncio.gather(set_label, retire, return_exceptions=True)
    assert isinstance(refused, InUse)
    assert scene.version("m", 2).is_published
    await scene.plane.models.remove_label("m", "new", BOB)
    retire = scene.retention.retire("m", 2, ADA)
    set_route = scene.plane.models.set_route("m", Split.of({2: 100}), BOB)
    _, refused_route = await asyncio.gather(retire, set_route, return_exceptions=True)
    assert isinstance(refused_route, VersionNotReady)
    assert scene.plane.decisions.route("m") == Route(ALL_OF_1)


# --- calls stay where they are, also where nobody has decided anything ----------------------------


async def test_a_first_version_that_is_ready_late_keeps_its_calls(tmp_path: Path) -> None:
    scene = await Scene(tmp_path, serving_now=True).begin()
    await scene.publish("m", files(b"one"))
    await scene.publish("m", files(b"two"))
    assert scene.plane.decisions.route("m") == Route(ALL_OF_1)
    await become_ready(scene, 2)
    assert scene.plane.publisher.snapshot.models["m"].route == Route(ALL_OF_1)


async def test_after_a_restart_calls_stay_before_any_replica_was_looked_at(tmp_path: Path) -> None:
    scene = await Scene(tmp_path, serving_now=True).begin()
    await scene.publish("m", files(b"one"))
    await become_ready(scene, 1)
    await scene.push("m", files(b"two"))
    again = Scene(tmp_path, serving_now=True)
    await again.plane.reload()
    await again.pipeline.round()
    assert again.plane.decisions.route("m") == Route(ALL_OF_1)


async def test_a_version_that_replicas_cannot_load_gives_way_to_the_next(tmp_path: Path) -> None:
    scene = await Scene(tmp_path, serving_now=True).begin()
    await scene.publish("m", files(b"one"))
    scene.plane.fleet.failures["a", "m"] = LoadFailure("it is broken", (), 1, 0.0)
    await scene.plane.publisher.refresh()
    await scene.publish("m", files(b"two"))
    assert scene.plane.decisions.route("m") is None
