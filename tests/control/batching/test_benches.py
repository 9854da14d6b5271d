"""Benches: one at a time, changed while they go on, and gone when nobody asks for them."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from builders import Clock, replica, until, write_model
from control.publishing import Scene as Publishing
from control.publishing import ensemble, files

from serve.control.batching.bench_places import Drained, Notes, OpenBench, ThrowAway
from serve.control.batching.bench_subjects import Subjects
from serve.control.batching.benches import Benches, BenchView
from serve.control.publication.ensembles import PinnableVersions
from serve.core.errors import Conflict, Invalid, NotFound, TrialFailed
from serve.core.flavours import UNKNOWN

FIELDS = {"max_batch_size": 4}


class Subject:
    model, number, name = "m", 1, "m.1"


class FakeSubjects:
    def find(self, model: str, number: int) -> Subject:
        if model != "m":
            raise Invalid("it has no configuration")
        return Subject()


class Place:
    """Loads what it is told, but not what `refuses` names; ends when `over` says why."""

    def __init__(self) -> None:
        self.loaded: list[Mapping[str, Any]] = []
        self.refuses: list[Mapping[str, Any]] = []
        self.over: asyncio.Future[str] | None = None
        self.is_open = False

    @contextlib.asynccontextmanager
    async def open(self, subject: Subject, fields: Mapping[str, Any]) -> AsyncIterator[OpenBench]:
        await self.load(fields)
        self.over = asyncio.get_running_loop().create_future()
        self.is_open = True
        try:
            yield OpenBench(replica("bench"), self.load, self._wait)
        finally:
            self.is_open = False

    async def load(self, fields: Mapping[str, Any]) -> None:
        if fields in self.refuses:
            raise TrialFailed("it did not load", why="no memory")
        self.loaded.append(fields)

    async def _wait(self) -> str:
        assert self.over is not None
        return await asyncio.shield(self.over)


class FakeDrained:
    def __init__(self, place: Place) -> None:
        self.place = place
        self.reclaimed = 0

    async def reclaim(self) -> None:
        self.reclaimed += 1

    def on(self, name: str) -> Place:
        return self.place


class Scene:
    watching: asyncio.Task[None]

    def __init__(self) -> None:
        self.clock = Clock()
        self.place, self.spared = Place(), Place()
        self.drained = FakeDrained(self.spared)
        self.benches = Benches(
            FakeSubjects(),  # type: ignore[arg-type]
            self.place,  # type: ignore[arg-type]
            self.drained,  # type: ignore[arg-type]
            clock=self.clock,
            kept=0.2,
        )

    async def open(self, name: str = "") -> BenchView:
        return await self.benches.open("m", 1, FIELDS, name)

    async def end(self) -> None:
        """Its control plane ends."""
        self.watching.cancel()
        await asyncio.gather(self.watching, return_exceptions=True)


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    """A scene whose benches are watched, until its control plane ends."""
    scene = Scene()
    scene.watching = asyncio.create_task(scene.benches.run())
    yield scene
    await scene.end()


async def test_a_bench_says_where_it_is_and_is_gone_when_it_was_closed(scene: Scene) -> None:
    view = await scene.open()
    assert (view.name, view.version, view.fields, view.replica) == ("m.1", 1, FIELDS, "")
    assert view.grpc == f"{replica('bench').host}:{replica('bench').grpc_port}"
    assert scene.place.is_open
    await scene.benches.close(view.id)
    assert not scene.place.is_open
    with pytest.raises(NotFound, match="it was closed"):
        scene.benches.keep(view.id)
    await scene.end()
    assert scene.drained.reclaimed == 1


async def test_there_is_one_at_a_time_and_the_end_of_a_control_plane_closes_it(
    scene: Scene,
) -> None:
    view = await scene.open()
    with pytest.raises(Conflict, match="another bench is open"):
        await scene.open()
    await scene.benches.close(view.id)
    await scene.open("a")
    assert scene.spared.is_open
    await scene.end()
    assert not scene.spared.is_open


async def test_other_fields_are_loaded_and_those_before_again_when_they_fail(scene: Scene) -> None:
    scene.place.refuses = [{"max_batch_size": 64}]
    view = await scene.open()
    changed = await scene.benches.change(view.id, {"max_batch_size": 8})
    assert changed.fields == {"max_batch_size": 8}
    with pytest.raises(TrialFailed, match="no memory"):
        await scene.benches.change(view.id, {"max_batch_size": 64})
    assert scene.benches.keep(view.id).fields == {"max_batch_size": 8}
    assert scene.place.loaded == [FIELDS, {"max_batch_size": 8}, {"max_batch_size": 8}]


async def test_a_bench_in_which_nothing_loads_any_more_ends(scene: Scene) -> None:
    view = await scene.open()
    scene.place.refuses = [FIELDS, {}]
    with pytest.raises(TrialFailed, match="no memory"):
        await scene.benches.change(view.id, {})
    with pytest.raises(NotFound, match="it did not load"):
        await scene.benches.change(view.id, {})


async def test_a_bench_that_does_not_open_says_why_and_makes_room_for_the_next(
    scene: Scene,
) -> None:
    with pytest.raises(Invalid, match="no configuration"):
        await scene.benches.open("other", 1, {})
    scene.place.refuses = [FIELDS]
    with pytest.raises(TrialFailed, match="no memory"):
        await scene.open()
    assert scene.place.loaded == []
    scene.place.refuses = []
    await scene.open()


async def test_a_bench_whose_triton_dies_ends_with_the_reason(scene: Scene) -> None:
    view = await scene.open()
    assert scene.place.over is not None
    scene.place.over.set_result("its Triton died")
    await until(lambda: not scene.place.is_open)
    with pytest.raises(NotFound, match="its Triton died"):
        scene.benches.keep(view.id)


async def test_a_bench_that_nobody_asks_for_is_closed(scene: Scene) -> None:
    view = await scene.open()
    scene.clock.now += 0.19
    assert scene.benches.keep(view.id).expires_in == pytest.approx(0.2)
    scene.clock.now += 0.3
    await until(lambda: not scene.place.is_open)
    with pytest.raises(NotFound, match="no client used it"):
        scene.benches.keep(view.id)


def test_notes_outlive_a_control_plane(tmp_path: Path) -> None:
    notes = Notes(tmp_path / "benches" / "lent")
    assert notes.read() == ()
    notes.add("a", "m")
    notes.add("b", "n")
    assert Notes(tmp_path / "benches" / "lent").read() == (("a", "m"), ("b", "n"))
    notes.clear()
    assert notes.read() == ()


# --- places: what is loaded there, and what they refuse -------------------------------------------

BATCHES = {"dynamic_batching": {"max_queue_delay_microseconds": 500}}


def subjects(scene: Publishing) -> Subjects:
    plane = scene.plane
    parts = PinnableVersions(
        lambda: plane.decisions, lambda: plane.inventory.loadables, lambda _: None
    )
    return Subjects(plane.models, plane.inventory, parts)


@pytest.fixture
async def published(tmp_path: Path) -> Publishing:
    """A control plane with a plain model, a published one, and an ensemble of that."""
    scene = Publishing(tmp_path)
    write_model(scene.plane.repository, "plain")
    await scene.begin()
    await scene.publish("m", files())
    await scene.publish("e", ensemble("m"))
    return scene


async def loaded(
    scene: Publishing, model: str, fields: Mapping[str, Any], *, number: int = 1, there: bool = True
) -> dict[str, Any]:
    """The configurations that a throw-away Triton was given, by name, in order."""
    scene.quarantine.orders.clear()
    place = ThrowAway(
        scene.quarantine if there else None,  # type: ignore[arg-type]
        scene.storage,
        folder=scene.plane.repository.parent / "benches",
        plain=scene.plane.repository,
        machine=UNKNOWN,
    )
    async with place.open(subjects(scene).find(model, number), fields) as opened:
        assert opened.replica.name == "quarantine"
    (orders,) = scene.quarantine.orders
    return {order.name: json.loads(order.config_json) for order in orders}


async def test_a_version_is_loaded_with_other_fields_and_its_own_files(
    published: Publishing,
) -> None:
    (config,) = (await loaded(published, "m", BATCHES)).values()
    assert config["dynamic_batching"] == {"max_queue_delay_microseconds": "500"}
    assert config["max_batch_size"] == 8
    assert any(path.endswith("1/model.onnx") for path in published.quarantine.trees[-1])
    # what an ensemble is made of comes before it
    names = list(await loaded(published, "e", {}))
    assert names == [published.version(name).physical for name in ("m", "e")]
    # a folder of the plain repository can be measured, too
    found = await loaded(published, "plain", {"max_batch_size": 4}, number=2)
    assert found["plain"]["max_batch_size"] == 4
    assert found["plain"]["version_policy"]["specific"]["versions"] == ["2"]


async def test_what_does_not_load_in_a_triton_of_its_own_is_refused(published: Publishing) -> None:
    with pytest.raises(Invalid, match="cannot be changed"):
        await loaded(published, "m", {"input": []})
    with pytest.raises(Invalid, match="no Triton for measurements") as caught:
        await loaded(published, "m", {}, there=False)
    assert "--replica" in caught.value.try_this
    published.quarantine.fails = TrialFailed("it did not load")
    with pytest.raises(TrialFailed):
        await loaded(published, "m", {})


async def test_a_replica_that_cannot_be_lent_says_why(
    published: Publishing, tmp_path: Path
) -> None:
    subject, fleet = subjects(published).find("m", 1), published.plane.fleet
    lendings: dict[str, Any] = {"a": object()}
    for loads, held, why in (
        (True, False, "it does not have version 1 of model 'm'"),
        (False, True, "this gateway does not load models there"),
    ):
        fleet.saw("a", {subject.name: (1,)} if held else {})
        drained = Drained(
            *(lendings.get, fleet),
            machine=lambda _: UNKNOWN,
            loads=lambda loads=loads: loads,  # type: ignore[misc]
            notes=Notes(tmp_path / "lent"),
        )
        with pytest.raises(Invalid, match="replica a cannot run measurements") as caught:
            async with drained.on("a").open(subject, {}):
                pass
        assert caught.value.why == why
        with pytest.raises(NotFound, match="there is no replica 'z'"):
            drained.on("z")
