"""KEDA's port as the control process opens it: its certificate, its keys, its end, its restart."""

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

import grpc
import grpc.aio
import pytest
from admin.keda.boards import board, told
from admin.keda.stubs import BOUND, ScaledObject
from builders import until
from certificates import Authority, days
from loops import in_each_loop, in_loop
from ports import free_ports

from serve.app.keda import Keda, keda_of
from serve.app.ports import reserve
from serve.capacity.scaling.signals import Code
from serve.control.decisions import KEY, Decisions
from serve.control.scaling.board import HintBoard
from serve.control.storage.store import StoredEntry
from serve.core.access import ApiKey, Role
from serve.core.errors import CannotStart
from serve.settings import Settings

POOL = "default"
LATER = 4e9  # seconds of the epoch: hints of then are not old while tests run
FAILED = grpc.ChannelConnectivity.TRANSIENT_FAILURE


def settings(**more: object) -> Settings:
    return Settings(keda_port=free_ports(1)[0], **more)  # type: ignore[arg-type]


def secured(authority: Authority, **more: object) -> Settings:
    chain, key = authority.issue("server")
    return settings(tls_cert=str(chain), tls_key=str(key), **more)


def hints(desired: int = 5) -> HintBoard:
    return board(told(desired=desired, at=LATER))


def kept(role: Role = Role.PREDICTOR) -> tuple[Decisions, str]:
    key, words = ApiKey.create(role, ("nothing",))
    body = {"digest": key.digest, "role": role.value, "models": ["nothing"], "expires": None}
    return Decisions(MappingProxyType({(KEY, key.id): StoredEntry(body, 1)})), words


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


def port(one: Settings, shown: HintBoard | None = None, decisions: Decisions | None = None) -> Any:
    keda = keda_of(one, shown or hints(), decisions=lambda: decisions or Decisions())
    return running(keda)


def in_clear(one: Settings) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(f"127.0.0.1:{one.keda_port}")


def over_tls(one: Settings, authority: Authority, *shown: Path) -> grpc.aio.Channel:
    """`shown` is a certificate and its key."""
    chain, key = [path.read_bytes() for path in shown] or (None, None)
    trusted = grpc.ssl_channel_credentials(authority.path.read_bytes(), key, chain)
    return grpc.aio.secure_channel(f"localhost:{one.keda_port}", trusted)


async def asked(channel: grpc.aio.Channel, shown: str = "", **metadata: str) -> int:
    async with channel:
        ((_, number, _),) = await ScaledObject(channel, shown, pool=POOL, **metadata).metrics()
        return number


async def refusal(channel: grpc.aio.Channel, shown: str = "", **metadata: str) -> grpc.StatusCode:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await asked(channel, shown, **metadata)
    code: grpc.StatusCode = refused.value.code()
    return code


async def turned_away(channel: grpc.aio.Channel) -> bool:
    """Whether no connection comes about; the client sees no more of why than that."""
    async with channel:
        state = channel.get_state(try_to_connect=True)
        while state not in (grpc.ChannelConnectivity.READY, FAILED):
            await channel.wait_for_state_change(state)
            state = channel.get_state()
        return state is FAILED


@in_loop
async def test_the_port_tells_the_boards_number_says_where_and_is_free_when_it_has_ended(
    caplog: pytest.LogCaptureFixture,
) -> None:
    one = settings()
    caplog.set_level(logging.INFO, "servegate.keda")
    async with port(one):
        assert await asked(in_clear(one)) == 5
    assert f"port {one.keda_port} of 127.0.0.1" in caplog.text
    reserve(one.admin_host, one.keda_port, "keda-port").close()


def test_without_a_port_there_is_nothing_to_run() -> None:
    asyncio.run(keda_of(Settings(), hints(), decisions=Decisions).run())


@in_loop
async def test_a_port_that_is_in_use_is_said_and_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    one = settings()
    async with AsyncExitStack() as first:
        await first.enter_async_context(port(one, hints(4)))
        assert await asked(in_clear(one)) == 4
        async with running(Keda(one, hints(5), admit=lambda credential: None, again=0.0)):
            await until(lambda: "cannot listen on" in caplog.text)
            await first.aclose()
            assert await asked(in_clear(one)) == 5


@in_each_loop
async def test_a_client_goes_on_after_a_restart_and_hears_the_wake_that_came_meanwhile() -> None:
    one, asleep = settings(), board(told(POOL, 0, Code.IDLE, ready=0, at=LATER))
    after = HintBoard()
    async with in_clear(one) as channel:
        scaled = ScaledObject(channel, pool=POOL)
        async with port(one, asleep):
            stream = scaled.open("StreamIsActive")
            assert not await scaled.is_active()
        assert await stream.read() is grpc.aio.EOF
        assert await stream.code() is grpc.StatusCode.OK  # so that KEDA comes back soon
        async with port(one, after):
            stream = scaled.open("StreamIsActive")
            with pytest.raises(grpc.aio.AioRpcError) as early:
                await scaled.metrics()
            assert early.value.code() is grpc.StatusCode.UNAVAILABLE
            after.put([told(POOL, 1, Code.WAKING, ready=0, at=LATER)])
            assert (await stream.read()).result
            assert await scaled.metrics("m") == [("m", 1, 1.0)]


@in_each_loop
async def test_with_a_certificate_only_tls_gets_in(
    authority: Authority, stranger: Authority
) -> None:
    one = secured(authority)
    async with port(one):
        assert await asked(over_tls(one, authority)) == 5
        assert await turned_away(over_tls(one, stranger))
        assert await turned_away(in_clear(one))


@in_loop
async def test_a_clients_certificate_stands_for_a_key(
    authority: Authority, stranger: Authority
) -> None:
    one = secured(authority, tls_client_ca=str(authority.path))
    async with port(one, decisions=kept()[0]):
        assert await asked(over_tls(one, authority, *authority.issue("keda"))) == 5
        assert await turned_away(over_tls(one, authority))
        assert await turned_away(over_tls(one, authority, *stranger.issue("keda")))


@in_loop
async def test_once_there_are_keys_any_of_them_will_do_and_none_will_not() -> None:
    for role in Role:
        decisions, words = kept(role)
        one = settings()
        async with port(one, decisions=decisions):
            assert await asked(in_clear(one), f"Bearer {words}") == 5, role
            assert await asked(in_clear(one), keyFromEnv=words) == 5, role
            for wrong in ("", "Bearer sg_abcdef_0123456789abcdef0"):
                code = await refusal(in_clear(one), wrong)
                assert code is grpc.StatusCode.UNAUTHENTICATED, (role, wrong)


@in_loop
async def test_where_others_reach_the_port_a_key_is_needed_from_the_start() -> None:
    one = settings(admin_host="0.0.0.0")
    async with port(one):
        assert await refusal(in_clear(one)) is grpc.StatusCode.UNAUTHENTICATED


@in_loop
async def test_what_is_too_long_or_no_grpc_at_all_is_refused_and_disturbs_no_other_client() -> None:
    one = settings()
    async with port(one), in_clear(one) as channel:
        scaled = ScaledObject(channel, pool=POOL)
        await scaled.metrics()
        for noise in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x00\x05hello", b"\0" * 99):
            reader, writer = await asyncio.open_connection("127.0.0.1", one.keda_port)
            writer.write(noise)
            writer.write_eof()
            await reader.read()
            writer.close()
        code = await refusal(in_clear(one), more="x" * (1 << 16))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        ((_, number, _),) = await scaled.metrics()
        assert number == 5


def serial(one: Settings, authority: Authority) -> int:
    context = ssl.create_default_context(cafile=str(authority.path))
    context.set_alpn_protocols(["h2"])
    with (
        socket.create_connection(("127.0.0.1", one.keda_port)) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as wrapped,
    ):
        return int(str((wrapped.getpeercert() or {})["serialNumber"]), 16)


@in_loop
async def test_a_good_new_certificate_is_shown_from_the_next_connection_on_and_no_bad_one(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    expired = authority.issue("expired", ends=days(-1))
    no_certificate = authority.issue("nonsense")
    no_certificate[0].write_text("nonsense")
    anothers_key = (authority.issue("next")[0], authority.issue("third")[1])
    good = authority.issue("good")

    one = secured(authority)
    async with port(one):
        assert await asked(over_tls(one, authority)) == 5
        first = await asyncio.to_thread(serial, one, authority)
        for chain, key in (expired, no_certificate, anothers_key, good):
            chain.replace(one.tls_cert)
            key.replace(one.tls_key)
            is_same = await asyncio.to_thread(serial, one, authority) == first
            assert is_same == (chain != good[0]), chain
    assert not caplog.records


def test_a_client_authority_that_is_not_there_stops_the_start(authority: Authority) -> None:
    one = secured(authority, tls_client_ca=str(authority.folder / "nowhere.pem"))
    with pytest.raises(CannotStart, match=r"nowhere\.pem cannot be read"):
        asyncio.run(keda_of(one, hints(), decisions=Decisions).run())
