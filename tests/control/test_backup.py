"""Backups: whole or refused, from and into either kind of database, and nothing falls."""

import asyncio
import hashlib
import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from database import PostgresServer

from serve.control.storage import backup
from serve.control.storage.backup import FORMAT, RESTORE, Backup
from serve.control.storage.database import open_database
from serve.control.storage.store import Store, StoredEntry, StoreEdit
from serve.core.errors import Conflict, Invalid, NotFound, Unavailable

Where = Path | str
CHANGES = [
    StoreEdit("route", "m", {"split": {"1": 100}}, "ada", "größer"),
    StoreEdit("route", "m", {"split": {"2": 100}}, "eve"),
    StoreEdit("label", "m:stable", {"version": 1, "note": "a\0b"}, "ada"),
    StoreEdit("label", "m:stable", None, "ada"),
]


def store_at(where: Where) -> Store:
    store = Store(where, clock=lambda: 1.5)
    store.migrate()
    return store


async def filled(where: Where, *, generation: int = 41, changes: int = 1) -> dict[str, Any]:
    """A store with these changes, so many times; what it holds."""
    with closing(store_at(where)) as store:
        for _ in range(changes):
            await store.apply_all(CHANGES)
        await store.next_generation(generation)
    return await holds(where)


async def holds(where: Where) -> dict[str, Any]:
    """Everything that a store tells."""
    with closing(Store(where, clock=lambda: 1.5)) as store:
        history = await store.history(limit=10_000)
        rows = [row for row in history if row["kind"] != RESTORE]
        return {"things": await store.read(), "history": rows}


async def identity(where: Where) -> str:
    with closing(store_at(where)) as store:
        return await store.identity()


def back_up(where: Where, path: Path) -> Backup:
    with closing(open_database(where)) as database:
        return backup.back_up(database, path, clock=lambda: 2.5)


def restore(where: Where, path: Path, *, replace: bool = False) -> Backup:
    given: dict[str, Any] = {"replace": replace, "author": "ada", "clock": lambda: 3.5}
    with closing(open_database(where)) as database:
        return backup.restore(database, path, **given)


async def test_a_backup_holds_everything_and_a_copy_from_it_is_another_gateway(
    where: Where, tmp_path: Path
) -> None:
    before = await filled(where)
    ours = await identity(where)
    path, copy = tmp_path / "backup.jsonl", tmp_path / "copy"
    made = back_up(where, path)
    assert (made.schema, made.at) == ("0002", 2.5)
    assert (made.counts["revisions"], made.counts["settings"]) == (4, 1)
    assert str(made) == "1 settings and 4 revisions"
    assert path.stat().st_mode & 0o777 == 0o600
    lines = path.read_bytes().splitlines(keepends=True)
    assert json.loads(lines[0])["format"] == FORMAT
    assert json.loads(lines[-1]) == {"sha256": hashlib.sha256(b"".join(lines[:-1])).hexdigest()}
    assert list(tmp_path.glob(".backup*")) == []
    restore(copy, path)
    assert await identity(copy) != ours
    restore(where, path, replace=True)
    assert await identity(where) == ours
    after = await holds(where)  # entries keep the revision that wrote them
    assert after == before
    assert after["things"] == {("route", "m"): StoredEntry({"split": {"2": 100}}, 2)}


@pytest.mark.parametrize("back", [False, True], ids=["to-postgres", "to-sqlite"])
async def test_a_store_moves_from_one_database_to_the_other(
    postgresql: PostgresServer, tmp_path: Path, back: bool
) -> None:
    ends: list[Where] = [tmp_path / "control.sqlite", postgresql.new_database()]
    source, target = reversed(ends) if back else ends
    before = await filled(source, changes=300)  # more rows than are held at a time
    back_up(source, tmp_path / "backup")
    restore(target, tmp_path / "backup")
    assert await holds(target) == before
    store = store_at(target)
    restored = (await store.history(limit=1))[0]
    assert (restored["kind"], restored["author"]) == (RESTORE, "ada")
    assert restored["id"] == before["history"][0]["id"] + 1
    assert await store.apply(CHANGES[0]) == restored["id"] + 1
    assert await store.next_generation(0) == 42
    store.close()


async def test_a_store_that_is_not_empty_is_only_replaced_when_asked_to_and_its_numbers_never_fall(
    fresh: Callable[[], Where], tmp_path: Path
) -> None:
    source, target = fresh(), fresh()
    before = await filled(source, generation=5)
    other = await filled(target, generation=99, changes=3)
    back_up(source, tmp_path / "backup")
    with pytest.raises(Conflict, match="is not empty"):
        restore(target, tmp_path / "backup")
    assert await holds(target) == other
    restore(target, tmp_path / "backup", replace=True)
    assert await holds(target) == before
    store = store_at(target)
    numbers = (await store.apply(CHANGES[0]), await store.next_generation(0))
    assert numbers == (14, 100)  # 12 revisions there were, and the restore's
    store.close()


async def test_who_waits_for_changes_hears_of_a_restore(where: Where, tmp_path: Path) -> None:
    await filled(where)
    back_up(where, tmp_path / "backup")
    store = store_at(where)
    waiting = asyncio.create_task(store.changed(await store.newest()))
    await asyncio.to_thread(restore, where, tmp_path / "backup", replace=True)
    async with asyncio.timeout(20):
        assert await waiting == 5
    store.close()


def signed(data: bytes) -> bytes:
    """The same lines with the SHA-256 that belongs to them."""
    rest = b"".join(data.splitlines(keepends=True)[:-1])
    return rest + json.dumps({"sha256": hashlib.sha256(rest).hexdigest()}).encode() + b"\n"


SPOILT: list[tuple[Callable[[bytes], bytes], str]] = [
    (lambda data: b"", "is not a Servegate backup"),
    (lambda data: b"PK\x03\x04\xff\n", "is not a Servegate backup"),
    (lambda data: b"[" * 100_000, "is not a Servegate backup"),
    (lambda data: data[: len(data) // 2], "is incomplete or damaged"),
    (lambda data: data.rpartition(b"{")[0], "is incomplete or damaged"),
    (lambda data: data.replace(b"ada", b"eve"), "is incomplete or damaged"),
    (lambda data: data + b"{}\n", "is incomplete or damaged"),
    (lambda data: signed(data.replace(b'"0002"', b'"9999"')), "by a newer Servegate"),
    (lambda data: signed(data.replace(b'"revisions": 4', b'"revisions": 5')), "is incomplete"),
]


async def test_a_file_that_is_not_whole_changes_nothing(where: Where, tmp_path: Path) -> None:
    before = await filled(where)
    path = tmp_path / "backup"
    back_up(where, path)
    whole = path.read_bytes()
    for number, (spoil, match) in enumerate(SPOILT):
        path.write_bytes(spoil(whole))
        with pytest.raises(Invalid, match=match):
            restore(where, path, replace=True)
        assert await holds(where) == before, f"row {number} of the table"


def test_a_failed_backup_leaves_the_one_before(where: Where, tmp_path: Path) -> None:
    folder = tmp_path / "backups"
    folder.mkdir()
    with pytest.raises(NotFound, match="there is no store"):
        back_up(where, folder / "backup")
    with pytest.raises(Unavailable):
        back_up("postgresql://ada@127.0.0.1:9/x", folder / "backup")
    assert list(folder.iterdir()) == []
    (folder / "backup").write_text("older")
    with pytest.raises(NotFound):
        back_up(where, folder / "backup")
    assert (folder / "backup").read_text() == "older"


async def test_a_backup_is_one_state_although_writers_go_on(where: Where, tmp_path: Path) -> None:
    await filled(where)
    store = store_at(where)

    async def write() -> None:
        while True:
            await store.apply_all(CHANGES)  # four revisions at a time

    writing = asyncio.create_task(write())
    for number in range(5):
        made = await asyncio.to_thread(back_up, where, tmp_path / f"{number}")
        assert made.counts["revisions"] % 4 == 0
        lines = (tmp_path / f"{number}").read_bytes().splitlines()
        assert len(lines) - 2 == sum(made.counts.values())
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)
    store.close()
