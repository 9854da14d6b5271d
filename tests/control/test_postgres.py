"""The store in PostgreSQL while that is gone, stands still, comes back, or cannot be used."""

import asyncio
import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator

import pytest
from database import ENCODED, PASSWORD, PostgresServer
from refusals import refusal
from relay import relay
from ticking import Ticks

from serve.control.storage.database import open_database
from serve.control.storage.limits import StoreTimeouts
from serve.control.storage.store import TICK, Store, StoreEdit
from serve.core.errors import CannotStart, Unavailable

SHORT = StoreTimeouts(connect=2, statement=0.3, answer=0.4)  # a connection cannot have less
FEW = 6.0  # seconds: these for an answer and a new connection, and some
Open = Callable[..., Store]
ROUTE = StoreEdit("route", "m", 1, "ada")


@pytest.fixture
def opened() -> Iterator[Open]:
    """Opens stores, which are closed at the end."""
    with contextlib.ExitStack() as stack:

        def open_store(
            url: str, pause: Callable[[float], Awaitable[None]] = asyncio.sleep
        ) -> Store:
            store = Store(url, clock=lambda: 0.0, pause=pause, limits=SHORT)
            stack.callback(store.close)
            store.migrate()
            return store

        yield open_store


def hidden(error: BaseException) -> bool:
    """Whether neither the error nor what it came from tells the password."""
    told = ""
    while error is not None:
        told += f"{error} {error!r}"
        error = error.__cause__ or error.__context__  # type: ignore[assignment]
    return PASSWORD not in told and ENCODED not in told


async def test_a_store_that_went_is_unavailable_and_comes_back(
    own: PostgresServer, opened: Open
) -> None:
    url = own.new_database()
    store = opened(url)
    await store.apply(ROUTE)
    await asyncio.to_thread(own.stop, "immediate")
    for call in (store.read, store.newest, lambda: store.apply(ROUTE)):
        with pytest.raises(Unavailable, match="does not answer") as caught:
            await call()
        assert hidden(caught.value)
    await asyncio.to_thread(own.start)
    assert ("route", "m") in await store.read()
    assert await store.apply(ROUTE) > 1


async def test_who_waits_for_a_change_has_it_one_tick_after_the_database_came_back(
    own: PostgresServer, opened: Open
) -> None:
    url = own.new_database()
    ticks = Ticks()
    store = opened(url, ticks)
    before = await store.apply(ROUTE)
    waiting = asyncio.create_task(store.changed(before))
    await ticks.asked()
    await asyncio.to_thread(own.stop, "immediate")
    ticks.tick()
    await ticks.asked()  # it has looked in vain, and waits again
    assert not waiting.done()
    await asyncio.to_thread(own.start)
    other = opened(url)
    after = await other.apply(ROUTE)
    ticks.tick()
    async with asyncio.timeout(20):
        assert await waiting == after
    assert set(ticks.lengths) == {TICK}


async def test_who_waits_for_a_change_is_told_before_the_next_tick(
    postgresql: PostgresServer, opened: Open
) -> None:
    url = postgresql.new_database()
    store, other = opened(url, Ticks()), opened(url)  # no tick ever ends
    for _ in range(3):
        seen = await store.newest()
        waiting = asyncio.create_task(store.changed(seen))
        await asyncio.sleep(0)
        written = await other.apply(ROUTE)
        async with asyncio.timeout(20):
            assert await waiting == written


@pytest.mark.slow
async def test_a_server_that_hangs_is_unavailable_within_seconds(
    own: PostgresServer, opened: Open
) -> None:
    url = own.new_database()
    store = opened(url)
    await store.read()
    own.freeze()
    begun, longest, turn = time.monotonic(), 0.0, time.monotonic()
    calls = [asyncio.create_task(store.read()) for _ in range(5)]
    while not all(call.done() for call in calls):
        await asyncio.sleep(0.01)
        longest, turn = max(longest, time.monotonic() - turn), time.monotonic()
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(result) for result in results] == [Unavailable] * 5
    assert time.monotonic() - begun < FEW
    assert longest < 1.0, "the event loop hung"
    own.thaw()
    async with asyncio.timeout(20):
        assert await store.read() == {}


def test_an_address_that_never_answers_is_unavailable_within_seconds() -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        url = f"postgresql://ada:{ENCODED}@127.0.0.1:{deaf.getsockname()[1]}/x"
        store = Store(url, clock=lambda: 0.0, limits=SHORT)
        begun = time.monotonic()
        with pytest.raises(Unavailable) as caught:
            asyncio.run(store.read())
        assert time.monotonic() - begun < FEW and hidden(caught.value)


def test_a_writer_holds_up_others_for_seconds_only(
    postgresql: PostgresServer, opened: Open
) -> None:
    url = postgresql.new_database()
    store, holder = opened(url), open_database(url)
    with holder.writing():
        begun = time.monotonic()
        with pytest.raises(Unavailable, match="does not answer"):
            asyncio.run(store.apply(ROUTE))
        assert time.monotonic() - begun < FEW
        assert asyncio.run(store.read()) == {}
    assert asyncio.run(store.apply(ROUTE)) > 0
    holder.close()


def test_a_wrong_url_or_password_is_refused_without_being_repeated(
    postgresql: PostgresServer, opened: Open
) -> None:
    for url, why in (
        (f"mysql://ada:{ENCODED}@h/x", "does not start with postgresql://"),
        (f"postgresql://ada:{ENCODED}%zz@h/x", "is not a PostgreSQL URL"),
        (f"postgresql://ada:{ENCODED}@h/x?no_such_option=1", "is not a PostgreSQL URL"),
    ):
        told = str(refusal(CannotStart, Store, url, clock=lambda: 0.0))
        assert why in told and ENCODED not in told and "gehe1m" not in told
    wrong = refusal(CannotStart, opened, postgresql.url().replace(ENCODED, "another-one"))
    assert "cannot be read" in str(wrong) and "authentication failed" in str(wrong)
    assert "another-one" not in repr(wrong)


def test_no_word_for_people_has_the_password(postgresql: PostgresServer, opened: Open) -> None:
    url = postgresql.new_database()
    store, database = opened(url), open_database(url)
    for word in (repr(store), repr(database), database.name):
        assert f"servegate@127.0.0.1:{postgresql.port}" in word
        assert "gehe1m" not in word
    database.close()
    more = opened(f"{url}?application_name=mine&options=-csearch_path%3Dpublic")
    assert asyncio.run(more.read()) == {}  # a URL says more than the defaults


def test_the_driver_is_loaded_only_for_a_url_and_the_error_says_how_to_install_it() -> None:
    code = """
import sys
from pathlib import Path
from serve.control.storage.store import Store
Store(Path('x'), clock=lambda: 0.0)
print('psycopg' in sys.modules)
sys.modules['psycopg'] = None
Store('postgresql://h/x', clock=lambda: 0.0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "False\n"
    assert "CannotStart" in done.stderr and "pip install '.[postgres]'" in done.stderr


def test_of_a_failed_statement_only_the_first_line_is_told(postgresql: PostgresServer) -> None:
    store = Store(postgresql.new_database(), clock=lambda: 0.0)  # never migrated
    with pytest.raises(Unavailable, match='relation "settings" does not exist') as caught:
        asyncio.run(store.read())
    assert "\n" not in caught.value.why
    store.close()


def test_a_change_whose_commit_was_not_answered_is_uncertain(
    postgresql: PostgresServer, opened: Open
) -> None:
    url = postgresql.new_database()
    with relay(postgresql.port, b"COMMIT\0") as between:
        store = opened(url.replace(str(postgresql.port), str(between.port)))
        between.armed = True
        with pytest.raises(Unavailable, match="failed during a commit") as caught:
            asyncio.run(store.apply(ROUTE))
        assert caught.value.try_this == "read the object again; the change may have been stored"
        assert ("route", "m") in asyncio.run(store.read())
        store.close()
