"""gRPC over TLS: real handshakes, large answers, slow readers, and clients of other protocols."""

import asyncio
import functools
import ssl
import tempfile
from pathlib import Path

import grpc
import pytest
from builders import until
from certificates import Authority
from grpc_wire import BOUND, DATA, PREFACE, STREAM, answer, frame, infer, message, settings, window
from listeners.grpc_scene import ONE, WIDE, Scene, in_scene, send, upload
from tritonclient.grpc import service_pb2, service_pb2_grpc

GREETING = PREFACE + settings(window=1 << 24, frame=1 << 18) + window(0, 1 << 24)


class Trust:
    """An authority, the context of a server, and those of clients that trust it."""

    def __init__(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            authority = Authority(Path(folder))
            self.certificate = authority.path.read_bytes()
            self.server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.server.load_cert_chain(*authority.issue("server"))
        self.server.set_alpn_protocols(["h2"])

    def client(self, *protocols: str) -> ssl.SSLContext:
        context = ssl.create_default_context(cadata=self.certificate.decode())
        if protocols:
            context.set_alpn_protocols(protocols)
        return context


OURS = Trust()
secured = functools.partial(in_scene, ONE, secure=OURS.server)


@secured()
async def test_messages_of_any_size_pass_both_ways_however_slowly_they_are_read(
    scene: Scene,
) -> None:
    scene.triton.greeting = WIDE
    for size in (8, 16_000, 100_000, 2_000_000):
        scene.triton.says = lambda request, size=size: answer(size=size)  # type: ignore[misc]
        client = await scene.client(GREETING, secure=OURS.client("h2"))
        client.open(1)
        await upload(client, message(infer(size=size)), cut=1 << 16)
        [received] = await scene.over(client, 1)
        assert scene.triton.messages[-1].startswith(infer(size=size)), size
        assert received.messages == [answer(size=size)], size
    numbers = range(3, 33, 2)
    scene.triton.says = lambda request: answer(size=600_000)
    client.pause_reading()
    for number in numbers:
        client.call(number)
    await until(lambda: scene.pool.board.held > 0, within=BOUND)
    client.resume_reading()
    for received in await scene.over(client, *numbers):
        assert (received.status, received.messages) == (0, [answer(size=600_000)])


@secured()
async def test_a_client_that_leaves_in_the_middle_leaves_nothing(scene: Scene) -> None:
    scene.triton.greeting = WIDE
    client = await scene.client(GREETING, secure=OURS.client("h2"))
    client.open(1)
    send(client, message(infer(size=600_000))[:300_000], ends=False)
    client.open(3, STREAM)
    client.send(frame(DATA, 0, 3, message(infer())))
    await until(lambda: len(scene.triton.calls) == 2, within=BOUND)
    client.abort()
    await until(lambda: scene.listener.connections == 0, within=BOUND)


@secured()
async def test_a_client_without_http2_is_disconnected_without_an_answer(scene: Scene) -> None:
    for protocols in ((), ("http/1.1",), ("spdy/3", "http/1.1")):
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", scene.port, ssl=OURS.client(*protocols), server_hostname="localhost"
        )
        assert await reader.read() == b"", protocols
        writer.close()
        await until(lambda: scene.listener.connections == 0, within=BOUND)
        assert scene.listener.calls == 0


@secured()
async def test_a_client_in_clear_on_a_tls_port_is_cut_off_and_others_go_on(scene: Scene) -> None:
    for said in (PREFACE + settings(), b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01"):
        reader, writer = await asyncio.open_connection("127.0.0.1", scene.port)
        writer.write(said + bytes(64))
        await reader.read()
        writer.close()
        client = await scene.client(GREETING, secure=OURS.client("h2"))
        assert (await scene.call(client, 1)).status == 0, said


@secured()
async def test_a_real_client_calls_over_tls_when_it_trusts_the_gateway(scene: Scene) -> None:
    scene.triton.greeting = WIDE

    def call(trust: Trust) -> None:
        credentials = grpc.ssl_channel_credentials(trust.certificate)
        with grpc.secure_channel(f"localhost:{scene.port}", credentials) as channel:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            if trust is OURS:
                for size in (8, 100_000, 9_000_000):
                    request = service_pb2.ModelInferRequest.FromString(infer(size=size))
                    assert stub.ModelInfer(request, timeout=BOUND).SerializeToString() == answer()
                return
            with pytest.raises(grpc.RpcError) as failed:
                stub.ServerLive(service_pb2.ServerLiveRequest(), timeout=5)
            assert failed.value.code() is grpc.StatusCode.UNAVAILABLE

    for trust in (OURS, Trust()):
        await asyncio.to_thread(call, trust)
