"""Shelves: things in parts, there once their line is, of which the newest stay."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from serve.control.artifacts.folder import FolderObjects
from serve.control.shelves import Shelf
from serve.core.errors import NotFound


def play(folder: Path, work: Callable[[Shelf], Awaitable[Any]], kept: int = 3) -> Any:
    async def run() -> Any:
        async with asyncio.timeout(20):
            return await work(Shelf(FolderObjects(folder), "things", kept=kept))

    return asyncio.run(run())


async def add(shelf: Shelf, *names: str) -> None:
    for name in names:
        await shelf.put(name, "part", name.encode())
        await shelf.show(name, {"called": name})


def test_a_thing_is_there_when_its_line_is(tmp_path: Path) -> None:
    async def work(shelf: Shelf) -> None:
        await shelf.put("a", "part", b"1")
        assert await shelf.names() == []
        await shelf.show("a", {"called": "a"})
        assert await shelf.names() == ["a"]
        assert await shelf.line("a") == {"called": "a"}
        assert await shelf.read("a", "part") == b"1"

    play(tmp_path, work)


def test_the_oldest_go_with_all_their_parts(tmp_path: Path) -> None:
    async def work(shelf: Shelf) -> None:
        await add(shelf, "a", "b", "c", "d", "e")
        assert await shelf.names() == ["e", "d", "c"]
        with pytest.raises(NotFound):
            await shelf.read("a", "part")

    play(tmp_path, work)


def test_what_an_earlier_process_has_left_counts_too(tmp_path: Path) -> None:
    play(tmp_path, lambda shelf: add(shelf, "a", "b", "c"))

    async def work(shelf: Shelf) -> None:
        await add(shelf, "d")
        assert await shelf.names() == ["d", "c", "b"]
        await shelf.remove("c")
        await add(shelf, "e")
        assert await shelf.names() == ["e", "d", "b"]

    play(tmp_path, work)


def test_one_that_is_shown_again_is_still_one(tmp_path: Path) -> None:
    async def work(shelf: Shelf) -> None:
        await add(shelf, "a", "b", "a", "c")
        assert sorted(await shelf.names()) == ["a", "b", "c"]

    play(tmp_path, work)
