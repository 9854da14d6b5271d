"""The store under several processes at once: one order for all, nothing overwritten unseen."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from control.writing import migrate, write
from forking import Forked, Work

from serve.control.storing.store import Change, Store

Where = Path | str
PROCESSES, ROUNDS = 4, 25


@contextmanager
def racing(work: Work, *arguments: Sequence[object]) -> Iterator[list[Forked]]:
    """Processes that wait for a word before they begin; each with its own arguments."""
    with ExitStack() as stack:
        begun = [stack.enter_context(Forked(work, *each)) for each in arguments]
        for one in begun:
            assert one.hear() == "ready"
        yield begun


def writers(where: Where, work: str) -> AbstractContextManager[list[Forked]]:
    return racing(write, *((where, str(number), work, ROUNDS) for number in range(PROCESSES)))


def go(begun: list[Forked]) -> None:
    """Let all of them begin."""
    for one in begun:
        one.tell()


def results(begun: list[Forked]) -> list[list[int]]:
    """What each of them got."""
    found = [one.hear() for one in begun]
    assert [one.wait() for one in begun] == [0] * len(begun)
    return found


@pytest.fixture
def store(where: Where) -> Iterator[Store]:
    made = Store(where, clock=lambda: 0.0)
    made.migrate()
    yield made
    made.close()


def history(store: Store) -> list[Any]:
    """All rows, the oldest first."""
    return asyncio.run(store.history(limit=10_000))[::-1]


def test_of_several_processes_that_saw_the_same_state_one_wins(where: Where, store: Store) -> None:
    with writers(where, "contest") as begun:
        go(begun)
        won = results(begun)
    assert [sum(1 for got in turn if got) for turn in zip(*won, strict=True)] == [1] * ROUNDS
    assert [row["key"] for row in history(store)] == [f"m{n}" for n in range(ROUNDS)]


def test_changes_of_several_processes_are_one_chain(where: Where, store: Store) -> None:
    with writers(where, "chain") as begun:
        go(begun)
        written = results(begun)
    rows = history(store)
    assert sorted(number for numbers in written for number in numbers) == [r["id"] for r in rows]
    assert len(rows) == PROCESSES * ROUNDS
    assert [row["before"] for row in rows] == [None, *(row["after"] for row in rows[:-1])]
    assert asyncio.run(store.read())["route", "m"].revision == rows[-1]["id"]


def test_who_has_read_a_revision_never_finds_a_lower_one_later(where: Where, store: Store) -> None:
    seen: list[int] = []
    with writers(where, "chain") as begun:
        go(begun)
        while any(one.is_running for one in begun):
            now = [row["id"] for row in history(store)]
            assert now[: len(seen)] == seen
            seen = now
        results(begun)


def test_generations_rise_over_all_processes(where: Where, store: Store) -> None:
    with writers(where, "generations") as begun:
        go(begun)
        given = results(begun)
    assert all(numbers == sorted(numbers) for numbers in given)
    assert sorted(n for numbers in given for n in numbers) == [*range(1, PROCESSES * ROUNDS + 1)]


def test_several_processes_may_bring_a_new_store_up_to_date_at_once(where: Where) -> None:
    with racing(migrate, *[(where,)] * 3) as begun:
        go(begun)
        assert [one.wait() for one in begun] == [0, 0, 0]
    one = Store(where, clock=lambda: 0.0)
    assert asyncio.run(one.apply(Change("route", "m", 1, "ada"))) == 1
    one.close()
