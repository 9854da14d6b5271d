"""Leadership: one leads, the others wait; who is not sure to lead says so."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path

import psycopg
import pytest
from database import PostgresServer
from ticking import Ticks

from serve.control.storing.leadership import Leadership, leadership_of
from serve.control.storing.limits import Limits
from serve.core.errors import Unavailable
from serve.processes import hold_lock

Where = Path | str


def leader(where: Where, folder: Path, pause: Ticks | None = None) -> Leadership:
    limits = Limits(connect=2, answer=0.4)
    return leadership_of(where, folder / "leader", pause=pause or asyncio.sleep, limits=limits)


def test_one_leads_and_another_does_not(where: Where, tmp_path: Path) -> None:
    async def scenario() -> None:
        one, two = leader(where, tmp_path), leader(where, tmp_path)
        assert one.lost.is_set()
        assert await one.try_acquire() and not one.lost.is_set()
        assert not await two.try_acquire() and two.lost.is_set()
        await one.release()
        assert one.lost.is_set()
        assert await two.try_acquire()
        await two.release()

    asyncio.run(scenario())


def test_who_stands_by_leads_as_soon_as_it_looks_and_nobody_does(
    where: Where, tmp_path: Path
) -> None:
    async def scenario() -> None:
        ticks = Ticks()
        one, two = leader(where, tmp_path), leader(where, tmp_path, ticks)
        await one.acquire()
        waiting = asyncio.create_task(two.acquire())
        await ticks.asked()
        await one.release()
        assert not waiting.done() and two.lost.is_set()
        ticks.tick()
        await waiting
        assert not two.lost.is_set()
        await two.release()

    asyncio.run(scenario())


def test_the_lock_of_a_state_folder_is_the_one_that_every_process_of_ours_takes(
    tmp_path: Path,
) -> None:
    with hold_lock(tmp_path / "leader"):
        assert not asyncio.run(leader(tmp_path / "control.sqlite", tmp_path).try_acquire())


def test_two_schemas_of_a_database_have_a_leader_each(
    postgresql: PostgresServer, tmp_path: Path
) -> None:
    url = postgresql.new_database()

    async def scenario() -> None:
        one = leader(url, tmp_path)
        two = leader(f"{url}?options=-csearch_path%3Dpg_catalog", tmp_path)
        assert await one.try_acquire() and await two.try_acquire()
        await one.release()
        await two.release()

    asyncio.run(scenario())


@contextlib.asynccontextmanager
async def keeping(one: Leadership) -> AsyncIterator["asyncio.Task[None]"]:
    """It watches over its leadership meanwhile."""
    task = asyncio.create_task(one.keep())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await one.release()


async def within(waiting: Awaitable[object]) -> None:
    async with asyncio.timeout(20):
        await waiting


def test_who_led_before_the_database_went_leads_after_it_came_back(
    own: PostgresServer, tmp_path: Path
) -> None:
    url = own.new_database()

    async def scenario() -> None:
        ticks = Ticks()
        one = leader(url, tmp_path, ticks)
        await one.acquire()
        async with keeping(one) as kept:
            await ticks.asked()
            await asyncio.to_thread(own.stop, "immediate")
            await within(one.lost.wait())  # before any tick: the server's end is heard
            with pytest.raises(Unavailable):
                await leader(url, tmp_path).try_acquire()
            await asyncio.to_thread(own.start)
            while one.lost.is_set():
                await ticks.asked()
                ticks.tick()
            assert not kept.done()
            assert not await leader(url, tmp_path).try_acquire()

    asyncio.run(scenario())


def test_who_finds_another_leader_after_the_database_came_back_is_told_to_end(
    own: PostgresServer, tmp_path: Path
) -> None:
    url = own.new_database()

    async def scenario() -> None:
        ticks = Ticks()
        one, two = leader(url, tmp_path, ticks), leader(url, tmp_path)
        await one.acquire()
        async with keeping(one) as kept:
            await ticks.asked()
            await asyncio.to_thread(own.stop, "immediate")
            await within(one.lost.wait())
            await ticks.asked()
            await asyncio.to_thread(own.start)
            await two.acquire()
            ticks.tick()
            await within(kept)
            assert one.lost.is_set() and not two.lost.is_set()
            await two.release()

    asyncio.run(scenario())


def test_a_leader_whose_connection_alone_was_cut_goes_on_leading(
    own: PostgresServer, tmp_path: Path
) -> None:
    url = own.new_database()

    async def scenario() -> None:
        ticks = Ticks()
        one = leader(url, tmp_path, ticks)
        await one.acquire()
        async with keeping(one) as kept:
            await ticks.asked()
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute(
                    "select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory'"
                )
            await ticks.asked_times(2)
            assert not kept.done() and not one.lost.is_set()
            assert not await leader(url, tmp_path).try_acquire()

    asyncio.run(scenario())


def test_a_leader_does_not_take_its_own_lost_connection_for_another_leader(
    own: PostgresServer, tmp_path: Path
) -> None:
    url = own.new_database()

    async def scenario() -> None:
        ticks = Ticks()
        one = leader(url, tmp_path, ticks)
        await one.acquire()
        async with keeping(one) as kept:
            await ticks.asked()
            own.freeze()
            ticks.tick()
            await within(one.lost.wait())
            own.thaw()
            while one.lost.is_set():
                await ticks.asked()
                ticks.tick()
            assert not kept.done()

    asyncio.run(scenario())
