"""Backups: whole or refused, from and into either kind of database, and nothing falls."""

import asyncio
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from database import PostgresServer

from serve.control.storing import backup
from serve.control.storing.backup import FORMAT, RESTORE, Backup
from serve.control.storing.database import Database, open_database
from serve.control.storing.store import Change, Entry, Store
from serve.core.errors import Conflict, Invalid, NotFound, Unavailable

Where = Path | str
CHANGES = [
    Change("route", "m", {"split": {"1": 100}}, "ada", "größer"),
    Change("route", "m", {"split": {"2": 100}}, "eve"),
    Change("label", "m:stable", {"version": 1, "note": "a\0b"}, "ada"),
    Change("label", "m:stable", None, "ada"),
]


def filled(where: Where, *, generation: int = 41, changes: int = 1) -> dict[Any, Any]:
    """A store with these changes, so many times; what it holds."""

    async def fill() -> dict[Any, Any]:
        store = Store(where, clock=lambda: 1.5)
        store.migrate()
        for _ in range(changes):
            await store.apply_all(CHANGES)
        await store.next_generation(generation)
        return await told(store)

    return asyncio.run(fill())


async def told(store: Store) -> dict[Any, Any]:
    """Everything that a store tells."""
    try:
        history = await store.history(limit=10_000)
        rows = [row for row in history if row["kind"] != RESTORE]
        return {"things": await store.read(), "history": rows}
    finally:
        store.close()


def holds(where: Where) -> dict[Any, Any]:
    return asyncio.run(told(Store(where, clock=lambda: 1.5)))


def opened(where: Where, work: Callable[[Database], Backup]) -> Backup:
    database = open_database(where)
    try:
        return work(database)
    finally:
        database.close()


def back_up(where: Where, path: Path) -> Backup:
    return opened(where, lambda database: backup.back_up(database, path, clock=lambda: 2.5))


def restore(where: Where, path: Path, *, replace: bool = False) -> Backup:
    return opened(
        where,
        lambda database: backup.restore(
            database, path, replace=replace, author="ada", clock=lambda: 3.5
        ),
    )


def identity(where: Where) -> str:
    async def ask() -> str:
        store = Store(where, clock=lambda: 1.5)
        store.migrate()
        try:
            return await store.identity()
        finally:
            store.close()

    return asyncio.run(ask())


def test_a_copy_from_a_backup_is_another_gateway(where: Where, tmp_path: Path) -> None:
    filled(where)
    ours = identity(where)
    path, copy = tmp_path / "backup.jsonl", tmp_path / "copy"
    back_up(where, path)
    restore(copy, path)
    assert identity(copy) != ours
    restore(where, path, replace=True)
    assert identity(where) == ours


def test_a_backup_holds_everything_and_says_so(where: Where, tmp_path: Path) -> None:
    filled(where)
    path = tmp_path / "backup.jsonl"
    made = back_up(where, path)
    assert made == Backup("0002", 2.5, {"revisions": 4, "settings": 1, "counters": 1})
    assert str(made) == "1 things and 4 revisions"
    assert path.stat().st_mode & 0o777 == 0o600
    lines = path.read_bytes().splitlines(keepends=True)
    assert json.loads(lines[0])["format"] == FORMAT
    assert json.loads(lines[-1]) == {"sha256": hashlib.sha256(b"".join(lines[:-1])).hexdigest()}
    assert list(tmp_path.glob(".backup*")) == []


@pytest.mark.parametrize("back", [False, True], ids=["to-postgres", "to-sqlite"])
def test_a_store_moves_from_one_database_to_the_other(
    postgresql: PostgresServer, tmp_path: Path, back: bool
) -> None:
    ends: list[Where] = [tmp_path / "control.sqlite", postgresql.new_database()]
    source, target = reversed(ends) if back else ends
    before = filled(source, changes=300)  # more rows than are held at a time
    back_up(source, tmp_path / "backup")
    restore(target, tmp_path / "backup")
    assert holds(target) == before

    async def goes_on() -> None:
        store = Store(target, clock=lambda: 4.5)
        store.migrate()
        restored = (await store.history(limit=1))[0]
        assert (restored["kind"], restored["author"]) == (RESTORE, "ada")
        assert restored["id"] == before["history"][0]["id"] + 1
        assert await store.apply(CHANGES[0]) == restored["id"] + 1
        assert await store.next_generation(0) == 42
        store.close()

    asyncio.run(goes_on())


def test_a_store_that_is_not_empty_is_only_replaced_when_asked_to(
    fresh: Callable[[], Where], tmp_path: Path
) -> None:
    source, target = fresh(), fresh()
    before, other = filled(source), filled(target, generation=99, changes=3)
    back_up(source, tmp_path / "backup")
    with pytest.raises(Conflict, match="is not empty"):
        restore(target, tmp_path / "backup")
    assert holds(target) == other
    restore(target, tmp_path / "backup", replace=True)
    assert holds(target) == before


def test_neither_revisions_nor_generations_fall_by_a_restore(
    fresh: Callable[[], Where], tmp_path: Path
) -> None:
    source, target = fresh(), fresh()
    filled(source, generation=5)
    filled(target, generation=99, changes=3)
    back_up(source, tmp_path / "backup")
    restore(target, tmp_path / "backup", replace=True)

    async def goes_on() -> tuple[int, int]:
        store = Store(target, clock=lambda: 4.5)
        numbers = (await store.apply(CHANGES[0]), await store.next_generation(0))
        store.close()
        return numbers

    assert asyncio.run(goes_on()) == (14, 100)  # 12 revisions there were, and the restore's


def test_who_waits_for_changes_hears_of_a_restore(where: Where, tmp_path: Path) -> None:
    filled(where)
    back_up(where, tmp_path / "backup")

    async def scenario() -> None:
        store = Store(where, clock=lambda: 4.5)
        waiting = asyncio.create_task(store.changed(await store.newest()))
        await asyncio.to_thread(restore, where, tmp_path / "backup", replace=True)
        async with asyncio.timeout(20):
            assert await waiting == 5
        store.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("spoil", "match"),
    [
        (lambda data: b"", "is no backup of Servegate"),
        (lambda data: b"PK\x03\x04\xff\n", "is no backup of Servegate"),
        (lambda data: b"[" * 100_000, "is no backup of Servegate"),
        (lambda data: data[: len(data) // 2], "is not whole"),
        (lambda data: data.rpartition(b"{")[0], "is not whole"),
        (lambda data: data.replace(b"ada", b"eve"), "is not whole"),
        (lambda data: data + b"{}\n", "is not whole"),
        (lambda data: signed(data.replace(b'"0002"', b'"9999"')), "by a newer Servegate"),
        (lambda data: signed(data.replace(b'"revisions": 4', b'"revisions": 5')), "is not whole"),
    ],
)
def test_a_file_that_is_not_whole_changes_nothing(
    where: Where, tmp_path: Path, spoil: Callable[[bytes], bytes], match: str
) -> None:
    before = filled(where)
    path = tmp_path / "backup"
    back_up(where, path)
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(Invalid, match=match):
        restore(where, path, replace=True)
    assert holds(where) == before


def signed(data: bytes) -> bytes:
    """The same lines with the SHA-256 that belongs to them."""
    rest = b"".join(data.splitlines(keepends=True)[:-1])
    return rest + json.dumps({"sha256": hashlib.sha256(rest).hexdigest()}).encode() + b"\n"


def test_a_database_without_a_store_has_no_backup(where: Where, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is no store"):
        back_up(where, tmp_path / "backup")
    assert not (tmp_path / "backup").exists() and list(tmp_path.glob(".backup*")) == []


def test_a_database_that_is_gone_has_no_backup(tmp_path: Path) -> None:
    with pytest.raises(Unavailable):
        back_up("postgresql://ada@127.0.0.1:9/x", tmp_path / "backup")
    assert list(tmp_path.iterdir()) == []


def test_an_older_backup_stays_until_the_newer_one_is_whole(tmp_path: Path) -> None:
    (tmp_path / "backup").write_text("older")
    with pytest.raises(NotFound):
        back_up(tmp_path / "empty.sqlite", tmp_path / "backup")
    assert (tmp_path / "backup").read_text() == "older"


def test_a_backup_is_one_state_although_writers_go_on(where: Where, tmp_path: Path) -> None:
    filled(where)

    async def scenario() -> None:
        store = Store(where, clock=lambda: 4.5)

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

    asyncio.run(scenario())


def test_entries_keep_the_revision_that_wrote_them(where: Where, tmp_path: Path) -> None:
    filled(where)
    back_up(where, tmp_path / "backup")
    restore(where, tmp_path / "backup", replace=True)
    assert holds(where)["things"] == {("route", "m"): Entry({"split": {"2": 100}}, 2)}
