"""The store: one revision for every change, nothing lost, nothing overwritten unseen."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest
from ticking import Ticks

from serve.control.storing.store import TICK, Change, Entry, Store, etag
from serve.core.errors import Invalid, PreconditionFailed, Unavailable

T = TypeVar("T")
Pause = Callable[[float], Awaitable[None]]
run = asyncio.run
ROUTE = ("route", "m")


def store(where: Path | str, *, pause: Pause = asyncio.sleep) -> Store:
    made = Store(where, clock=lambda: 1.5, pause=pause)
    made.migrate()
    return made


def set_route(body: Any, *, if_match: str = "", key: str = "m") -> Change:
    return Change("route", key, body, "ada", "because", if_match)


def do(*steps: Coroutine[Any, Any, T]) -> list[T]:
    async def all_in_turn() -> list[T]:
        return [await step for step in steps]

    return run(all_in_turn())


def test_a_new_store_is_empty(where: Path | str) -> None:
    fresh = store(where)
    assert do(fresh.read()) == [{}]
    assert do(fresh.history()) == [[]]


def test_a_store_has_one_random_id_that_stays(where: Path | str, tmp_path: Path) -> None:
    one = store(where)
    [first] = do(one.identity())
    assert do(store(where).identity(), one.identity()) == [first, first]
    assert do(store(tmp_path / "another").identity()) != [first]
    assert len(first) == 16 and do(one.next_generation(5)) == [5]


def test_what_was_set_is_there_with_its_revision(where: Path | str) -> None:
    one = store(where)
    first, second = do(one.apply(set_route({"a": 1})), one.apply(set_route(2, key="x")))
    assert second > first
    assert do(one.read()) == [{ROUTE: Entry({"a": 1}, first), ("route", "x"): Entry(2, second)}]


def test_every_change_adds_one_row_with_before_and_after(where: Path | str) -> None:
    one = store(where)
    do(one.apply(set_route(1)), one.apply(set_route(2)), one.apply(set_route(None)))
    [rows] = do(one.history())
    assert [(row["before"], row["after"]) for row in rows] == [("2", None), ("1", "2"), (None, "1")]
    assert {(row["author"], row["reason"], row["at"]) for row in rows} == {("ada", "because", 1.5)}


def test_a_revision_is_never_changed_by_later_ones(where: Path | str) -> None:
    one = store(where)
    do(one.apply(set_route(1)))
    [before] = do(one.history())
    do(one.apply(set_route(2)), one.apply(set_route(None)), one.apply(set_route(3)))
    [after] = do(one.history())
    assert after[-1:] == before
    assert [row["id"] for row in after] == sorted((row["id"] for row in after), reverse=True)


def test_the_history_of_one_thing_can_be_asked_for(where: Path | str) -> None:
    one = store(where)
    do(one.apply(set_route(1)), one.apply(set_route(2, key="x")), one.apply(set_route(3)))
    [rows] = do(one.history(kind="route", key="m"))
    [newest] = do(one.history(limit=1))
    assert [row["after"] for row in rows] == ["3", "1"]
    assert [row["after"] for row in newest] == ["3"]


def test_what_was_removed_is_gone(where: Path | str) -> None:
    one = store(where)
    do(one.apply(set_route(1)), one.apply(set_route(None)))
    assert do(one.read()) == [{}]


def test_a_change_that_has_seen_the_present_state_is_made(where: Path | str) -> None:
    one = store(where)
    do(one.apply(set_route(1, if_match='"0"')))
    [entries] = do(one.read())
    do(one.apply(set_route(2, if_match=entries[ROUTE].etag)))
    [entries] = do(one.read())
    assert entries[ROUTE].body == 2


@pytest.mark.parametrize("if_match", ['"0"', '"999"', "1", "nonsense"])
def test_a_change_that_has_seen_another_state_changes_nothing(
    where: Path | str, if_match: str
) -> None:
    one = store(where)
    [revision] = do(one.apply(set_route(1)))
    with pytest.raises(PreconditionFailed, match=f'its ETag is now "{revision}"'):
        do(one.apply(set_route(2, if_match=if_match)))
    assert do(one.read()) == [{ROUTE: Entry(1, revision)}]
    assert [len(rows) for rows in do(one.history())] == [1]


def test_of_two_changes_that_saw_the_same_state_one_is_made(where: Path | str) -> None:
    one = store(where)

    async def race() -> list[Any]:
        changes = (one.apply(set_route(n, if_match='"0"')) for n in range(5))
        return await asyncio.gather(*changes, return_exceptions=True)

    results = run(race())
    assert [type(result) for result in results].count(int) == 1
    assert [type(result) for result in results].count(PreconditionFailed) == 4


def test_migrating_twice_is_migrating_once(where: Path | str) -> None:
    first = store(where)
    [revision] = do(first.apply(set_route(1)))
    first.migrate()
    assert do(store(where).read()) == [{ROUTE: Entry(1, revision)}]


def test_another_process_reads_what_was_written(where: Path | str) -> None:
    do(store(where).apply(set_route({"größe": "ü"})))
    [entries] = do(store(where).read())
    assert entries[ROUTE].body == {"größe": "ü"}


def test_generations_rise_over_restarts(where: Path | str) -> None:
    first = do(*(store(where).next_generation(0) for _ in range(2)))
    second = do(store(where).next_generation(0))
    assert first + second == [1, 2, 3]


def test_a_generation_is_at_least_what_is_asked_for(where: Path | str) -> None:
    one = store(where)
    generations = [one.next_generation(50), one.next_generation(10), one.next_generation(90)]
    assert do(*generations) == [50, 51, 90]


def test_changes_that_belong_together_are_all_made_or_none(where: Path | str) -> None:
    one = store(where)
    [made] = do(one.apply_all([set_route(1), set_route(2, key="x")]))
    assert list(made) == sorted(made)
    with pytest.raises(PreconditionFailed):
        do(one.apply_all([set_route(3), set_route(4, key="x", if_match='"0"')]))
    assert do(one.read()) == [{ROUTE: Entry(1, made[0]), ("route", "x"): Entry(2, made[1])}]


def test_a_change_sees_those_before_it_that_belong_to_it(where: Path | str) -> None:
    one = store(where)
    [(first,)] = do(one.apply_all([set_route(1)]))
    do(one.apply_all([set_route(2, if_match=etag(first)), set_route(None)]))
    assert do(one.read()) == [{}]


def test_the_history_goes_on_from_where_an_answer_ended(where: Path | str) -> None:
    one = store(where)
    numbers = do(*(one.apply(set_route(n)) for n in range(5)))
    [rows] = do(one.history(before=numbers[3], limit=2))
    assert [row["id"] for row in rows] == [numbers[2], numbers[1]]


def test_one_revision_can_be_asked_for(where: Path | str) -> None:
    one = store(where)
    [number] = do(one.apply(set_route(1)))
    found, missing = do(one.revision(number), one.revision(number + 1))
    assert (found["after"], missing) == ("1", None)


def test_names_and_reasons_may_be_long(where: Path | str) -> None:
    one = store(where)
    long = Change("label", "m" * 255 + ":" + "l" * 63, {"version": 1}, "a" * 300, "ü" * 5000)
    do(one.apply(long))
    [[row]] = do(one.history(kind="label"))
    assert (row["key"], row["author"], row["reason"]) == (long.key, long.author, long.reason)


@pytest.mark.parametrize("text", ["a\0b", "\ud800"])
def test_what_is_no_text_is_refused_whatever_the_database(where: Path | str, text: str) -> None:
    one = store(where)
    with pytest.raises(Invalid, match="is no text"):
        do(one.apply(Change("route", "m", 1, "ada", text)))
    with pytest.raises(Invalid, match="is no text"):
        do(one.apply(set_route(1, key=text)))


def test_who_waits_for_a_change_hears_of_one_that_was_made_before(where: Path | str) -> None:
    one = store(where)
    [number] = do(one.apply(set_route(1)))
    assert do(one.changed(0)) == [number]


def test_who_waits_for_a_change_hears_of_another_process(where: Path | str) -> None:
    one, other = store(where), store(where)

    async def scenario() -> tuple[int, int]:
        waiting = asyncio.create_task(one.changed(0))
        await asyncio.sleep(0)
        number = await other.apply(set_route(1))
        async with asyncio.timeout(5):
            return number, await waiting

    number, heard = run(scenario())
    assert heard == number


def test_who_waits_looks_again_at_each_tick_and_not_before(tmp_path: Path) -> None:
    ticks = Ticks()
    one = store(tmp_path / "control.sqlite", pause=ticks)

    async def scenario() -> tuple[bool, int]:
        waiting = asyncio.create_task(one.changed(0))
        await ticks.asked()
        await store(tmp_path / "control.sqlite").apply(set_route(1))
        was_done = waiting.done()
        ticks.tick()
        return was_done, await waiting

    assert run(scenario()) == (False, 1)
    assert ticks.lengths == [TICK]


def test_a_store_that_does_not_answer_is_unavailable(tmp_path: Path) -> None:
    unreachable = Store(tmp_path / "gone" / "control.sqlite", clock=lambda: 0.0)
    with pytest.raises(Unavailable, match="does not answer"):
        do(unreachable.read())


@pytest.mark.parametrize("name", ["with space", "a?b", "a#b", "a%b", "a%20b", "größe"])
def test_the_folder_of_the_store_may_have_any_name(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    do(store(folder / "control.sqlite").apply(set_route(1)))
    assert (folder / "control.sqlite").stat().st_size > 0
