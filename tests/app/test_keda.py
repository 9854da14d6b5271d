"""KEDA's port as the control process opens it: its certificate, its keys, its end, its restart."""

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

import grpc
import grpc.aio
import pytest
import uvloop
from builders import until
from certificates import Authority, days
from listeners.keda.boards import board, told
from listeners.keda.stubs import BOUND, ScaledObject
from ports import free_ports

from serve.app.keda import Keda, keda_of
from serve.app.ports import reserve
from serve.capacity.scaling.signals import Code
from serve.control.decisions import KEY, Decisions
from serve.control.scaling.board import Board
from serve.control.storing.store import Entry
from serve.core.access import Key, Role
from serve.core.errors import CannotStart
from serve.settings import Settings

POOL = "default"
LATER = 4e9  # seconds of the epoch: hints of then are not old while tests run

RUNNERS = [pytest.param(uvloop.run, id="uvloop"), pytest.param(asyncio.run, id="asyncio")]
Runner = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def settings(**more: object) -> Settings:
    return Settings(keda_port=free_ports(1)[0], **more)  # type: ignore[arg-type]


def secured(authority: Authority, **more: object) -> Settings:
    chain, key = authority.issue("server")
    return settings(tls_cert=str(chain), tls_key=str(key), **more)


def of(one: Settings, shown: Board, decisions: Decisions | None = None) -> Keda:
    return keda_of(one, shown, decisions=lambda: decisions or Decisions())


def hints(desired: int = 3) -> Board:
    return board(told(desired=desired, at=LATER))


@asynccontextmanager
async def running(keda: Keda) -> AsyncIterator[None]:
    """The port for the block, ended as the control process ends it."""
    task = asyncio.create_task(keda.run())
    try:
        async with asyncio.timeout(BOUND):
            yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def address(one: Settings) -> str:
    return f"localhost:{one.keda_port}"


def in_clear(one: Settings) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(f"127.0.0.1:{one.keda_port}")


def over_tls(one: Settings, authority: Authority, *shown: Path) -> grpc.aio.Channel:
    """`shown` is a certificate and its key."""
    chain, key = [path.read_bytes() for path in shown] or (None, None)
    trusted = grpc.ssl_channel_credentials(authority.path.read_bytes(), key, chain)
    return grpc.aio.secure_channel(address(one), trusted)


async def asked(channel: grpc.aio.Channel, shown: str = "", **metadata: str) -> int:
    async with channel:
        ((_, number, _),) = await ScaledObject(channel, shown, pool=POOL, **metadata).metrics()
        return number


async def turned_away(channel: grpc.aio.Channel) -> bool:
    """Whether no connection comes about; the client sees no more of why than that."""
    async with channel:
        state = channel.get_state(try_to_connect=True)
        while state not in (grpc.ChannelConnectivity.READY, FAILED):
            await channel.wait_for_state_change(state)
            state = channel.get_state()
        return state is FAILED


FAILED = grpc.ChannelConnectivity.TRANSIENT_FAILURE


@pytest.mark.parametrize("run", RUNNERS)
def test_the_port_tells_the_boards_number(run: Runner) -> None:
    async def act() -> int:
        one = settings()
        async with running(of(one, hints(5))):
            return await asked(in_clear(one))

    assert run(act()) == 5


def test_without_a_port_there_is_nothing_to_run() -> None:
    asyncio.run(of(Settings(), hints()).run())


def test_a_port_that_somebody_has_later_is_said_and_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def act() -> list[int]:
        one = settings()
        async with AsyncExitStack() as first:
            await first.enter_async_context(running(of(one, hints(4))))
            heard = [await asked(in_clear(one))]
            async with running(Keda(one, hints(5), admit=lambda credential: None, again=0.0)):
                await until(lambda: "cannot be used" in caplog.text)
                await first.aclose()
                heard.append(await asked(in_clear(one)))
        return heard

    assert asyncio.run(act()) == [4, 5]


@pytest.mark.parametrize("run", RUNNERS)
def test_streams_end_well_with_the_process_so_that_keda_comes_back_soon(run: Runner) -> None:
    async def act() -> grpc.StatusCode:
        one = settings()
        async with in_clear(one) as channel:
            async with running(of(one, hints())):
                stream = ScaledObject(channel, pool=POOL).open("StreamIsActive")
                assert (await stream.read()).result
            code: grpc.StatusCode = await stream.code()
            return code

    assert run(act()) is grpc.StatusCode.OK


@pytest.mark.parametrize("run", RUNNERS)
def test_a_client_goes_on_after_a_restart_and_hears_the_wake_that_came_meanwhile(
    run: Runner,
) -> None:
    async def act() -> list[object]:
        one, asleep = settings(), board(told(POOL, 0, Code.IDLE, ready=0, at=LATER))
        after, seen = Board(), list[object]()
        async with in_clear(one) as channel:
            scaled = ScaledObject(channel, pool=POOL)
            async with running(of(one, asleep)):
                stream = scaled.open("StreamIsActive")
                seen.append(await scaled.is_active())
            seen.append(await stream.read() is grpc.aio.EOF)
            async with running(of(one, after)):
                stream = scaled.open("StreamIsActive")
                with pytest.raises(grpc.aio.AioRpcError) as early:
                    await scaled.metrics()
                seen.append(early.value.code())
                after.put([told(POOL, 1, Code.WAKING, ready=0, at=LATER)])
                seen.append((await stream.read()).result)
                seen.append(await scaled.metrics("m"))
        return seen

    unavailable = grpc.StatusCode.UNAVAILABLE
    assert run(act()) == [False, True, unavailable, True, [("m", 1, 1.0)]]


def test_the_port_is_free_when_it_has_ended() -> None:
    async def act() -> Settings:
        one = settings()
        async with running(of(one, hints())):
            await asked(in_clear(one))
        return one

    one = asyncio.run(act())
    reserve(one.admin_host, one.keda_port, "keda-port").close()


@pytest.mark.parametrize("run", RUNNERS)
def test_with_a_certificate_only_tls_gets_in(
    run: Runner, authority: Authority, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    stranger = Authority(tmp_path / "other")

    async def act() -> list[object]:
        one = secured(authority)
        async with running(of(one, hints(5))):
            return [
                await asked(over_tls(one, authority)),
                await turned_away(over_tls(one, stranger)),
                await turned_away(in_clear(one)),
            ]

    assert run(act()) == [5, True, True]


def test_a_clients_certificate_stands_for_a_key(authority: Authority, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    stranger = Authority(tmp_path / "other")

    async def act() -> list[object]:
        one = secured(authority, tls_client_ca=str(authority.path))
        async with running(of(one, hints(5), kept()[0])):
            return [
                await asked(over_tls(one, authority, *authority.issue("keda"))),
                await turned_away(over_tls(one, authority)),
                await turned_away(over_tls(one, authority, *stranger.issue("keda"))),
            ]

    assert asyncio.run(act()) == [5, True, True]


def kept(role: Role = Role.PREDICTOR) -> tuple[Decisions, str]:
    """Decisions with one key, and its words."""
    key, words = Key.create(role, ("nothing",))
    body = {"digest": key.digest, "role": role.value, "models": ["nothing"], "expires": None}
    return Decisions(MappingProxyType({(KEY, key.id): Entry(body, 1)})), words


@pytest.mark.parametrize("role", Role)
def test_once_there_are_keys_any_of_them_will_do_and_none_will_not(role: Role) -> None:
    decisions, words = kept(role)

    async def act() -> list[object]:
        one = settings()
        async with running(of(one, hints(5), decisions)):
            found: list[object] = [
                await asked(in_clear(one), f"Bearer {words}"),
                await asked(in_clear(one), keyFromEnv=words),
            ]
            for wrong in ("", "Bearer sg_abcdef_0123456789abcdef0"):
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await asked(in_clear(one), wrong)
                found.append(refused.value.code())
            return found

    nobody = grpc.StatusCode.UNAUTHENTICATED
    assert asyncio.run(act()) == [5, 5, nobody, nobody]


def test_where_others_reach_the_port_a_key_is_needed_from_the_start() -> None:
    async def act() -> grpc.StatusCode:
        one = settings(admin_host="0.0.0.0")
        async with running(of(one, hints())):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await asked(in_clear(one))
            code: grpc.StatusCode = refused.value.code()
            return code

    assert asyncio.run(act()) is grpc.StatusCode.UNAUTHENTICATED


def test_what_is_too_long_for_a_question_is_refused_before_it_is_read() -> None:
    async def act() -> grpc.StatusCode:
        one = settings()
        async with running(of(one, hints())):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await asked(in_clear(one), more="x" * (1 << 16))
            code: grpc.StatusCode = refused.value.code()
            return code

    assert asyncio.run(act()) is grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize(
    "noise", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x00\x05hello", b"\0" * 99]
)
def test_who_speaks_something_else_disturbs_nobody(noise: bytes) -> None:
    async def act() -> int:
        one = settings()
        async with running(of(one, hints(5))), in_clear(one) as channel:
            await ScaledObject(channel, pool=POOL).metrics()
            reader, writer = await asyncio.open_connection("127.0.0.1", one.keda_port)
            writer.write(noise)
            writer.write_eof()
            await reader.read()
            writer.close()
            ((_, number, _),) = await ScaledObject(channel, pool=POOL).metrics()
            return number

    assert asyncio.run(act()) == 5


def serial(one: Settings, authority: Authority) -> int:
    """The serial number of the certificate that the port shows."""
    context = ssl.create_default_context(cafile=str(authority.path))
    context.set_alpn_protocols(["h2"])
    with (
        socket.create_connection(("127.0.0.1", one.keda_port)) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as wrapped,
    ):
        return int(str((wrapped.getpeercert() or {})["serialNumber"]), 16)


def exchange(one: Settings, chain: Path, key: Path) -> None:
    chain.replace(one.tls_cert)
    key.replace(one.tls_key)


def test_a_new_certificate_is_shown_from_the_next_connection_on(authority: Authority) -> None:
    async def act() -> list[bool]:
        one = secured(authority)
        async with running(of(one, hints(5))):
            assert await asked(over_tls(one, authority)) == 5
            first = await asyncio.to_thread(serial, one, authority)
            same = await asyncio.to_thread(serial, one, authority)
            exchange(one, *authority.issue("next"))
            second = await asyncio.to_thread(serial, one, authority)
            return [same == first, second == first]

    assert asyncio.run(act()) == [True, False]


@pytest.mark.parametrize("what", ["expired", "no certificate", "another's key"])
def test_what_is_no_good_certificate_changes_nothing(
    authority: Authority, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def act() -> bool:
        one = secured(authority)
        async with running(of(one, hints(5))):
            assert await asked(over_tls(one, authority)) == 5
            first = await asyncio.to_thread(serial, one, authority)
            chain, key = authority.issue("next", ends=days(-1) if what == "expired" else None)
            if what == "no certificate":
                chain.write_text("nonsense")
            if what == "another's key":
                key = authority.issue("third")[1]
            exchange(one, chain, key)
            return await asyncio.to_thread(serial, one, authority) == first

    assert asyncio.run(act())
    assert not caplog.records


def test_a_client_authority_that_is_not_there_stops_the_start(authority: Authority) -> None:
    one = secured(authority, tls_client_ca=str(authority.folder / "nowhere.pem"))
    with pytest.raises(CannotStart, match=r"nowhere\.pem cannot be read"):
        asyncio.run(of(one, hints()).run())


def test_the_log_says_where_keda_may_ask(caplog: pytest.LogCaptureFixture) -> None:
    async def act() -> Settings:
        one = settings()
        async with running(of(one, hints())):
            await asked(in_clear(one))
        return one

    caplog.set_level(logging.INFO, "servegate.keda")
    one = asyncio.run(act())
    assert f"port {one.keda_port} of 127.0.0.1" in caplog.text
