"""The store under several processes at once: one order for all, nothing overwritten unseen."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from serve.control.storing.store import Change, Store

Where = Path | str
PROCESSES, ROUNDS = 4, 25
CHILD = """
import asyncio, json, sys
from pathlib import Path
from serve.control.storing.store import Change, Store
from serve.core.errors import PreconditionFailed

where, me, work, rounds = sys.argv[1:]
store = Store(where if "://" in where else Path(where), clock=lambda: 0.0)

async def one(round):
    if work == "generations":
        return await store.next_generation(0)
    if work == "chain":
        return await store.apply(Change("route", "m", [me, round], me))
    try:
        return await store.apply(Change("route", f"m{round}", me, me, if_match='"0"'))
    except PreconditionFailed:
        return 0

async def main():
    await store.read()
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps([await one(round) for round in range(int(rounds))]))

asyncio.run(main())
"""


@contextmanager
def racing(where: Where, work: str) -> Iterator[list["subprocess.Popen[str]"]]:
    """Processes that wait for a line before they begin."""
    with ExitStack() as stack:
        begun = []
        for number in range(PROCESSES):
            child = subprocess.Popen(
                [sys.executable, "-c", CHILD, str(where), str(number), work, str(ROUNDS)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            stack.enter_context(child)
            stack.callback(child.kill)
            begun.append(child)
        for child in begun:
            assert child.stdout and child.stdout.readline() == "ready\n"
        yield begun


def go(children: list["subprocess.Popen[str]"]) -> None:
    """Let all of them begin."""
    for child in children:
        assert child.stdin
        child.stdin.write("\n")
        child.stdin.flush()


def results(children: list["subprocess.Popen[str]"]) -> list[list[int]]:
    """What each of them got."""
    found = []
    for child in children:
        out, _ = child.communicate(timeout=60)
        assert child.returncode == 0
        found.append(json.loads(out))
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
    with racing(where, "contest") as children:
        go(children)
        won = results(children)
    assert [sum(1 for got in turn if got) for turn in zip(*won, strict=True)] == [1] * ROUNDS
    assert [row["key"] for row in history(store)] == [f"m{n}" for n in range(ROUNDS)]


def test_changes_of_several_processes_are_one_chain(where: Where, store: Store) -> None:
    with racing(where, "chain") as children:
        go(children)
        written = results(children)
    rows = history(store)
    assert sorted(number for numbers in written for number in numbers) == [r["id"] for r in rows]
    assert len(rows) == PROCESSES * ROUNDS
    assert [row["before"] for row in rows] == [None, *(row["after"] for row in rows[:-1])]
    assert asyncio.run(store.read())["route", "m"].revision == rows[-1]["id"]


def test_who_has_read_a_revision_never_finds_a_lower_one_later(where: Where, store: Store) -> None:
    seen: list[int] = []
    with racing(where, "chain") as children:
        go(children)
        while any(child.poll() is None for child in children):
            now = [row["id"] for row in history(store)]
            assert now[: len(seen)] == seen
            seen = now
        results(children)


def test_generations_rise_over_all_processes(where: Where, store: Store) -> None:
    with racing(where, "generations") as children:
        go(children)
        given = results(children)
    assert all(numbers == sorted(numbers) for numbers in given)
    assert sorted(n for numbers in given for n in numbers) == [*range(1, PROCESSES * ROUNDS + 1)]


def test_several_processes_may_bring_a_new_store_up_to_date_at_once(where: Where) -> None:
    code = "import sys; from pathlib import Path; from serve.control.storing.store import Store; "
    code += "w = sys.argv[1]; Store(w if '://' in w else Path(w), clock=lambda: 0.0).migrate()"
    children = [subprocess.Popen([sys.executable, "-c", code, str(where)]) for _ in range(3)]
    assert [child.wait(60) for child in children] == [0, 0, 0]
    one = Store(where, clock=lambda: 0.0)
    assert asyncio.run(one.apply(Change("route", "m", 1, "ada"))) == 1
    one.close()
