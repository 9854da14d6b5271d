"""The transports against real sockets: what was sent, and how each kind of failure is told."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import grpc
import grpc.aio
import pytest
from builders import call, choice, replica
from tritonclient.grpc import service_pb2

from serve.core.calls import Call, Choice, Headers, Reply, Verb
from serve.core.errors import DeadlineExceeded, NotSent, OutcomeUnknown
from serve.triton.grpc_transport import GrpcTransport
from serve.triton.http_transport import HttpTransport

BOUND = 5.0  # seconds; a bound for what takes milliseconds
OK = b"HTTP/1.1 200 OK\r\nContent-Type: a/b\r\nContent-Length: 5\r\n\r\nhello"


class FakeTriton:
    """A server on a real socket that answers every HTTP request with the same bytes.

    `None` closes the connection instead, and `hang` keeps it open without a word.
    """

    def __init__(self, answer: bytes | None, *, hang: bool = False) -> None:
        self.heads: list[bytes] = []
        self.bodies: list[bytes] = []
        self.connections = 0
        self._answer = answer
        self._hang = hang

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.heads.append(head)
                self.bodies.append(await reader.readexactly(_length(head)))
                if self._hang:
                    await reader.read()
                if self._answer is None:
                    break
                writer.write(self._answer)
                if b"Content-Length: 99" in self._answer:
                    break  # the promised rest never comes
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()


def _length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    return 0


@asynccontextmanager
async def listening(triton: FakeTriton) -> AsyncIterator[int]:
    server = await asyncio.start_server(triton.serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]
        server.close()


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def over_http(
    triton: FakeTriton, *calls: Call, chosen: Choice | None = None, timeout: float = 1.0
) -> list[Reply]:
    async def scenario() -> list[Reply]:
        transport = HttpTransport(connect_timeout=timeout, clock=time.monotonic)
        async with asyncio.timeout(BOUND), listening(triton) as port, transport:
            to = replica(http=port)
            return [await transport.send(one, chosen or choice(), to) for one in calls]

    return asyncio.run(scenario())


def test_a_reply_comes_as_it_was_written_without_what_belongs_to_the_hop() -> None:
    [reply] = over_http(FakeTriton(OK), call())
    assert reply == Reply(200, b"hello", ((b"content-type", b"a/b"),))


def test_the_request_carries_the_headers_of_the_call_and_no_others() -> None:
    triton = FakeTriton(OK)
    headers: Headers = ((b"content-type", b"a/b"), (b"x-twice", b"1"), (b"x-twice", b"2"))
    over_http(triton, call(headers=headers, body=b"abc"))
    line, host, *rest = triton.heads[0].decode().split("\r\n")
    assert line == "POST /v2/models/m/versions/1/infer HTTP/1.1"
    assert host.startswith("Host: 127.0.0.1:")
    assert rest == ["content-type: a/b", "x-twice: 1", "x-twice: 2", "Content-Length: 3", "", ""]
    assert triton.bodies == [b"abc"]


@pytest.mark.parametrize("value", [b"caf\xc3\xa9", b"a\tb", b"%41", b"a, b"])
def test_the_value_of_a_header_passes_byte_by_byte(value: bytes) -> None:
    triton = FakeTriton(OK)
    over_http(triton, call(headers=((b"x-name", value),)))
    assert b"x-name: " + value + b"\r\n" in triton.heads[0]


def test_an_empty_body_is_sent_as_one() -> None:
    triton = FakeTriton(OK)
    over_http(triton, call(body=b""))
    assert b"Content-Length: 0\r\n" in triton.heads[0]


@pytest.mark.parametrize(
    ("asked", "chosen", "line"),
    [
        (call(), choice(2), b"POST /v2/models/m/versions/2/infer "),
        (call(Verb.METADATA), choice(2, pinned=False), b"GET /v2/models/m "),
        (
            call(),
            choice(2, physical="m--01234567"),
            b"POST /v2/models/m--01234567/versions/2/infer ",
        ),
    ],
)
def test_the_path_names_what_triton_calls_it(asked: Call, chosen: Choice, line: bytes) -> None:
    triton = FakeTriton(OK)
    over_http(triton, asked, chosen=chosen)
    assert triton.heads[0].startswith(line)


def test_connections_are_kept_open() -> None:
    triton = FakeTriton(OK)
    over_http(triton, call(), call(), call())
    assert (len(triton.heads), triton.connections) == (3, 1)


def test_a_compressed_body_stays_compressed_and_a_redirect_is_an_answer() -> None:
    head = (
        b"HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\n"
    )
    [reply] = over_http(FakeTriton(head + b"\x1f\x8bx"), call())
    assert (reply.status, reply.body) == (302, b"\x1f\x8bx")
    assert (b"content-encoding", b"gzip") in reply.headers


def test_a_refused_connection_was_provably_not_sent() -> None:
    async def scenario() -> None:
        async with HttpTransport(connect_timeout=1, clock=time.monotonic) as transport:
            await transport.send(call(), choice(), replica(http=closed_port()))

    with pytest.raises(NotSent, match="replica a cannot be reached"):
        asyncio.run(scenario())


def test_a_connection_that_is_not_accepted_in_time_was_provably_not_sent() -> None:
    async def scenario(port: int) -> None:
        async with HttpTransport(connect_timeout=0.05, clock=time.monotonic) as transport:
            await transport.send(call(), choice(), replica(http=port))

    with socket.socket() as full, socket.socket() as first, socket.socket() as second:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for waiting in (first, second):  # the kernel drops whoever comes after these
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        with pytest.raises(NotSent):
            asyncio.run(scenario(full.getsockname()[1]))


@pytest.mark.parametrize(
    "answer",
    [
        None,
        b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nContent-Type",
        b"not HTTP at all\r\n\r\n",
    ],
    ids=["closed", "body cut off", "head cut off", "no HTTP"],
)
def test_an_answer_that_is_not_whole_leaves_the_outcome_unknown(answer: bytes | None) -> None:
    class Cut(FakeTriton):
        """Closes the connection behind its answer."""

        async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(_length(head))
            writer.write(answer or b"")
            writer.close()

    with pytest.raises(OutcomeUnknown, match="broke during the call"):
        over_http(Cut(answer), call())


def test_an_answer_that_comes_too_late_is_a_deadline_exceeded() -> None:
    triton = FakeTriton(OK, hang=True)
    with pytest.raises(DeadlineExceeded):
        over_http(triton, call(deadline=time.monotonic() + 0.05))
    assert len(triton.heads) == 1


# --- gRPC ----------------------------------------------------------------------------------------

Answer = Callable[[bytes, grpc.aio.ServicerContext], Awaitable[bytes]]


class FakeGrpcTriton(grpc.GenericRpcHandler):  # type: ignore[misc]
    """A gRPC server that gives every method to one function, as bytes."""

    def __init__(self, answer: Answer) -> None:
        self.methods: list[str] = []
        self.messages: list[bytes] = []
        self.metadata: dict[str, str | bytes] = {}
        self._answer = answer

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        self.methods.append(details.method)
        return grpc.unary_unary_rpc_method_handler(self._serve)

    async def _serve(self, message: bytes, context: grpc.aio.ServicerContext) -> bytes:
        self.messages.append(message)
        self.metadata = dict(context.invocation_metadata())
        return await self._answer(message, context)


async def fine(message: bytes, context: grpc.aio.ServicerContext) -> bytes:
    context.set_trailing_metadata((("x-trailer", "1"), ("y-bin", b"\x00\xff")))
    return b"answer"


async def never(message: bytes, context: grpc.aio.ServicerContext) -> bytes:
    await asyncio.Event().wait()
    return b""


def over_grpc(triton: FakeGrpcTriton, asked: Call, chosen: Choice | None) -> Reply:
    async def scenario() -> Reply:
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((triton,))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        async with asyncio.timeout(BOUND), GrpcTransport(clock=time.monotonic) as transport:
            try:
                return await transport.send(asked, chosen, replica(grpc=port))
            finally:
                await server.stop(0)

    return asyncio.run(scenario())


def message(version: str = "") -> bytes:
    request = service_pb2.ModelInferRequest(model_name="m", model_version=version, id="7")
    return bytes(request.SerializeToString())


def test_a_grpc_reply_comes_as_it_was_written() -> None:
    triton = FakeGrpcTriton(fine)
    headers: Headers = ((b"authorization", b"Bearer x"), (b"trace-bin", b"\x00\xff"))
    asked = call(protocol="grpc", body=message("1"), selector="1", headers=headers)
    reply = over_grpc(triton, asked, choice(1))
    assert reply == Reply(0, b"answer", ((b"x-trailer", b"1"), (b"y-bin", b"\x00\xff")))
    assert triton.methods == ["/inference.GRPCInferenceService/ModelInfer"]
    assert triton.messages == [message("1")]
    assert triton.metadata["authorization"] == "Bearer x"
    assert triton.metadata["trace-bin"] == b"\x00\xff"


@pytest.mark.parametrize(
    ("selector", "chosen", "name", "version"),
    [
        ("", choice(2), "m", "2"),
        ("stable", choice(2), "m", "2"),
        ("02", choice(2), "m", "2"),
        ("stable", choice(2, physical="m--01234567"), "m--01234567", "2"),
        ("", choice(2, pinned=False), "m", ""),
    ],
)
def test_the_message_names_what_triton_calls_it(
    selector: str, chosen: Choice, name: str, version: str
) -> None:
    triton = FakeGrpcTriton(fine)
    over_grpc(triton, call(protocol="grpc", body=message(selector), selector=selector), chosen)
    sent = service_pb2.ModelInferRequest.FromString(triton.messages[0])
    assert (sent.model_name, sent.model_version, sent.id) == (name, version, "7")


def test_a_call_to_the_server_itself_passes_as_it_is() -> None:
    triton = FakeGrpcTriton(fine)
    over_grpc(triton, call(Verb.SERVER_METADATA, protocol="grpc", body=b""), None)
    assert (triton.methods[0].rpartition("/")[2], triton.messages) == ("ServerMetadata", [b""])


@pytest.mark.parametrize("code", ["INVALID_ARGUMENT", "NOT_FOUND", "UNAVAILABLE", "INTERNAL"])
def test_a_status_of_triton_is_an_answer(code: str) -> None:
    async def refuse(message: bytes, context: grpc.aio.ServicerContext) -> bytes:
        await context.abort(grpc.StatusCode[code], "Request for unknown model: größe")
        return b""

    reply = over_grpc(FakeGrpcTriton(refuse), call(protocol="grpc", body=message()), choice())
    assert reply.status == grpc.StatusCode[code].value[0]
    assert reply.message == "Request for unknown model: größe"


def test_a_grpc_connection_that_is_refused_was_provably_not_sent() -> None:
    async def scenario() -> None:
        async with GrpcTransport(clock=time.monotonic) as transport:
            await transport.send(call(protocol="grpc"), choice(), replica(grpc=closed_port()))

    with pytest.raises(NotSent, match="replica a cannot be reached"):
        asyncio.run(scenario())


def test_a_grpc_connection_that_breaks_leaves_the_outcome_unknown() -> None:
    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(bytes.fromhex("000000040000000000"))  # an empty SETTINGS frame
        await reader.readuntil(message("1"))
        writer.transport.abort()

    async def scenario() -> Reply:
        server = await asyncio.start_server(cut, "127.0.0.1", 0)
        async with asyncio.timeout(BOUND), server, GrpcTransport(clock=time.monotonic) as transport:
            to = replica(grpc=server.sockets[0].getsockname()[1])
            asked = call(protocol="grpc", body=message("1"), selector="1")
            return await transport.send(asked, choice(), to)

    with pytest.raises(OutcomeUnknown):
        asyncio.run(scenario())


@pytest.mark.parametrize("left", [0.05, 0.0, -1.0])
def test_a_grpc_answer_that_comes_too_late_is_a_deadline_exceeded(left: float) -> None:
    asked = call(protocol="grpc", deadline=time.monotonic() + left)
    with pytest.raises(DeadlineExceeded):
        over_grpc(FakeGrpcTriton(never), asked, choice())
