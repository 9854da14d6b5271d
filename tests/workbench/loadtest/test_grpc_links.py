"""The connections of the unary gRPC sender: how many, when they end, and what becomes of calls."""

from __future__ import annotations

import socket
import threading
import time

import pytest
from grpc_wire import (
    RST_STREAM,
    Peer,
    goaway,
    reset,
    settings,
)

from serve.workbench.loadtest.plan import Payload
from serve.workbench.loadtest.record import BROKEN, NOT_CONNECTED, RIGHT, TIMED_OUT

from .grpc_framed import (
    PATIENCE,
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
