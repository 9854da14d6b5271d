"""Clients that mean no good: `attackers.py NAME HTTP GRPC SECONDS`, in a process of their own."""

import asyncio
import json
import struct
import sys
import time
from socket import SO_LINGER, SOL_SOCKET

import grpc
import hpack
from tritonclient.grpc import service_pb2

from serve.wire import http2

INFER = "/inference.GRPCInferenceService/ModelInfer"
CONNECTIONS = 300


def message(model: str) -> bytes:
    """One call of a model that takes x."""
    request = service_pb2.ModelInferRequest(model_name=model)
    request.inputs.add(name="x", datatype="FP32", shape=[1])
    request.raw_input_contents.append(bytes(4))
    return request.SerializeToString()


async def half_bodies(http, grpc_address, end, more: bytes, piece: bytes):
    """Connections that each announce a body of 1 MB and send a piece of it per second."""
    host, port = http.split(":")

    async def one():
        while time.monotonic() < end:
            try:
                reader, writer = await asyncio.open_connection(host, int(port))
                head = b"POST /v2/models/counting/infer HTTP/1.1\r\nHost: %b\r\n%b" % (
                    http.encode(),
                    more + b"Content-Length: 1000000\r\n\r\n",
                )
                writer.write(head)
                while time.monotonic() < end and not reader.at_eof():
                    writer.write(piece)
                    await asyncio.sleep(1.0)
                writer.close()
            except OSError:
                await asyncio.sleep(1.0)

    await asyncio.gather(*(one() for _ in range(CONNECTIONS)))


async def rapidly(one, end):
    """120 times a second until then, whether or not the earlier ones have ended."""
    calls = set()
    while time.monotonic() < end:
        task = asyncio.create_task(one())
        calls.add(task)
        task.add_done_callback(calls.discard)
        await asyncio.sleep(1 / 120)
    await asyncio.gather(*calls)


async def trickle(http, grpc_address, end):
    """1.1 kB per second and connection."""
    await half_bodies(http, grpc_address, end, b"", b"x" * 1100)


async def expect(http, grpc_address, end):
    """Clients that wait for `100 Continue` and then send nothing."""
    await half_bodies(http, grpc_address, end, b"Expect: 100-continue\r\n", b"")


def begun_calls(address: str, model: str) -> bytes:
    """The bytes of a gRPC connection that begins sixteen calls."""
    body = message(model)
    data = b"\0" + len(body).to_bytes(4) + body
    names = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", INFER),
        (":authority", address),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ]
    head = hpack.Encoder().encode(names, huffman=False)
    frames = [http2.PREFACE, http2.frame(http2.SETTINGS, 0, 0, b"")]
    for number in range(1, 33, 2):
        frames.append(http2.frame(http2.HEADERS, http2.END_HEADERS, number, head))
        frames.append(http2.frame(http2.DATA, http2.END_STREAM, number, data))
    return b"".join(frames)


async def vanish(http, grpc_address, end):
    """Connections that begin sixteen calls and are reset."""
    host, port = grpc_address.split(":")
    begun = begun_calls(grpc_address, "slow")
    while time.monotonic() < end:
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(begun)
        await asyncio.sleep(0.2)
        writer.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()


async def expire(http, grpc_address, end):
    """120 calls a second whose deadlines pass after a quarter of a second, on one connection."""
    async with grpc.aio.insecure_channel(grpc_address) as channel:
        infer = channel.unary_unary(INFER)
        body = message("slow")

        async def one():
            try:
                await infer(body, timeout=0.25)
            except grpc.aio.AioRpcError:
                pass

        await rapidly(one, end)


async def leave(http, grpc_address, end):
    """120 calls a second from clients that close their connections after a second."""
    host, port = http.split(":")
    body = json.dumps(
        {"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [0]}]}
    ).encode()
    head = f"POST /v2/models/slow/infer HTTP/1.1\r\nHost: {http}\r\nContent-Length: {len(body)}"

    async def one():
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(head.encode() + b"\r\n\r\n" + body)
        await asyncio.sleep(1.0)
        writer.close()

    await rapidly(one, end)


async def post(http, body, end):
    """One large TensorFlow Serving call after another."""
    host, port = http.split(":")
    head = f"POST /v1/models/counting:predict HTTP/1.1\r\nHost: {http}\r\nConnection: close\r\n"
    while time.monotonic() < end:
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            writer.write(head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            await reader.read()
        except OSError:
            pass
        writer.close()


async def lists(http, grpc_address, end):
    """8 MB of empty lists, twice at a time."""
    body = b'{"instances": [' + b",".join([b"[]"] * 2_800_000) + b"]}"
    await asyncio.gather(*(post(http, body, end) for _ in range(2)))


async def rows(http, grpc_address, end):
    """30 MB of rows."""
    row = b"[" + b",".join([b"0.123"] * 1000) + b"]"
    await post(http, b'{"instances": [' + b",".join([row] * 5000) + b"]}", end)


ATTACKS = (trickle, expect, vanish, expire, leave, lists, rows)


if __name__ == "__main__":
    _, name, http_address, grpc_port, seconds = sys.argv
    chosen = next(one for one in ATTACKS if one.__name__ == name)
    asyncio.run(chosen(http_address, grpc_port, time.monotonic() + float(seconds)))
