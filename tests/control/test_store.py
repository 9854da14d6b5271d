"""The store: one revision for every change, nothing lost, nothing overwritten unseen."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

from serve.control.store import Change, Entry, Store
from serve.core.errors import PreconditionFailed, Unavailable

T = TypeVar("T")
run = asyncio.run
ROUTE = ("route", "m")


def store(folder: Path, *, at: float = 1.5) -> Store:
    made = Store(folder / "control.sqlite", clock=lambda: at)
    made.migrate()
    return made


def set_route(body: Any, *, if_match: str = "", key: str = "m") -> Change:
    return Change("route", key, body, "ada", "because", if_match)


def do(*steps: Coroutine[Any, Any, T]) -> list[T]:
    async def all_in_turn() -> list[T]:
        return [await step for step in steps]

    return run(all_in_turn())


def test_a_new_store_is_empty(tmp_path: Path) -> None:
    fresh = store(tmp_path)
    assert do(fresh.read()) == [{}]
    assert do(fresh.history()) == [[]]


def test_what_was_set_is_there_with_its_revision(tmp_path: Path) -> None:
    one = store(tmp_path)
    first, second = do(one.apply(set_route({"a": 1})), one.apply(set_route(2, key="x")))
    assert second > first
    assert do(one.read()) == [{ROUTE: Entry({"a": 1}, first), ("route", "x"): Entry(2, second)}]


def test_every_change_adds_one_row_with_before_and_after(tmp_path: Path) -> None:
    one = store(tmp_path)
    do(one.apply(set_route(1)), one.apply(set_route(2)), one.apply(set_route(None)))
    [rows] = do(one.history())
    assert [(row["before"], row["after"]) for row in rows] == [("2", None), ("1", "2"), (None, "1")]
    assert {(row["author"], row["reason"], row["at"]) for row in rows} == {("ada", "because", 1.5)}


def test_a_revision_is_never_changed_by_later_ones(tmp_path: Path) -> None:
    one = store(tmp_path)
    do(one.apply(set_route(1)))
    [before] = do(one.history())
    do(one.apply(set_route(2)), one.apply(set_route(None)), one.apply(set_route(3)))
    [after] = do(one.history())
    assert after[-1:] == before
    assert [row["id"] for row in after] == sorted((row["id"] for row in after), reverse=True)


def test_the_history_of_one_thing_can_be_asked_for(tmp_path: Path) -> None:
    one = store(tmp_path)
    do(one.apply(set_route(1)), one.apply(set_route(2, key="x")), one.apply(set_route(3)))
    [rows] = do(one.history(kind="route", key="m"))
    [newest] = do(one.history(limit=1))
    assert [row["after"] for row in rows] == ["3", "1"]
    assert [row["after"] for row in newest] == ["3"]


def test_what_was_removed_is_gone(tmp_path: Path) -> None:
    one = store(tmp_path)
    do(one.apply(set_route(1)), one.apply(set_route(None)))
    assert do(one.read()) == [{}]


def test_a_change_that_has_seen_the_present_state_is_made(tmp_path: Path) -> None:
    one = store(tmp_path)
    do(one.apply(set_route(1, if_match='"0"')))
    [entries] = do(one.read())
    do(one.apply(set_route(2, if_match=entries[ROUTE].etag)))
    [entries] = do(one.read())
    assert entries[ROUTE].body == 2


@pytest.mark.parametrize("if_match", ['"0"', '"999"', "1", "nonsense"])
def test_a_change_that_has_seen_another_state_changes_nothing(
    tmp_path: Path, if_match: str
) -> None:
    one = store(tmp_path)
    [revision] = do(one.apply(set_route(1)))
    with pytest.raises(PreconditionFailed, match=f'its ETag is now "{revision}"'):
        do(one.apply(set_route(2, if_match=if_match)))
    assert do(one.read()) == [{ROUTE: Entry(1, revision)}]
    assert [len(rows) for rows in do(one.history())] == [1]


def test_of_two_changes_that_saw_the_same_state_one_is_made(tmp_path: Path) -> None:
    one = store(tmp_path)

    async def race() -> list[Any]:
        changes = (one.apply(set_route(n, if_match='"0"')) for n in range(5))
        return await asyncio.gather(*changes, return_exceptions=True)

    results = run(race())
    assert [type(result) for result in results].count(int) == 1
    assert [type(result) for result in results].count(PreconditionFailed) == 4


def test_migrating_twice_is_migrating_once(tmp_path: Path) -> None:
    first = store(tmp_path)
    [revision] = do(first.apply(set_route(1)))
    first.migrate()
    assert do(store(tmp_path).read()) == [{ROUTE: Entry(1, revision)}]


def test_another_process_reads_what_was_written(tmp_path: Path) -> None:
    do(store(tmp_path).apply(set_route({"größe": "ü"})))
    [entries] = do(store(tmp_path).read())
    assert entries[ROUTE].body == {"größe": "ü"}


def test_generations_rise_over_restarts(tmp_path: Path) -> None:
    first = do(*(store(tmp_path).next_generation(0) for _ in range(2)))
    second = do(store(tmp_path).next_generation(0))
    assert first + second == [1, 2, 3]


def test_a_generation_is_at_least_what_is_asked_for(tmp_path: Path) -> None:
    one = store(tmp_path)
    generations = [one.next_generation(50), one.next_generation(10), one.next_generation(90)]
    assert do(*generations) == [50, 51, 90]


def test_a_store_that_does_not_answer_is_unavailable(tmp_path: Path) -> None:
    unreachable = Store(tmp_path / "gone" / "control.sqlite", clock=lambda: 0.0)
    with pytest.raises(Unavailable, match="does not answer"):
        do(unreachable.read())


@pytest.mark.parametrize("name", ["with space", "a?b", "a#b", "a%b", "a%20b", "größe"])
def test_the_folder_of_the_store_may_have_any_name(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    do(store(folder).apply(set_route(1)))
    assert (folder / "control.sqlite").stat().st_size > 0
