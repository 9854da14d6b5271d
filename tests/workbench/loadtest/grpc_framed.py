"""A gRPC server in raw frames, in a thread, that does what a test says; and calls to it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import gevent
from grpc_wire import DATA, Frame, Peer, settings, window
from grpc_wire import Triton as Answering
from workbench.loadtest.driving_scene import Ends
from workbench.loadtest.scripted import InThread

from serve.workbench.loadtest.bodies import path_of
from serve.workbench.loadtest.engine.grpc_unary import UnarySender, unary_sender
from serve.workbench.loadtest.plan import Lane, LaneProtocol, Payload

PATIENCE = 20.0  # seconds; a bound
End = tuple[str, str]  # outcome and decision
Act = Callable[["Framed", Peer, int], None]
"""What to do when a call has come: on this connection, as this stream."""


class Framed(InThread, Answering):
    """The server, from `with` to its end. `calls` are the streams as they came."""

    def __init__(
        self, *acts: Act, greeting: bytes | None = None, gives_credit: bool = False
    ) -> None:
        """Each call takes the next act; when all are taken, calls are answered."""
        InThread.__init__(self)
        Answering.__init__(self)
        self.greeting = settings() if greeting is None else greeting
        self._acts = list(acts)
        self._gives_credit = gives_credit

    async def _open(self) -> None:
        await self.start()

    async def _shut(self) -> None:
        self.close()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def kinds(self) -> set[int]:
        """The types of all frames that have come."""
        return {one.kind for peer in self.peers for one in peer.frames}

    def _connection(self) -> Peer:
        framed = self

        class Connection(Peer):
            """Greets whoever comes."""

            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                super().connection_made(transport)
                framed.peers.append(self)
                self.send(framed.greeting)

            def _take(self, one: Frame) -> None:
                if one.kind == DATA and one.payload and framed._gives_credit:
                    credit = len(one.payload)
                    self.send(window(0, credit), window(one.stream, credit))
                super()._take(one)

        return Connection(on_ended=self._ended)

    def _ended(self, peer: Peer, stream: int) -> None:
        if self._acts:
            self._acts.pop(0)(self, peer, stream)
        else:
            self.end_well(peer, stream)


def hold(framed: Framed, peer: Peer, stream: int) -> None:
    """Do not answer."""


def together(count: int) -> Act:
    """Answer when so many have come, the last one first."""
    held: list[tuple[Peer, int]] = []

    def act(framed: Framed, peer: Peer, stream: int) -> None:
        held.append((peer, stream))
        if len(held) == count:
            for each, number in reversed(held):
                framed.answer(number, peer=each)

    return act


def says(*frames: Callable[[int], bytes]) -> Act:
    """Send these frames, each made for the stream."""
    return lambda framed, peer, stream: peer.send(*(make(stream) for make in frames))


@contextmanager
def sender(
    address: str, *, most: int = 1, headers: tuple[tuple[str, str], ...] = ()
) -> Iterator[UnarySender]:
    path = path_of(LaneProtocol.GRPC, "m", "")
    lane = Lane("lane", LaneProtocol.GRPC, address, path, (), headers=headers)
    with closing(unary_sender(lane, most=most, timeout=60.0, clock=time.monotonic)) as made:
        yield made


def begin(through: UnarySender, count: int = 1, *, body: bytes = b"\x0a\x01m") -> Ends:
    """So many calls at once."""
    ends, payload = Ends(count), Payload(body)
    for _ in range(count):
        assert through.send(payload, body, ends.done)
    return ends


def call(through: UnarySender, count: int = 1, **more: bytes) -> list[End]:
    """What is told of so many calls at once."""
    return begin(through, count, **more).wait()


def told_of(*acts: Act, rounds: int = 1, count: int = 1, **more: Any) -> list[End]:
    """What is told of calls to a server with these acts, one round after the other."""
    with Framed(*acts, **more) as server, sender(server.address, most=count) as through:
        return [end for _ in range(rounds) for end in call(through, count)]


def until(holds: Callable[[], bool]) -> None:
    with gevent.Timeout(PATIENCE):
        while not holds():
            gevent.sleep(0.005)
