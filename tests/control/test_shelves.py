"""Shelves: things in parts, there once their line is, of which the newest stay."""

from pathlib import Path

import pytest

from serve.control.artifacts.folder import FolderObjects
from serve.control.shelves import StorageShelf
from serve.core.errors import NotFound


def shelf_in(folder: Path) -> StorageShelf:
    return StorageShelf(FolderObjects(folder), "things", kept=3)


async def add(shelf: StorageShelf, *names: str) -> None:
    for name in names:
        await shelf.put(name, "part", name.encode())
        await shelf.show(name, {"called": name})


async def test_a_thing_is_there_when_its_line_is(tmp_path: Path) -> None:
    shelf = shelf_in(tmp_path)
    await shelf.put("a", "part", b"1")
    assert await shelf.names() == []
    await shelf.show("a", {"called": "a"})
    assert (await shelf.names(), await shelf.line("a")) == (["a"], {"called": "a"})
    assert await shelf.read("a", "part") == b"1"


async def test_the_oldest_go_with_all_their_parts_also_those_of_an_earlier_process(
    tmp_path: Path,
) -> None:
    shelf = shelf_in(tmp_path)
    await add(shelf, "a", "b", "a", "c")  # one that is shown again is still one
    assert sorted(await shelf.names()) == ["a", "b", "c"]
    await add(shelf, "d", "e", "f")
    assert await shelf.names() == ["f", "e", "d"]
    with pytest.raises(NotFound):
        await shelf.read("c", "part")
    later = shelf_in(tmp_path)
    await add(later, "g")
    assert await later.names() == ["g", "f", "e"]
    await later.remove("f")
    await add(later, "h")
    assert await later.names() == ["h", "g", "e"]
