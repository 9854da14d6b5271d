"""gRPC over TLS: real handshakes, large answers, slow readers, and clients of other protocols."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

import grpc
import pytest
from builders import snapshot, target, until, view
from certificates import Authority
from grpc_wire import (
    BOUND,
    DATA,
    END_STREAM,
    LOOPS,
    PREFACE,
    STREAM,
    WINDOW_UPDATE,
    Client,
    Received,
    Scene,
    answer,
    frame,
    infer,
    message,
    play,
    settings,
    window,
)
from tritonclient.grpc import service_pb2, service_pb2_grpc

ONE = snapshot(view(target(1, "a")))
WIDE = PREFACE + settings(window=1 << 24, frame=1 << 18) + window(0, 1 << 24)


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def server(authority: Authority) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("server"))
    context.set_alpn_protocols(["h2"])
    return context


def trusting(authority: Authority, *protocols: str) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.path))
    context.set_alpn_protocols(protocols)
    return context


def secured(
    scenario: Callable[[Scene, Client], Awaitable[Received]], loop: str, authority: Authority
) -> Received:
    """Act with a client of HTTP/2 over TLS."""

    async def act(scene: Scene) -> Received:
        scene.triton.greeting = settings(window=1 << 24) + window(0, 1 << 24)
        return await scenario(scene, await scene.client(WIDE, secure=trusting(authority, "h2")))

    return play(act, loop, ONE, secure=server(authority))


@pytest.mark.parametrize("size", [8, 16_000, 100_000, 5_000_000])
def test_messages_of_any_size_pass_both_ways(loop: str, authority: Authority, size: int) -> None:
    async def scenario(scene: Scene, client: Client) -> Received:
        scene.triton.says = lambda request: answer(size=size)
        client.open(1)
        whole, cut, credit = message(infer(size=size)), 1 << 16, 1 << 20
        for at in range(0, len(whole), cut):
            while at + cut > credit:
                await until(lambda: bool(client.of(WINDOW_UPDATE, 1)), within=BOUND)
                credit += sum(one.number for one in client.of(WINDOW_UPDATE, 1))
                client.frames.clear()
            piece = whole[at : at + cut]
            client.send(frame(DATA, END_STREAM * (at + cut >= len(whole)), 1, piece))
        [received] = await scene.over(client, 1)
        assert scene.triton.calls[0].messages[0].startswith(infer(size=size))
        return received

    assert secured(scenario, loop, authority).messages == [answer(size=size)]


def test_a_client_that_stops_reading_is_waited_for(loop: str, authority: Authority) -> None:
    numbers = range(1, 33, 2)

    async def scenario(scene: Scene, client: Client) -> Received:
        scene.triton.says = lambda request: answer(size=900_000)
        client.pause_reading()
        for number in numbers:
            client.call(number)
        await until(lambda: scene.pool.board.held > 0, within=BOUND)
        client.resume_reading()
        for received in await scene.over(client, *numbers):
            assert received.messages == [answer(size=900_000)]
        return received

    assert secured(scenario, loop, authority).status == 0


def test_a_client_that_leaves_in_the_middle_leaves_nothing(loop: str, authority: Authority) -> None:
    async def scenario(scene: Scene, client: Client) -> Received:
        client.open(1)
        whole = message(infer(size=600_000))
        for at in range(0, 300_000, 50_000):
            client.send(frame(DATA, 0, 1, whole[at : at + 50_000]))
        client.open(3, STREAM)
        client.send(frame(DATA, 0, 3, message(infer())))
        await until(lambda: len(scene.triton.calls) == 2, within=BOUND)
        client.abort()
        await until(lambda: scene.listener.connections == 0, within=BOUND)
        return Received()

    secured(scenario, loop, authority)


@pytest.mark.parametrize("protocols", [(), ("http/1.1",), ("spdy/3", "http/1.1")])
def test_a_client_that_speaks_no_http2_is_let_go_without_a_word(
    loop: str, authority: Authority, protocols: tuple[str, ...]
) -> None:
    async def scenario(scene: Scene) -> tuple[bytes, int]:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1",
            scene.port,
            ssl=trusting(authority, *protocols) if protocols else _silent(authority),
            server_hostname="localhost",
        )
        said = await reader.read()
        writer.close()
        await until(lambda: scene.listener.connections == 0, within=BOUND)
        return said, scene.listener.calls

    assert play(scenario, loop, ONE, secure=server(authority)) == (b"", 0)


def _silent(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(authority.path))


@pytest.mark.parametrize("said", [PREFACE + settings(), b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01"])
def test_a_client_in_clear_on_a_tls_port_is_cut_off_and_others_go_on(
    loop: str, authority: Authority, said: bytes
) -> None:
    async def scenario(scene: Scene) -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", scene.port)
        writer.write(said + bytes(64))
        await reader.read()
        writer.close()
        client = await scene.client(WIDE, secure=trusting(authority, "h2"))
        return (await scene.call(client, 1)).status

    assert play(scenario, loop, ONE, secure=server(authority)) == 0


def test_a_real_client_calls_over_tls(loop: str, authority: Authority) -> None:
    def call(port: int) -> list[bytes]:
        trusted = grpc.ssl_channel_credentials(authority.path.read_bytes())
        with grpc.secure_channel(f"localhost:{port}", trusted) as channel:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            request = service_pb2.ModelInferRequest.FromString(infer())
            replies = [stub.ModelInfer(request, timeout=BOUND) for _ in range(3)]
            return [reply.SerializeToString() for reply in replies]

    async def scenario(scene: Scene) -> list[bytes]:
        return await asyncio.to_thread(call, scene.port)

    assert play(scenario, loop, ONE, secure=server(authority)) == [answer()] * 3


def test_a_real_client_that_does_not_trust_us_does_not_call(
    loop: str, authority: Authority, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other")

    def call(port: int) -> grpc.StatusCode:
        trusted = grpc.ssl_channel_credentials(other.path.read_bytes())
        with grpc.secure_channel(f"localhost:{port}", trusted) as channel:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            with pytest.raises(grpc.RpcError) as failed:
                stub.ServerLive(service_pb2.ServerLiveRequest(), timeout=5)
            return failed.value.code()

    async def scenario(scene: Scene) -> grpc.StatusCode:
        return await asyncio.to_thread(call, scene.port)

    code = play(scenario, loop, ONE, secure=server(authority))
    assert code is grpc.StatusCode.UNAVAILABLE
