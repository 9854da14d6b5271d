"""The store: one revision for every change, nothing lost, nothing overwritten unseen."""

import asyncio
import os
import stat
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from control.crashing import migrate, write
from forking import Forked, Work
from ticking import Ticks

from serve.control.storage.database import Sqlite
from serve.control.storage.store import TICK, Store, StoredEntry, StoreEdit, etag
from serve.core.errors import Invalid, PreconditionFailed, Unavailable

Pause = Callable[[float], Awaitable[None]]
ROUTE = ("route", "m")


def store_at(where: Path | str, *, pause: Pause = asyncio.sleep) -> Store:
    made = Store(where, clock=lambda: 1.5, pause=pause)
    made.migrate()
    return made


@pytest.fixture
def store(where: Path | str) -> Iterator[Store]:
    made = store_at(where)
    yield made
    made.close()


def set_route(body: Any, *, if_match: str = "", key: str = "m") -> StoreEdit:
    return StoreEdit("route", key, body, "ada", "because", if_match)


async def test_a_store_has_one_random_id_that_stays(
    store: Store, where: Path | str, tmp_path: Path
) -> None:
    first = await store.identity()
    assert len(first) == 16
    assert await store_at(where).identity() == await store.identity() == first
    assert await store_at(tmp_path / "another").identity() != first
    least = (0, 0, 0, 50, 10, 90)  # generations rise over restarts, from a least number
    assert [await store_at(where).next_generation(n) for n in least] == [1, 2, 3, 50, 51, 90]


async def test_what_was_set_is_there_with_its_revision_until_it_is_removed(
    store: Store, where: Path | str
) -> None:
    assert (await store.read(), await store.history()) == ({}, [])
    first = await store.apply(set_route({"größe": "ü"}))
    second = await store.apply(set_route(2, key="x"))
    assert second > first
    entries = {ROUTE: StoredEntry({"größe": "ü"}, first), ("route", "x"): StoredEntry(2, second)}
    assert await store.read() == entries
    store.migrate()  # twice is once
    assert await store_at(where).read() == entries  # as another process reads it
    await store.apply(set_route(None))
    assert set(await store.read()) == {("route", "x")}


async def test_every_change_adds_one_row_that_no_later_one_changes(store: Store) -> None:
    await store.apply(set_route(1))
    before = await store.history()
    await store.apply(set_route(2))
    await store.apply(set_route(None))
    rows = await store.history()
    assert rows[-1:] == before
    assert [(row["before"], row["after"]) for row in rows] == [("2", None), ("1", "2"), (None, "1")]
    assert {(row["author"], row["reason"], row["at"]) for row in rows} == {("ada", "because", 1.5)}
    assert [row["id"] for row in rows] == sorted((row["id"] for row in rows), reverse=True)


async def test_some_of_the_history_can_be_asked_for(store: Store) -> None:
    numbers = [await store.apply(set_route(n, key="x" if n == 2 else "m")) for n in range(5)]

    async def bodies(**some: Any) -> list[str]:
        return [row["after"] for row in await store.history(**some)]

    assert await bodies(kind="route", key="m") == ["4", "3", "1", "0"]
    assert await bodies(limit=1) == ["4"]
    assert await bodies(before=numbers[3], limit=2) == ["2", "1"]
    found = await store.revision(numbers[1])
    assert found is not None and found["after"] == "1"
    assert await store.revision(numbers[-1] + 1) is None


async def test_a_change_is_made_only_if_it_has_seen_the_present_state(store: Store) -> None:
    first = await store.apply(set_route(1, if_match='"0"'))
    for if_match in ('"0"', '"999"', "1", "nonsense"):
        with pytest.raises(PreconditionFailed, match=f'its ETag is now "{first}"'):
            await store.apply(set_route(2, if_match=if_match))
    assert await store.read() == {ROUTE: StoredEntry(1, first)}
    assert len(await store.history()) == 1
    second = await store.apply(set_route(2, if_match=StoredEntry(1, first).etag))
    assert await store.read() == {ROUTE: StoredEntry(2, second)}


async def test_changes_that_belong_together_are_all_made_or_none(store: Store) -> None:
    first, second = await store.apply_all([set_route(1), set_route(2, key="x")])
    assert first < second
    with pytest.raises(PreconditionFailed):
        await store.apply_all([set_route(3), set_route(4, key="x", if_match='"0"')])
    assert await store.read() == {
        ROUTE: StoredEntry(1, first),
        ("route", "x"): StoredEntry(2, second),
    }
    # a change sees those before it that belong to it
    await store.apply_all([set_route(2, if_match=etag(first)), set_route(None)])
    assert set(await store.read()) == {("route", "x")}


async def test_names_and_reasons_may_be_long_but_have_to_be_text(store: Store) -> None:
    long = StoreEdit("label", "m" * 255 + ":" + "l" * 63, {"version": 1}, "a" * 300, "ü" * 5000)
    await store.apply(long)
    [row] = await store.history(kind="label")
    assert (row["key"], row["author"], row["reason"]) == (long.key, long.author, long.reason)
    for text in ("a\0b", "\ud800"):
        for change in (StoreEdit("route", "m", 1, "ada", text), set_route(1, key=text)):
            with pytest.raises(Invalid, match="is not valid text"):
                await store.apply(change)


async def test_who_waits_for_a_change_hears_of_one_before_and_of_another_process(
    store: Store, where: Path | str
) -> None:
    first = await store.apply(set_route(1))
    assert await store.changed(0) == first
    waiting = asyncio.create_task(store.changed(first))
    await asyncio.sleep(0)
    second = await store_at(where).apply(set_route(2))
    async with asyncio.timeout(5):
        assert await waiting == second


async def test_who_waits_looks_again_at_each_tick_and_not_before(tmp_path: Path) -> None:
    ticks = Ticks()
    one = store_at(tmp_path / "control.sqlite", pause=ticks)
    waiting = asyncio.create_task(one.changed(0))
    await ticks.asked()
    await store_at(tmp_path / "control.sqlite").apply(set_route(1))
    assert not waiting.done()
    ticks.tick()
    assert await waiting == 1
    assert ticks.lengths == [TICK]


async def test_the_folder_of_the_store_may_have_any_name_but_has_to_be_there(
    tmp_path: Path,
) -> None:
    for name in ("with space", "a?b", "a#b", "a%b", "a%20b", "größe"):
        folder = tmp_path / name
        folder.mkdir()
        await store_at(folder / "control.sqlite").apply(set_route(1))
        assert (folder / "control.sqlite").stat().st_size > 0, name
    unreachable = Store(tmp_path / "gone" / "control.sqlite", clock=lambda: 0.0)
    with pytest.raises(Unavailable, match="does not answer"):
        await unreachable.read()


# --- the files of SQLite, and who may read them ---------------------------------------------------


NAMES = ("control.sqlite", "control.sqlite-shm", "control.sqlite-wal")


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    """Nothing but the mode that is asked for keeps others out."""
    before = os.umask(0)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}


def test_the_files_of_a_new_or_older_store_are_for_its_owner_alone(tmp_path: Path) -> None:
    store = Store(tmp_path / NAMES[0], clock=lambda: 0.0)
    store.migrate()
    assert modes(tmp_path) == dict.fromkeys(NAMES, 0o600)
    store.close()
    earlier, now = Sqlite(tmp_path / NAMES[0]), Sqlite(tmp_path / NAMES[0])
    with earlier.writing() as connection:
        connection.exec_driver_sql("CREATE TABLE one (n INTEGER)")
        for path in tmp_path.iterdir():
            path.chmod(0o644)
        assert set(modes(tmp_path)) == set(NAMES)
    with now.reading():
        assert modes(tmp_path) == dict.fromkeys(NAMES, 0o600)
    earlier.close()
    now.close()


# --- several processes at once: one order for all, nothing overwritten unseen ---------------------

PROCESSES, ROUNDS = 4, 25


def begin(stack: ExitStack, work: Work, *arguments: Sequence[object]) -> list[Forked]:
    """Processes that all begin to do this now, each with its own arguments."""
    begun = [stack.enter_context(Forked(work, *each)) for each in arguments]
    for one in begun:
        assert one.hear() == "ready"
    for one in begun:
        one.tell()
    return begun


def writers(stack: ExitStack, where: Path | str, work: str) -> list[Forked]:
    return begin(stack, write, *((where, str(n), work, ROUNDS) for n in range(PROCESSES)))


def results(begun: list[Forked]) -> list[list[int]]:
    """What each of them got."""
    found = [one.hear() for one in begun]
    assert [one.wait() for one in begun] == [0] * len(begun)
    return found


def history(store: Store) -> list[Any]:
    """All rows, the oldest first."""
    return asyncio.run(store.history(limit=10_000))[::-1]


def test_of_several_processes_that_saw_the_same_state_one_wins(
    where: Path | str, store: Store
) -> None:
    with ExitStack() as stack:
        won = results(writers(stack, where, "contest"))
    assert [sum(1 for got in turn if got) for turn in zip(*won, strict=True)] == [1] * ROUNDS
    assert [row["key"] for row in history(store)] == [f"m{n}" for n in range(ROUNDS)]


def test_changes_of_several_processes_are_one_chain_and_no_revision_comes_late(
    where: Path | str, store: Store
) -> None:
    seen: list[int] = []
    with ExitStack() as stack:
        begun = writers(stack, where, "chain")
        while any(one.is_running for one in begun):  # who has read a revision finds no lower one
            now = [row["id"] for row in history(store)]
            assert now[: len(seen)] == seen
            seen = now
        written = results(begun)
    rows = history(store)
    assert sorted(number for numbers in written for number in numbers) == [r["id"] for r in rows]
    assert len(rows) == PROCESSES * ROUNDS
    assert [row["before"] for row in rows] == [None, *(row["after"] for row in rows[:-1])]
    assert asyncio.run(store.read())["route", "m"].revision == rows[-1]["id"]


def test_generations_rise_over_all_processes(where: Path | str, store: Store) -> None:
    with ExitStack() as stack:
        given = results(writers(stack, where, "generations"))
    assert all(numbers == sorted(numbers) for numbers in given)
    assert sorted(n for numbers in given for n in numbers) == [*range(1, PROCESSES * ROUNDS + 1)]


def test_several_processes_may_bring_a_new_store_up_to_date_at_once(where: Path | str) -> None:
    with ExitStack() as stack:
        begun = begin(stack, migrate, *[(where,)] * 3)
        assert [one.wait() for one in begun] == [0, 0, 0]
    made = Store(where, clock=lambda: 0.0)
    assert asyncio.run(made.apply(StoreEdit("route", "m", 1, "ada"))) == 1
    made.close()
