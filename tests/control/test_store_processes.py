"""The store under several processes at once: one order for all, nothing overwritten unseen."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from control.crashing import migrate, write
from forking import Forked, Work

from serve.control.storage.store import Store, StoreEdit

Where = Path | str
PROCESSES, ROUNDS = 4, 25


@pytest.fixture
def store(where: Where) -> Iterator[Store]:
    made = Store(where, clock=lambda: 0.0)
    made.migrate()
    yield made
    made.close()


def begin(stack: ExitStack, work: Work, *arguments: Sequence[object]) -> list[Forked]:
    """Processes that all begin to do this now, each with its own arguments."""
    begun = [stack.enter_context(Forked(work, *each)) for each in arguments]
    for one in begun:
        assert one.hear() == "ready"
    for one in begun:
        one.tell()
    return begun


def writers(stack: ExitStack, where: Where, work: str) -> list[Forked]:
    return begin(stack, write, *((where, str(n), work, ROUNDS) for n in range(PROCESSES)))


def results(begun: list[Forked]) -> list[list[int]]:
    """What each of them got."""
    found = [one.hear() for one in begun]
    assert [one.wait() for one in begun] == [0] * len(begun)
    return found


def history(store: Store) -> list[Any]:
    """All rows, the oldest first."""
    return asyncio.run(store.history(limit=10_000))[::-1]


def test_of_several_processes_that_saw_the_same_state_one_wins(where: Where, store: Store) -> None:
    with ExitStack() as stack:
        won = results(writers(stack, where, "contest"))
    assert [sum(1 for got in turn if got) for turn in zip(*won, strict=True)] == [1] * ROUNDS
    assert [row["key"] for row in history(store)] == [f"m{n}" for n in range(ROUNDS)]


def test_changes_of_several_processes_are_one_chain_and_no_revision_comes_late(
    where: Where, store: Store
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


def test_generations_rise_over_all_processes(where: Where, store: Store) -> None:
    with ExitStack() as stack:
        given = results(writers(stack, where, "generations"))
    assert all(numbers == sorted(numbers) for numbers in given)
    assert sorted(n for numbers in given for n in numbers) == [*range(1, PROCESSES * ROUNDS + 1)]


def test_several_processes_may_bring_a_new_store_up_to_date_at_once(where: Where) -> None:
    with ExitStack() as stack:
        begun = begin(stack, migrate, *[(where,)] * 3)
        assert [one.wait() for one in begun] == [0, 0, 0]
    made = Store(where, clock=lambda: 0.0)
    assert asyncio.run(made.apply(StoreEdit("route", "m", 1, "ada"))) == 1
    made.close()
