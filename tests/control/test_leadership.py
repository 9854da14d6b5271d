"""Leadership: one leads, the others wait; who is not sure to lead says so."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import psycopg
import pytest
from database import PostgresServer
from ticking import Ticks

from serve.control.storage.leadership import Leadership, leadership_of
from serve.control.storage.limits import StoreTimeouts
from serve.core.errors import Unavailable
from serve.processes import hold_lock

Where = Path | str


def leader(where: Where, folder: Path, pause: Ticks | None = None) -> Leadership:
    limits = StoreTimeouts(connect=2, answer=0.4)
    return leadership_of(where, folder / "leader", pause=pause or asyncio.sleep, limits=limits)


async def test_one_leads_and_another_does_not(where: Where, tmp_path: Path) -> None:
    one, two = leader(where, tmp_path), leader(where, tmp_path)
    assert one.lost.is_set()
    assert await one.try_acquire() and not one.lost.is_set()
    assert not await two.try_acquire() and two.lost.is_set()
    await one.release()
    assert one.lost.is_set()
    assert await two.try_acquire()
    await two.release()
    with hold_lock(tmp_path / "leader"):  # the lock that all our processes take
        assert not await leader(tmp_path / "control.sqlite", tmp_path).try_acquire()


async def test_who_stands_by_leads_as_soon_as_it_looks_and_nobody_does(
    where: Where, tmp_path: Path
) -> None:
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


async def test_two_schemas_of_a_database_have_a_leader_each(
    postgresql: PostgresServer, tmp_path: Path
) -> None:
    url = postgresql.new_database()
    one = leader(url, tmp_path)
    two = leader(f"{url}?options=-csearch_path%3Dpg_catalog", tmp_path)
    assert await one.try_acquire() and await two.try_acquire()
    await one.release()
    await two.release()


class Led:
    """Somebody who leads, and watches over its leadership, in a database that may be stopped."""

    def __init__(self, url: str, folder: Path) -> None:
        self.ticks = Ticks()
        self.one = leader(url, folder, self.ticks)
        self.two = leader(url, folder)  # would like to lead
        self.kept: asyncio.Task[None] | None = None

    @property
    def has_ended(self) -> bool:
        return self.kept is None or self.kept.done()

    async def loses(self) -> None:
        async with asyncio.timeout(20):
            await self.one.lost.wait()

    async def leads_again(self) -> None:
        while self.one.lost.is_set():
            await self.ticks.asked()
            self.ticks.tick()
        assert not self.has_ended


@pytest.fixture
async def led(own: PostgresServer, tmp_path: Path) -> AsyncIterator[Led]:
    led = Led(own.new_database(), tmp_path)
    await led.one.acquire()
    led.kept = asyncio.create_task(led.one.keep())
    await led.ticks.asked()
    yield led
    led.kept.cancel()
    await asyncio.gather(led.kept, return_exceptions=True)
    await led.one.release()


async def test_who_led_before_the_database_went_leads_after_it_came_back(
    own: PostgresServer, led: Led
) -> None:
    await asyncio.to_thread(own.stop, "immediate")
    await led.loses()  # before any tick: the server's end is heard
    with pytest.raises(Unavailable):
        await led.two.try_acquire()
    await asyncio.to_thread(own.start)
    await led.leads_again()
    assert not await led.two.try_acquire()


async def test_who_finds_another_leader_after_the_database_came_back_is_told_to_end(
    own: PostgresServer, led: Led
) -> None:
    await asyncio.to_thread(own.stop, "immediate")
    await led.loses()
    await led.ticks.asked()
    await asyncio.to_thread(own.start)
    await led.two.acquire()
    led.ticks.tick()
    assert led.kept is not None
    async with asyncio.timeout(20):
        await led.kept
    assert led.one.lost.is_set() and not led.two.lost.is_set()
    await led.two.release()


async def test_a_leader_whose_connection_alone_was_cut_goes_on_leading(
    own: PostgresServer, led: Led
) -> None:
    with psycopg.connect(own.url(), autocommit=True) as connection:
        connection.execute(
            "select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory'"
        )
    await led.ticks.asked_times(2)
    assert not led.has_ended and not led.one.lost.is_set()
    assert not await led.two.try_acquire()


async def test_a_leader_does_not_take_its_own_lost_connection_for_another_leader(
    own: PostgresServer, led: Led
) -> None:
    own.freeze()
    led.ticks.tick()
    await led.loses()
    own.thaw()
    await led.leads_again()
