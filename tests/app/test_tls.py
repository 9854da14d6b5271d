"""TLS on real sockets: who gets in, what becomes of the files, and what the log says."""

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from builders import Clock
from certificates import Authority
from loops import in_each_loop

from serve.app.http_server import HttpServer
from serve.app.internal_http import InternalConnection
from serve.app.ports import listener
from serve.app.tls import HTTP, HTTP2, Tls, client_context
from serve.app.tls_failures import Failures, failure
from serve.core.errors import CannotStart
from serve.settings import Settings

NOON = datetime(2030, 6, 15, 12, tzinfo=UTC).timestamp()
DAY = 86400.0


@pytest.fixture(autouse=True)
def hear(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "servegate")


class Echo(asyncio.Protocol):
    """Says back what it hears."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)  # type: ignore[attr-defined]


@asynccontextmanager
async def echoing(tls: Tls, name: str = "http", protocol: str = HTTP) -> Any:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Echo, "127.0.0.1", 0, ssl=tls.listener(name, protocol))
    yield server.sockets[0].getsockname()[1]
    server.close()


class Client:
    """A blocking TLS client with OpenSSL's own idea of trust; used in threads."""

    def __init__(
        self, trusted: Path, *, shown: tuple[Path, Path] | None = None, offers: tuple[str, ...] = ()
    ) -> None:
        self._context = ssl.create_default_context(cafile=str(trusted))
        if shown:
            self._context.load_cert_chain(*shown)
        if offers:
            self._context.set_alpn_protocols(offers)

    async def connect(self, port: int) -> ssl.SSLSocket:
        return await asyncio.to_thread(self._connect, port)

    async def is_refused(self, port: int) -> bool:
        return await asyncio.to_thread(self._is_refused, port)

    def _connect(self, port: int) -> ssl.SSLSocket:
        plain = socket.create_connection(("127.0.0.1", port), timeout=5)
        return self._context.wrap_socket(plain, server_hostname="localhost")

    def _is_refused(self, port: int) -> bool:
        """TLS 1.3 tells a client that it was refused only when it reads."""
        try:
            with self._connect(port) as one:
                one.sendall(b"x")
                return not one.recv(1)
        except (ssl.SSLError, ConnectionError):
            return True


async def echoes(one: ssl.SSLSocket) -> bool:
    await asyncio.to_thread(one.sendall, b"hello")
    return await asyncio.to_thread(one.recv, 5) == b"hello"


def certificate(one: ssl.SSLSocket) -> bytes | None:
    return one.getpeercert(binary_form=True)


def plainly(port: int, said: bytes = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n") -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=5) as one:
        one.sendall(said)
        try:
            assert not one.recv(100)
        except ConnectionError:
            pass


def samples(tls: Tls) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in tls.collect()
        for sample in family.samples
    }


def failures(tls: Tls) -> dict[tuple[str, ...], float]:
    name = "servegate_tls_handshake_failures_total"
    return {key[1:]: value for key, value in samples(tls).items() if key[0] == name}


# --- who gets in ----------------------------------------------------------------------------------


@in_each_loop
async def test_a_listener_speaks_tls_and_names_its_protocol(authority: Authority) -> None:
    tls = Tls(*authority.issue("one"))

    for protocol in (HTTP, HTTP2):
        async with echoing(tls, protocol=protocol) as port:
            client = Client(authority.path, offers=(HTTP2, HTTP))
            one = await client.connect(port)
            assert await echoes(one)
            assert one.selected_alpn_protocol() == protocol
            one.close()
    assert not failures(tls)


@in_each_loop
async def test_each_kind_of_client_that_fails_is_told_of_in_one_line(
    authority: Authority, stranger: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    tls = Tls(*authority.issue("one"))

    async with echoing(tls) as port:
        await asyncio.to_thread(plainly, port)
        await asyncio.to_thread(plainly, port, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        assert await Client(stranger.path).is_refused(port)
    assert failures(tls) == {("http", "no_tls"): 2, ("http", "untrusted"): 1}
    assert caplog.messages == [
        "http: a client did not use TLS; use https, or a secure gRPC channel",
        "http: a client does not trust the server certificate; give it the certificate of the CA",
    ]


@in_each_loop
async def test_clients_have_to_show_a_certificate_when_that_is_asked(
    authority: Authority, stranger: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    tls = Tls(*authority.issue("one"), authority.path)
    good = authority.issue("client", "client")
    expired = authority.issue("old", "client", ends=datetime(2020, 1, 1))

    async with echoing(tls, "grpc", HTTP2) as port:
        one = await Client(authority.path, shown=good).connect(port)
        assert await echoes(one)
        one.close()
        for shown in (None, expired, stranger.issue("client", "client")):
            client = Client(authority.path, shown=shown)
            assert await client.is_refused(port)
    assert failures(tls) == {
        ("grpc", "no_client_certificate"): 1,
        ("grpc", "client_certificate"): 2,
    }
    assert caplog.messages == [
        "grpc: a client presented no certificate, but 'tls_client_ca' requires one",
        "grpc: a client certificate was rejected: certificate has expired",
    ]


def error(reason: str) -> ssl.SSLError:
    found = ssl.SSLError(1, reason)
    found.reason = reason
    return found


def test_a_storm_is_one_line_in_a_second_which_says_how_many_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock()
    failures = Failures(clock)
    for _ in range(20):
        failures.note("http", error("HTTP_REQUEST"))
        clock.now += 0.125
    assert len(caplog.messages) == 3
    assert caplog.messages[1].endswith("(and 7 more since the last line)")
    (family,) = failures.collect()
    assert [sample.value for sample in family.samples] == [20]


def test_kinds_and_listeners_do_not_silence_each_other(caplog: pytest.LogCaptureFixture) -> None:
    failures = Failures(Clock())
    for name in ("http", "grpc"):
        for reason in ("HTTP_REQUEST", "TLSV1_ALERT_UNKNOWN_CA", "NO_SHARED_CIPHER"):
            failures.note(name, error(reason))
    assert len(caplog.messages) == 6


def test_a_reason_that_nobody_foresaw_is_told_in_openssls_words() -> None:
    found = failure(error("BAD_EXTENSION"))
    assert (found.kind, found.sentence) == ("other", "a TLS handshake failed: bad extension")


# --- the files change -----------------------------------------------------------------------------


@in_each_loop
async def test_a_new_pair_is_for_new_connections_and_open_ones_stay(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    chain, key = authority.issue("one")
    new_chain, new_key = authority.issue("two", ends=datetime(2077, 1, 1))
    tls = Tls(chain, key, is_loud=True)
    client = Client(authority.path)

    async with echoing(tls) as port:
        before = await client.connect(port)
        new_chain.replace(chain)
        tls.look()
        assert not caplog.messages  # the key may be about to be written
        for _ in range(3):
            tls.look()
        unchanged = await client.connect(port)
        assert certificate(unchanged) == certificate(before)
        new_key.replace(key)
        tls.look()
        after = await client.connect(port)
        assert certificate(after) != certificate(before)
        for one in (before, after):
            assert await echoes(one)
        for one in (before, unchanged, after):
            one.close()
    told, renewed = caplog.messages
    assert told.startswith(
        f"keeping the current certificate: the private key {key} does not belong"
    )
    assert renewed == "loaded a new certificate, which expires on 2077-01-01 00:00 UTC"
    assert samples(tls)["servegate_tls_not_after_seconds",] == 3376684800


def test_an_expired_pair_never_takes_the_place_of_one_that_is_valid(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    tls = Tls(*authority.issue("one"), is_loud=True)
    authority.issue("one", ends=datetime(2020, 1, 1))  # into the same files
    tls.look()
    tls.look()
    (told,) = caplog.messages
    assert "has expired: it expired on 2020-01-01" in told
    assert samples(tls)["servegate_tls_not_after_seconds",] > NOON


def test_files_that_are_gone_for_a_while_change_nothing_and_only_one_process_says_that_they_are(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    chain, key = authority.issue("one")
    tls, another = Tls(chain, key, is_loud=True), Tls(chain, key)
    kept = chain.rename(chain.with_name("kept"))
    tls.look()
    kept.rename(chain)
    tls.look()
    tls.look()
    chain.unlink()
    another.look()
    another.look()
    assert not caplog.messages


# --- the end comes near ---------------------------------------------------------------------------


def test_an_end_within_two_weeks_is_a_warning_a_day(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    wall = Clock(NOON - 14.5 * DAY)
    pair = authority.issue("one", ends=datetime(2030, 6, 15, 12))
    tls = Tls(*pair, is_loud=True, wall=wall)
    tls.look()
    assert not caplog.messages
    for _ in range(4):
        wall.now += DAY / 2
        tls.look()
    assert caplog.messages == [f"the certificate {pair[0]} expires on 2030-06-15 12:00 UTC"] * 2
    caplog.clear()
    wall.now = NOON + 1
    tls.look()
    assert caplog.messages == [f"the certificate {pair[0]} expired on 2030-06-15 12:00 UTC"]
    assert caplog.records[0].levelno == logging.ERROR


def settings_of(pair: tuple[Path, Path], **more: str) -> Settings:
    return Settings(tls_cert=str(pair[0]), tls_key=str(pair[1]), **more)  # type: ignore[arg-type]


def test_nothing_starts_with_a_certificate_that_is_not_valid(authority: Authority) -> None:
    old = settings_of(authority.issue("old", ends=datetime(2020, 1, 1)))
    with pytest.raises(CannotStart, match="has expired: it expired on 2020-01-01 00:00 UTC"):
        Tls.for_start(old)
    assert Tls.of(old) is not None  # a child that is started again serves on
    new = settings_of(authority.issue("new", begins=datetime(2090, 1, 1)))
    with pytest.raises(CannotStart, match="is not valid yet: it is valid from 2090-01-01"):
        Tls.for_start(new)


def test_settings_that_lack_the_certificate_are_refused() -> None:
    assert Tls.of(Settings()) is None
    with pytest.raises(CannotStart, match="'tls_key' is set, but 'tls_cert' is not"):
        Tls.of(Settings(tls_key="key.pem"))
    with pytest.raises(CannotStart, match="'tls_client_ca' is set, but 'tls_cert' is not"):
        Tls.of(Settings(tls_client_ca="ca.pem"))


def test_an_authority_that_cannot_be_read_is_named(authority: Authority, tmp_path: Path) -> None:
    pair = authority.issue("one")
    for client_ca in (tmp_path / "nowhere", pair[1]):
        tls = Tls.of(settings_of(pair, tls_client_ca=str(client_ca)))
        assert tls is not None
        with pytest.raises(CannotStart, match=f"the certificates in {client_ca} cannot be read"):
            tls.listener("http", HTTP)


# --- our own processes ----------------------------------------------------------------------------


async def answer_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
    await writer.drain()
    writer.close()


@in_each_loop
async def test_processes_that_share_a_certificate_trust_each_other_by_its_names(
    authority: Authority, stranger: Authority
) -> None:
    pair = authority.issue("one", "gateway.example")
    other = stranger.issue("one", "gateway.example")
    tls = Tls(*pair, authority.path)

    context = tls.listener("admin", HTTP)
    server = await asyncio.start_server(answer_once, "127.0.0.1", 0, ssl=context)
    url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with InternalConnection(url, trust=partial(client_context, settings_of(pair))) as line:
        assert (await line.get("/")).body == b"ok"
    for trust in (partial(client_context, settings_of(other)), ssl.create_default_context):
        async with InternalConnection(url, trust=trust) as line:
            with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
                await line.get("/")
    misnamed = url.replace("127.0.0.1", "localhost")
    async with InternalConnection(
        misnamed, trust=partial(client_context, settings_of(pair))
    ) as line:
        with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
            await line.get("/")
    server.close()


def test_a_certificate_that_cannot_be_read_is_one_more_reason_not_to_be_connected(
    authority: Authority,
) -> None:
    chain, key = authority.issue("one")
    settings = settings_of((chain, key))
    chain.unlink()
    with pytest.raises(OSError, match="cannot be read"):
        client_context(settings)


# --- a server -------------------------------------------------------------------------------------


async def answer(scope: Any, receive: Any, send: Any) -> None:
    body = str(scope["scheme"]).encode()
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@asynccontextmanager
async def serving(
    authority: Authority, **more: Any
) -> AsyncIterator[tuple[HttpServer, socket.socket]]:
    context = Tls(*authority.issue("one")).listener("http", HTTP)
    with listener("127.0.0.1", 0) as port:
        port.listen()  # who connects before the server waits
        server = HttpServer(answer, tls=context, timeout_graceful_shutdown=1, **more)
        running = asyncio.create_task(server.serve(sockets=[port]))
        yield server, port
        server.should_exit = True
        await running


@in_each_loop
async def test_a_server_speaks_tls_and_ends_with_its_connections(authority: Authority) -> None:
    trust = ssl.create_default_context(cafile=str(authority.path))
    async with AsyncExitStack() as stack:
        _, port = await stack.enter_async_context(serving(authority))
        url = f"https://localhost:{port.getsockname()[1]}"
        async with InternalConnection(url, trust=lambda: trust) as line:
            for _ in range(2):
                assert (await line.get("/")).body == b"https"
            await stack.aclose()
            with pytest.raises(OSError):
                await line.get("/")


@in_each_loop
async def test_a_client_that_does_not_finish_its_handshake_is_cut_off(authority: Authority) -> None:
    async with serving(authority, handshake=0.2) as (_, port):
        with socket.create_connection(port.getsockname()) as one:
            one.setblocking(False)
            one.send(b"\x16\x03\x01")
            assert await asyncio.get_running_loop().sock_recv(one, 1) == b""
