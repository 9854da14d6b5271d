"""Benches: one at a time, changed while they go on, and gone when nobody asks for them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from builders import Clock, replica, until
from loops import in_loop

from serve.control.batching.bench_places import Notes, OpenBench
from serve.control.batching.benches import Benches, BenchView
from serve.core.errors import Conflict, Invalid, NotFound, TrialFailed

FIELDS = {"max_batch_size": 4}


class Subject:
    model, number, name = "m", 1, "m.1"


class Subjects:
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


class Drained:
    def __init__(self, place: Place) -> None:
        self.place = place
        self.reclaimed = 0

    async def reclaim(self) -> None:
        self.reclaimed += 1

    def on(self, name: str) -> Place:
        return self.place


class Scene:
    def __init__(self) -> None:
        self.clock = Clock()
        self.place, self.spared = Place(), Place()
        self.drained = Drained(self.spared)
        self.benches = Benches(
            Subjects(),  # type: ignore[arg-type]
            self.place,  # type: ignore[arg-type]
            self.drained,  # type: ignore[arg-type]
            clock=self.clock,
            kept=0.2,
        )

    async def open(self, name: str = "") -> BenchView:
        return await self.benches.open("m", 1, FIELDS, name)


@contextlib.asynccontextmanager
async def running() -> AsyncIterator[Scene]:
    """A scene whose benches are watched, until its control plane ends."""
    scene = Scene()
    watching = asyncio.create_task(scene.benches.run())
    try:
        yield scene
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


@in_loop
async def test_a_bench_says_where_it_is_and_is_gone_when_it_was_closed() -> None:
    async with running() as scene:
        view = await scene.open()
        assert (view.name, view.version, view.fields, view.replica) == ("m.1", 1, FIELDS, "")
        assert view.grpc == f"{replica('bench').host}:{replica('bench').grpc_port}"
        assert scene.place.is_open
        await scene.benches.close(view.id)
        assert not scene.place.is_open
        with pytest.raises(NotFound, match="it was closed"):
            scene.benches.keep(view.id)
    assert scene.drained.reclaimed == 1


@in_loop
async def test_there_is_one_at_a_time_and_the_end_of_a_control_plane_closes_it() -> None:
    async with running() as scene:
        view = await scene.open()
        with pytest.raises(Conflict, match="another bench is open"):
            await scene.open()
        await scene.benches.close(view.id)
        await scene.open("a")
        assert scene.spared.is_open
    assert not scene.spared.is_open


@in_loop
async def test_other_fields_are_loaded_and_those_before_again_when_they_fail() -> None:
    async with running() as scene:
        scene.place.refuses = [{"max_batch_size": 64}]
        view = await scene.open()
        changed = await scene.benches.change(view.id, {"max_batch_size": 8})
        assert changed.fields == {"max_batch_size": 8}
        with pytest.raises(TrialFailed, match="no memory"):
            await scene.benches.change(view.id, {"max_batch_size": 64})
        assert scene.benches.keep(view.id).fields == {"max_batch_size": 8}
    assert scene.place.loaded == [FIELDS, {"max_batch_size": 8}, {"max_batch_size": 8}]


@in_loop
async def test_a_bench_in_which_nothing_loads_any_more_ends() -> None:
    async with running() as scene:
        view = await scene.open()
        scene.place.refuses = [FIELDS, {}]
        with pytest.raises(TrialFailed, match="no memory"):
            await scene.benches.change(view.id, {})
        with pytest.raises(NotFound, match="it did not load"):
            await scene.benches.change(view.id, {})


@in_loop
async def test_a_bench_that_does_not_open_says_why_and_makes_room_for_the_next() -> None:
    async with running() as scene:
        with pytest.raises(Invalid, match="no configuration"):
            await scene.benches.open("other", 1, {})
        scene.place.refuses = [FIELDS]
        with pytest.raises(TrialFailed, match="no memory"):
            await scene.open()
        assert scene.place.loaded == []
        scene.place.refuses = []
        await scene.open()


@in_loop
async def test_a_bench_whose_triton_dies_ends_with_the_reason() -> None:
    async with running() as scene:
        view = await scene.open()
        assert scene.place.over is not None
        scene.place.over.set_result("its Triton died")
        with pytest.raises(NotFound, match="its Triton died"):
            while True:
                scene.benches.keep(view.id)
                await asyncio.sleep(0)


@in_loop
async def test_a_bench_that_nobody_asks_for_is_closed() -> None:
    async with running() as scene:
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
