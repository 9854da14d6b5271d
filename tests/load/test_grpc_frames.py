"""The unary gRPC sender against servers that speak HTTP/2 in every way they may, and in others."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import gevent
import pytest
from gevent.event import Event
from grpc_wire import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PADDED,
    PING,
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

from serve.load.bodies import path_of
from serve.load.engine.grpc_unary import UnarySender, unary_sender
from serve.load.plan import Lane, Payload, Protocol
from serve.load.recording import BROKEN, MALFORMED, NOT_CONNECTED, RIGHT, TIMED_OUT

from .grpc_framed import Act, Framed, hold, says, together

PATIENCE = 20.0  # seconds; a bound
OK_HEAD = block((":status", "200"), ("content-type", "application/grpc"))
OK_TRAILERS = block(("grpc-status", "0"), ("servegate-version", "7"))
End = tuple[str, str]  # outcome and decision
Frames = Callable[[int], bytes]


@contextmanager
def sender(address: str, *, most: int = 1) -> Iterator[UnarySender]:
    lane = Lane("lane", Protocol.GRPC, address, path_of(Protocol.GRPC, "m", ""), ())
    with closing(unary_sender(lane, most=most, timeout=60.0, clock=time.monotonic)) as made:
        yield made


class Ends:
    """What is told of so many calls, in the order of their ends."""

    def __init__(self, through: UnarySender, count: int, payload: Payload) -> None:
        self.told: list[End] = []
        self._count = count
        self._all = Event()
        for _ in range(count):
            assert through.send(payload, payload.body, self._done)

    def _done(self, outcome: str, decision: str, ended: float) -> None:
        self.told.append((outcome, decision))
        if len(self.told) == self._count:
            self._all.set()

    def wait(self) -> list[End]:
        assert self._all.wait(PATIENCE), self.told
        return self.told


def call(through: UnarySender, count: int = 1, *, body: bytes = b"\x0a\x01m") -> list[End]:
    """What is told of so many calls at once."""
    return Ends(through, count, Payload(body)).wait()


def told_of(*acts: Act, rounds: int = 1, count: int = 1, **more: Any) -> list[End]:
    """What is told of calls to a server with these acts, one round after the other."""
    with Framed(*acts, **more) as server, sender(server.address, most=count) as through:
        return [end for _ in range(rounds) for end in call(through, count)]


def until(holds: Callable[[], bool]) -> None:
    with gevent.Timeout(PATIENCE):
        while not holds():
            gevent.sleep(0.005)


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
    def whole(stream: int) -> bytes:
        return head(stream) + data(message(answer()))(stream) + trailers(stream)

    def cut(place: int) -> Act:
        def act(framed: Framed, peer: Peer, stream: int) -> None:
            sent = whole(stream)
            peer.send(sent[:place])
            framed.loop.call_later(0.002, peer.send, sent[place:])

        return act

    size = len(whole(1))
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


def test_an_answer_larger_than_all_windows_comes_whole() -> None:
    with Framed() as server, sender(server.address) as through:
        server.says = lambda request: answer(size=5 << 20)
        assert call(through) == [(RIGHT, "1")]


def test_an_interim_head_is_not_the_answer() -> None:
    interim: Frames = lambda stream: frame(  # noqa: E731
        HEADERS, END_HEADERS, stream, block((":status", "103"))
    )
    act = says(interim, head, data(message(answer())), trailers)
    assert told_of(act) == [(RIGHT, "7")]


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


def test_every_stream_has_the_same_head() -> None:
    with Framed() as server, sender(server.address) as through:
        call(through)
        call(through)
        one, two = server.calls
        assert one.heads == two.heads
        assert one.heads[0] | {"grpc-timeout": "60000m", "te": "trailers"} == one.heads[0]


# --- connections ----------------------------------------------------------------------------------


def test_hundreds_of_calls_share_few_connections() -> None:
    waits = together(500)
    with Framed(*[waits] * 500) as server, sender(server.address, most=500) as through:
        assert call(through, 500) == [(RIGHT, "1")] * 500
        assert len(server.peers) <= 5


def test_a_server_that_allows_few_streams_gets_more_connections() -> None:
    waits = together(12)
    with Framed(*[waits] * 12, greeting=settings(streams=3)) as server:
        with sender(server.address, most=12) as through:
            assert call(through, 12) == [(RIGHT, "1")] * 12
            assert call(through, 12) == [(RIGHT, "1")] * 12
        assert all(len(peer.streams) <= 1 + 3 * 6 for peer in server.peers)


def test_no_more_calls_than_allowed_are_taken() -> None:
    with Framed(hold) as server, sender(server.address) as through:
        call_again = Payload(b"")
        ends = Ends(through, 1, Payload(b""))
        assert not through.send(call_again, b"", lambda *told: None)
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
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with sender(f"127.0.0.1:{listener.getsockname()[1]}") as through:
            ends = Ends(through, 1, Payload(b""))
            connection, _ = listener.accept()
            through.sweep(time.monotonic() + 100)
            assert ends.wait() == [(TIMED_OUT, "")]
            with connection:
                connection.settimeout(PATIENCE)
                while connection.recv(1 << 16):
                    pass


def test_pings_are_answered() -> None:
    def ping(framed: Framed, peer: Peer, stream: int) -> None:
        peer.send(frame(PING, 0, 0, b"12345678"))
        framed.answer(stream, peer=peer)

    with Framed(ping) as server, sender(server.address) as through:
        call(through)
        until(lambda: bool(server.peers[0].of(PING)))
        assert server.peers[0].of(PING)[0].payload == b"12345678"


# --- time, and ends -------------------------------------------------------------------------------


def test_a_call_over_its_time_is_forgotten_and_its_late_answer_dropped() -> None:
    streams: list[int] = []
    with Framed(lambda framed, peer, stream: streams.append(stream)) as server:
        with sender(server.address) as through:
            ends = Ends(through, 1, Payload(b""))
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
            ends = Ends(through, 1, Payload(b""))
            until(lambda: bool(streams))
        assert not server.peer.is_closed
        server.loop.call_soon_threadsafe(server.answer, streams[0])
        until(lambda: server.peer.is_closed)
        assert ends.told == []


def test_a_callback_that_raises_harms_no_other_call() -> None:
    def fail(*told: object) -> None:
        raise RuntimeError("a test's own")

    with Framed() as server, sender(server.address, most=2) as through:
        through.send(Payload(b""), b"", fail)
        assert call(through) == [(RIGHT, "1")]
        assert call(through) == [(RIGHT, "1")]
        assert len(server.peers) <= 2
