"""Unary gRPC calls of a lane: its connections, and who gets which call.

There are few connections, and calls are streams of theirs. A call goes to the one that has the
fewest; without one that has room it waits for the next. One more is opened when calls are in
flight on all, up to the usual number, and beyond that for every hundred calls, or where the server
allows fewer streams than that. A connection that ends is replaced when the next call comes.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable

import gevent

from serve.trust import trust
from serve.wire.grpc_messages import message
from serve.workbench.loadtest.answer_checks import checker
from serve.workbench.loadtest.engine.grpc_link import AnswerReading, CallLink, GrpcLoadCall
from serve.workbench.loadtest.engine.grpc_requests import head_block
from serve.workbench.loadtest.engine.grpc_socket import Turn
from serve.workbench.loadtest.engine.http import resolved
from serve.workbench.loadtest.engine.http_shared import Shared
from serve.workbench.loadtest.engine.senders import Done
from serve.workbench.loadtest.plan import Lane, Payload
from serve.workbench.loadtest.record import NOT_CONNECTED, TIMED_OUT

_USUAL = 4  # connections of a lane, as h2load has in our benchmarks
_BUSY = 100  # calls on a connection that call for one more
_LARGE = 1 << 16  # bytes of a body that is not kept a second time, with its prefix


class UnarySender:
    """ModelInfer, or any other unary method, at most `most` calls at once."""

    def __init__(
        self, shared: Shared, reading: AnswerReading, lane: Lane, *, most: int, timeout: float
    ) -> None:
        self._shared = shared
        self._reading = reading
        self._most = most
        self._timeout = timeout
        self._turn = Turn(shared.loop)
        self._clock = shared.clock
        self._usual = min(_USUAL, most)
        self._limit = max(self._usual, -(-most // _BUSY))  # while the server does not ask for more
        self._messages = {
            id(each): (each, message(each.body))
            for each in lane.payloads
            if len(each.body) < _LARGE
        }
        self._open: dict[GrpcLoadCall, None] = {}  # in the order of their starts
        self._waiting: deque[GrpcLoadCall] = deque()  # for a connection
        self._links: list[CallLink] = []  # that take calls, or are going to
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<UnarySender with {len(self._open)} of {self._most} calls in flight>"

    def send(self, payload: Payload, body: bytes, done: Done) -> bool:
        """See `Sender`."""
        if len(self._open) >= self._most:
            return False
        known = self._messages.get(id(payload))
        prefixed = known[1] if known is not None and body is payload.body else message(body)
        call = GrpcLoadCall(payload, prefixed, done, self._clock() + self._timeout)
        self._open[call] = None
        link = self._least_busy()
        if link is None:
            self._waiting.append(call)
            self._grow()
            return True
        busy = len(link.streams)
        link.start(call)
        if not self._turn.is_inside:
            self._turn.flush_soon()
        if busy and (busy >= _BUSY or len(self._links) < self._usual):
            self._grow()
        return True

    def sweep(self, now: float) -> None:
        """End calls that are over their time, and attempts to connect that last as long."""
        late = list(itertools.takewhile(lambda call: call.deadline <= now, self._open))
        for call in late:
            self.on_ended(call, TIMED_OUT, "", now)
        for link in tuple(self._links):
            if not link.is_ready and link.begun + self._timeout <= now:
                link.abort()

    def close(self) -> None:
        """Forget the calls in flight; each connection is closed behind the last answer on it."""
        self._is_closed = True
        for call in self._open:
            call.is_over = True
        self._open.clear()
        self._waiting.clear()
        for link in tuple(self._links):
            if link.is_ready:
                link.go()
            else:
                link.abort()

    # --- what connections tell --------------------------------------------------------------------

    def on_room(self, link: CallLink) -> None:
        """See `Owner`."""
        if link.is_going and not link.streams:
            link.abort()
        elif self._waiting:
            self._serve()

    def on_going(self, link: CallLink) -> None:
        """See `Owner`."""
        self._links.remove(link)
        if not link.streams:
            link.abort()

    def on_closed(self, link: CallLink) -> None:
        """See `Owner`."""
        if link in self._links:
            self._links.remove(link)
        if link.is_ready:
            self._serve()
        elif any(one.is_ready for one in self._links):
            self._serve(may_grow=False)
        else:
            self._refuse_waiting()

    def on_ended(self, call: GrpcLoadCall, outcome: str, decision: str, now: float) -> None:
        """See `Owner`."""
        call.is_over = True
        del self._open[call]
        self._shared.tell(call.done, outcome, decision, now)

    def on_refused(self, call: GrpcLoadCall) -> None:
        """See `Owner`."""
        self._waiting.append(call)
        self._serve()

    # --- connections ------------------------------------------------------------------------------

    def _least_busy(self) -> CallLink | None:
        best, least = None, 1 << 31
        for link in self._links:
            busy = len(link.streams)
            if busy < least and busy < link.room:
                best, least = link, busy
        return best

    def _refuse_waiting(self) -> None:
        """The server cannot be reached: end the calls that wait for it."""
        now = self._clock()
        refused, self._waiting = self._waiting, deque()
        for call in refused:
            if not call.is_over:
                self.on_ended(call, NOT_CONNECTED, "", now)

    def _serve(self, *, may_grow: bool = True) -> None:
        """Start calls that wait, and open a connection for those that still do."""
        waiting = self._waiting
        while waiting:
            if waiting[0].is_over:
                waiting.popleft()
                continue
            link = self._least_busy()
            if link is None or len(link.streams) >= _BUSY:
                is_growing = may_grow and self._grow()
                if link is None or is_growing:
                    break
            link.start(waiting.popleft())
        self._turn.flush_soon()

    def _grow(self) -> bool:
        """Open another connection where that is due; whether any is being opened."""
        if self._is_closed:
            return False
        opening = sum(not link.is_ready for link in self._links)
        limit = self._limit if self._least_busy() else self._most
        if opening < self._usual and len(self._links) < limit:
            self._links.append(CallLink(self._shared, self._turn, self._reading, self))
            opening += 1
        return opening > 0


def unary_sender(
    lane: Lane, *, most: int, timeout: float, clock: Callable[[], float]
) -> UnarySender:
    """The sender of a unary lane; `Invalid` where its address or its headers cannot be used."""
    host, addresses = resolved(lane.address)
    tls = trust() if lane.tls else None
    if tls is not None:
        tls.set_alpn_protocols(["h2"])
    shared = Shared(
        loop=gevent.get_hub().loop,
        clock=clock,
        addresses=addresses,
        check=checker(lane),
        names_version=True,
        tls=tls,
        host=host,
    )
    return UnarySender(
        shared, AnswerReading(head_block(lane, timeout)), lane, most=most, timeout=timeout
    )
