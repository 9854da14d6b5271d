"""The unary gRPC sender against servers that use HTTP/2's frames in every way they may.

At the end: what heads and messages mean to it.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable

import pytest
from grpc_wire import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PADDED,
    Peer,
    answer,
    block,
    frame,
    infer,
    message,
    reset,
    settings,
    window,
)

from serve.wire.hpack_blocks import literal
from serve.workbench.loadtest.engine.grpc_answers import GrpcHeads, HeadFields, Versions, whole
from serve.workbench.loadtest.record import BROKEN, MALFORMED, RIGHT, TIMED_OUT

from .grpc_framed import (
    Act,
    Framed,
    call,
    says,
    sender,
    told_of,
)

OK_HEAD = block((":status", "200"), ("content-type", "application/grpc"))
OK_TRAILERS = block(("grpc-status", "0"), ("servegate-version", "7"))
Frames = Callable[[int], bytes]


def head(stream: int) -> bytes:
    return frame(HEADERS, END_HEADERS, stream, OK_HEAD)


def data(payload: bytes, flags: int = 0) -> Frames:
    return lambda stream: frame(DATA, flags, stream, payload)


def trailers(stream: int) -> bytes:
    return frame(HEADERS, END_HEADERS | END_STREAM, stream, OK_TRAILERS)


def last(*fields: tuple[str, str]) -> Frames:
    return lambda stream: frame(HEADERS, END_HEADERS | END_STREAM, stream, block(*fields))


# --- answers in all their forms -------------------------------------------------------------------


def test_an_answer_may_be_cut_at_every_byte() -> None:
    def good(stream: int) -> bytes:
        return head(stream) + data(message(answer()))(stream) + trailers(stream)

    def cut(place: int) -> Act:
        def act(framed: Framed, peer: Peer, stream: int) -> None:
            sent = good(stream)
            peer.send(sent[:place])
            framed.loop.call_later(0.002, peer.send, sent[place:])

        return act

    size = len(good(1))
    acts = [cut(place) for place in range(1, size)]
    assert told_of(*acts, rounds=size) == [(RIGHT, "7")] * (size - 1) + [(RIGHT, "1")]


def test_an_answer_may_come_in_many_pieces_with_padding_and_continuations() -> None:
    sent = message(answer(size=100))
    pieces = [data(bytes((3,)) + sent[at : at + 9] + bytes(3), PADDED) for at in range(0, 200, 9)]
    act = says(
        lambda stream: frame(HEADERS, 0, stream, OK_HEAD[:5]),
        lambda stream: frame(CONTINUATION, 0, stream, OK_HEAD[5:9]),
        lambda stream: frame(CONTINUATION, END_HEADERS, stream, OK_HEAD[9:]),
        *pieces,
        lambda stream: frame(HEADERS, END_STREAM | PADDED, stream, b"\2" + OK_TRAILERS[:7] + b"ab"),
        lambda stream: frame(CONTINUATION, END_HEADERS, stream, OK_TRAILERS[7:]),
    )
    assert told_of(act, rounds=2) == [(RIGHT, "7"), (RIGHT, "1")]


@pytest.mark.parametrize(
    ("frames", "outcome"),
    [
        ((head, trailers), MALFORMED),
        ((head, data(message(b"")[:4]), trailers), MALFORMED),
        ((head, data(message(b"abc") + b"d"), trailers), MALFORMED),
        ((head, data(message(b"abc", flag=1)), trailers), MALFORMED),
        ((head, data(message(b""), END_STREAM)), "grpc_UNKNOWN"),
        ((last((":status", "200")),), "grpc_UNKNOWN"),
        ((last((":status", "503")),), "grpc_UNAVAILABLE"),
        ((last((":status", "200"), ("grpc-status", "4")),), TIMED_OUT),
        ((last((":status", "200"), ("grpc-status", "99")),), "grpc_UNKNOWN"),
        ((head, last(("grpc-status", "5"), ("servegate-error", "gone"))), "grpc_NOT_FOUND:gone"),
        ((data(b"x"),), BROKEN),
        ((head, head), BROKEN),
        ((lambda stream: reset(stream, 8),), BROKEN),
        ((lambda stream: frame(DATA, 0, 0, b"x"),), BROKEN),
        ((lambda stream: frame(HEADERS, END_HEADERS, stream, b"\xff\xff\xff"),), BROKEN),
    ],
)
def test_what_else_may_come_has_an_outcome_and_the_next_call_goes_on(
    frames: tuple[Frames, ...], outcome: str
) -> None:
    first, second = told_of(says(*frames), rounds=2)
    assert first[0] == outcome
    assert second == (RIGHT, "1")


# --- requests -------------------------------------------------------------------------------------


def test_a_request_larger_than_the_windows_goes_as_the_server_gives_credit() -> None:
    body = infer(size=300_000)
    with Framed(greeting=settings(window=1000), gives_credit=True) as server:
        with sender(server.address) as through:
            assert call(through, body=body) == [(RIGHT, "1")]
        assert server.calls[0].messages == [body]


def test_a_request_larger_than_the_sockets_buffers_goes_as_there_is_room() -> None:
    body = infer(size=24 << 20)
    wide = settings(window=(1 << 31) - 1) + window(0, 1 << 30)
    with Framed(greeting=wide) as server, sender(server.address, most=2) as through:
        assert call(through, 2, body=body) == [(RIGHT, "1")] * 2
        assert [len(each.body) for each in server.calls] == [len(body) + 5] * 2


def test_an_answer_before_the_end_of_its_request_ends_the_call() -> None:
    body = infer(size=300_000)
    refused = block((":status", "200"), ("grpc-status", "8"))

    def unread(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(settings())
            came = b""
            while len(came) < 65_535:
                came += connection.recv(1 << 16)
            connection.sendall(frame(HEADERS, END_HEADERS | END_STREAM, 1, refused))
            while connection.recv(1 << 16):
                pass

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=unread, args=(listener,)).start()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        with sender(address) as through:
            assert call(through, body=body) == [("grpc_RESOURCE_EXHAUSTED", "")]


@pytest.mark.parametrize("table", [0, 4096])
def test_every_call_has_the_same_head(table: int) -> None:
    headers = (("Authorization", "Bearer sg_1"),)
    with (
        Framed(greeting=settings(table=table)) as server,
        sender(server.address, headers=headers) as through,
    ):
        call(through)
        call(through)
        one, two = server.calls
        assert one.heads == two.heads
        said = {"authorization": "Bearer sg_1", "grpc-timeout": "60000m", "te": "trailers"}
        assert one.heads[0] | said == one.heads[0]


# --- heads and messages ---------------------------------------------------------------------------

STATUS = literal(b"grpc-status", b"0")
DECISION = literal(b"servegate-version", b"2; by=split; generation=7")


def named(name: bytes) -> bytes:
    return literal(b"servegate-request-id", name)


def test_trailers_that_differ_in_the_calls_name_alone_are_read_once() -> None:
    heads = GrpcHeads()
    read = [heads.learn(STATUS + DECISION + named(b"call-%d" % number), 0) for number in range(9)]
    assert read[0] == HeadFields(-1, 0, "", "2; by=split; generation=7")
    assert all(each is read[0] for each in read)


@pytest.mark.parametrize("name", [b"", b"n" * 126, b"n" * 127, b"n" * 300])
def test_a_calls_name_of_any_length_hides_nothing(name: bytes) -> None:
    heads = GrpcHeads()
    for read in (STATUS + named(name) + DECISION, named(name) + STATUS + DECISION) * 2:
        assert heads.learn(read, 0).decision == "2; by=split; generation=7"


def test_a_status_is_remembered_with_its_own_code_alone() -> None:
    heads = GrpcHeads()
    unavailable = literal(b"grpc-status", b"14")
    for code in ("no_replica", "overloaded", "no_replica"):
        error = literal(b"servegate-error", code.encode())
        found = heads.learn(unavailable + error + named(b"x"), 0)
        assert found.outcome == f"grpc_UNAVAILABLE:{code}"


@pytest.mark.parametrize(
    ("body", "version"),
    [
        (answer(), "1"),
        (answer("m" * 200), "1"),
        (b"\x12\x023!", "3!"),
        (b"\x0a\x01m", ""),
        (b"\x0a\x01m\x12\x09", ""),
        (b"", ""),
        (b"\xff" * 9, ""),
    ],
)
def test_the_version_is_read_from_the_head_of_the_answer(body: bytes, version: str) -> None:
    versions = Versions()
    for _ in range(2):
        assert versions.read(message(body), 5) == version


def test_an_answer_is_one_message_in_any_number_of_pieces() -> None:
    sent = message(b"abc")
    assert whole([sent]) == whole([memoryview(sent)[:2], sent[2:]]) == sent
    for pieces in ([], [sent[:4]], [sent[:7]], [sent, sent], [message(b"abc", flag=1)]):
        assert whole(pieces) is None
