"""The unary gRPC sender against servers that use HTTP/2's frames in every way they may.

Its connections: how many, when they end, and what becomes of calls. At the end: what heads and
messages mean to it.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable

import pytest
from grpc_wire import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PADDED,
    RST_STREAM,
    Peer,
    answer,
    block,
    frame,
    goaway,
    infer,
    message,
    reset,
    settings,
    window,
)

from serve.wire.hpack_blocks import literal
from serve.workbench.loadtest.engine.grpc_answers import GrpcHeads, HeadFields, Versions, whole
from serve.workbench.loadtest.plan import Payload
from serve.workbench.loadtest.record import BROKEN, MALFORMED, NOT_CONNECTED, RIGHT, TIMED_OUT

from .grpc_framed import (
    PATIENCE,
    Act,
    Framed,
    begin,
    call,
    hold,
    says,
    sender,
    together,
    told_of,
    until,
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


# --- connections, time and ends -------------------------------------------------------------------


def test_a_server_that_allows_few_streams_gets_more_connections() -> None:
    waits = together(12)
    with Framed(*[waits] * 12, greeting=settings(streams=3)) as server:
        with sender(server.address, most=12) as through:
            assert call(through, 12) == [(RIGHT, "1")] * 12
            assert call(through, 12) == [(RIGHT, "1")] * 12
        assert all(len(peer.streams) <= 1 + 3 * 6 for peer in server.peers)


def test_no_more_calls_than_allowed_are_taken() -> None:
    with Framed(hold) as server, sender(server.address) as through:
        ends = begin(through)
        assert not through.send(Payload(b""), b"", lambda *told: None)
        through.sweep(time.monotonic() + 100)
        assert ends.wait() == [(TIMED_OUT, "")]


def test_calls_above_the_last_one_of_a_goaway_go_elsewhere() -> None:
    came: list[tuple[Peer, int]] = []

    def act(framed: Framed, peer: Peer, stream: int) -> None:
        came.append((peer, stream))
        if len(came) == 2:
            (first, number), _ = came
            first.send(goaway(number))
            framed.loop.call_later(0.01, framed.answer, number, None, first)

    with Framed(act, act) as server, sender(server.address, most=2) as through:
        assert call(through, 2) == [(RIGHT, "1")] * 2
        old = came[0][0]
        before = len(old.streams)
        assert call(through, 2) == [(RIGHT, "1")] * 2
        assert len(old.streams) == before
        until(lambda: old.is_closed)


def test_a_refused_call_is_made_again_once() -> None:
    refuse = says(lambda stream: reset(stream, 7))
    assert told_of(refuse) == [(RIGHT, "1")]
    assert told_of(refuse, refuse, rounds=2) == [(BROKEN, ""), (RIGHT, "1")]


def test_a_connection_that_breaks_is_replaced_by_the_next_call() -> None:
    def leave(framed: Framed, peer: Peer, stream: int) -> None:
        peer.abort()

    assert told_of(leave, leave, rounds=3) == [(BROKEN, ""), (BROKEN, ""), (RIGHT, "1")]


@pytest.mark.parametrize("greeting", [b"HTTP/1.1 400 Bad Request\r\n\r\n", goaway(0), b""])
def test_who_does_not_speak_http_2_is_not_connected(greeting: bytes) -> None:
    def speak(listener: socket.socket) -> None:
        for _ in range(2):
            connection, _ = listener.accept()
            with connection:
                connection.sendall(greeting)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=speak, args=(listener,))
        thread.start()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        with sender(address) as through:
            assert call(through) + call(through) == [(NOT_CONNECTED, "")] * 2
        thread.join()


def test_a_server_that_never_speaks_is_left_when_its_time_is_over() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        sender(f"127.0.0.1:{listener.getsockname()[1]}") as through,
    ):
        ends = begin(through)
        connection, _ = listener.accept()
        through.sweep(time.monotonic() + 100)
        assert ends.wait() == [(TIMED_OUT, "")]
        with connection:
            connection.settimeout(PATIENCE)
            while connection.recv(1 << 16):
                pass


def test_a_call_over_its_time_is_forgotten_and_its_late_answer_dropped() -> None:
    streams: list[int] = []

    def remember(framed: Framed, peer: Peer, stream: int) -> None:
        streams.append(stream)

    with Framed(remember) as server, sender(server.address) as through:
        ends = begin(through)
        until(lambda: bool(streams))
        through.sweep(time.monotonic() + 100)
        assert ends.wait() == [(TIMED_OUT, "")]
        server.loop.call_soon_threadsafe(server.answer, streams[0])
        assert call(through) == [(RIGHT, "1")]
        assert ends.told == [(TIMED_OUT, "")]
        assert RST_STREAM not in server.kinds()


def test_a_closed_sender_leaves_when_the_answers_have_come_and_tells_nothing() -> None:
    streams: list[int] = []
    with Framed(lambda framed, peer, stream: streams.append(stream)) as server:
        with sender(server.address) as through:
            ends = begin(through)
            until(lambda: bool(streams))
        assert not server.peer.is_closed
        server.loop.call_soon_threadsafe(server.answer, streams[0])
        until(lambda: server.peer.is_closed)
        assert ends.told == []


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


def test_a_calls_name_of_any_length_hides_nothing() -> None:
    for length in (0, 126, 127, 300):
        heads, name = GrpcHeads(), named(b"n" * length)
        for read in (STATUS + name + DECISION, name + STATUS + DECISION) * 2:
            assert heads.learn(read, 0).decision == "2; by=split; generation=7"


def test_a_status_is_remembered_with_its_own_code_alone() -> None:
    heads = GrpcHeads()
    unavailable = literal(b"grpc-status", b"14")
    for code in ("no_replica", "overloaded", "no_replica"):
        error = literal(b"servegate-error", code.encode())
        found = heads.learn(unavailable + error + named(b"x"), 0)
        assert found.outcome == f"grpc_UNAVAILABLE:{code}"


def test_the_version_is_read_from_the_head_of_the_answer() -> None:
    bodies = {answer(): "1", answer("m" * 200): "1", b"\x12\x023!": "3!"}
    bodies |= dict.fromkeys((b"\x0a\x01m", b"\x0a\x01m\x12\x09", b"", b"\xff" * 9), "")
    for body, version in bodies.items():
        versions = Versions()
        assert [versions.read(message(body), 5) for _ in range(2)] == [version] * 2, body


def test_an_answer_is_one_message_in_any_number_of_pieces() -> None:
    sent = message(b"abc")
    assert whole([sent]) == whole([memoryview(sent)[:2], sent[2:]]) == sent
    for pieces in ([], [sent[:4]], [sent[:7]], [sent, sent], [message(b"abc", flag=1)]):
        assert whole(pieces) is None
