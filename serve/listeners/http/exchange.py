"""One predict call over HTTP: its request from a client, its answer from a replica.

    collects ──go──▶ routes ──▶ connects ──▶ sends ──end──▶ waits ──▶ answers ──▶ over
       │               │  ▲        └─ not sent ─┘ ▲            │          │
       │               ▼  │ `on_awake`            └── refused ─┘          │
       │             sleeps, until its model's pool has a replica         │
       └───────────────┴──── a fault: `give_up` ──────────────────────────┴─────▶ over

Nothing here waits: the client's connection, the replica's connection and the sweeper call. What
becomes of the request's body is told in `upload`, what becomes of the answer in `answer`:
the other parts of the same object.
"""

import math

from serve.core import faults
from serve.core.calls import Account, Call, Verb
from serve.core.errors import (
    Asleep,
    DeadlineExceeded,
    NoRoom,
    NotLoaded,
    NotSent,
    OutcomeUnknown,
    ServegateError,
)
from serve.core.limits import FIRST, SMALL
from serve.listeners.http.answer import Answer
from serve.proxy.attempts import NOWHERE, Attempt
from serve.triton.http_connection import HttpConnection


class Exchange(Answer):
    """A predict call between two connections, and where the gateway's `Call` comes from."""

    # --- the client's connection and the sweeper call ---------------------------------------------

    def whole(self, body: bytes) -> None:
        """The whole of a small body, which is the usual case."""
        self._size = len(body)
        self._pieces = [body]
        self.is_complete = True
        self.go()

    def go(self) -> None:
        """What came with the head has been read: route the call, as soon as that is possible."""
        if self.is_over or self.attempt is not None:
            return
        desk, asked = self._desk, self.asked
        if self.deadline == math.inf:
            self.deadline = desk.now + desk.limits.call
        if desk.held > desk.limits.in_flight:
            self.give_up(NoRoom(desk.limits.in_flight))
            return
        if not self.is_complete and self._has_to_wait():
            self._wait_for_body()
            return
        key, until, sequence = self.head.credential, self.deadline, ""
        if desk.gateway.serves_sequences(asked.model, key):
            if not self._has_json_head():
                self._invite()
                return
            try:
                sequence = self._sequence()
            except ServegateError as error:
                self.give_up(error)
                return
        model, selector = asked.model, asked.selector
        call = Call("http", asked.verb, model, selector, until, sequence, "", key, self)
        since = self._owed_since
        if since:
            self._owed_since = 0.0
        try:
            attempt = self.attempt = desk.gateway.begin(call)
        except Asleep:
            self._sleep(call)
            return
        except ServegateError as error:
            self.give_up(error)
            return
        if since:
            attempt.came_at(since)
        self._send(attempt)

    def _has_to_wait(self) -> bool:
        """Whether a body that is not complete cannot be sent yet."""
        length = self.head.length
        return self._size < FIRST or (length is not None and length <= SMALL)

    def _wait_for_body(self) -> None:
        """It takes no slot yet. What would be refused is refused before its body comes."""
        if self._owed_since:
            return
        try:
            self._desk.gateway.check(self._call())
        except ServegateError as error:
            self.give_up(error)
            return
        self._owed_since = self._desk.clock()
        self._invite()

    def _call(self) -> Call:
        asked, key = self.asked, self.head.credential
        return Call(
            "http", asked.verb, asked.model, asked.selector, self.deadline, "", "", key, self
        )

    def _count_unsent(self, code: str) -> None:
        """It ends while it waits for its body."""
        if self._owed_since:
            since, self._owed_since = self._owed_since, 0.0
            self._desk.gateway.ended(self._call(), None, NOWHERE, code, since, error=code)

    def account(self) -> Account:
        """What is known of the call at this moment."""
        moved = 0 if self._splice is None else self._splice.moved
        trace = (value for name, value in self.headers if name == b"traceparent")
        return Account(
            request_id=self.identity().decode("ascii"),
            traceparent=next(trace, b"").decode("latin-1"),
            peer=self._client.peer,
            received=self._size + (0 if self.is_complete else moved),
            answered=self._answered + (moved if self.is_complete else 0),
            upstream=max(0.0, self._heard - self._sent) if self._sent else 0.0,
        )

    def tick(self, now: float) -> None:
        """Look at the clock: the deadline, and a body that does not come."""
        if now >= self.deadline:
            self.give_up(DeadlineExceeded())
        elif not self.is_complete and not self._started:
            self._watch_body(now)

    def lost(self) -> None:
        """The client has gone away. Triton hears of it unless it has the whole request.

        Then it goes on with the call, whatever it hears: the answer is read and dropped, and the
        call keeps its slot until it comes. A stream of events is cut off: it may never end.
        """
        if self.is_over:
            return
        attempt, upstream = self.attempt, self._upstream
        if attempt is not None:
            is_stream = self.asked.verb is Verb.GENERATE_STREAM
            is_sent = self.is_complete and upstream is not None and upstream.awaits_answer
            if upstream is not None and is_sent and not is_stream:
                self._upstream = None
                self._desk.pool.absorb(upstream, attempt.detach().free, until=self.deadline)
            attempt.left()
        else:
            self._count_unsent("client_left")
        self._close(reusable=False)

    def give_up(self, error: ServegateError) -> None:
        """End the call with an error of our own; an answer that has begun is broken off."""
        if self.is_over:
            return
        if self.attempt is not None:
            self.attempt.failed(error)
        else:
            self._count_unsent(error.code)
        started = self._started
        self._close(reusable=False)
        if started:
            self._client.abort()
        else:
            self._client.refuse(self, error)

    def on_fault(self, error: Exception) -> None:
        """Our own code has failed for this call, in another connection's callback: both end."""
        faults.report(self, error)
        attempt = self.attempt
        self._close(reusable=False)
        if attempt is not None:
            attempt.failed(OutcomeUnknown(faults.WHAT, why=repr(error)))
        self._client.abort()

    # --- its model's pool sleeps, or has not loaded it --------------------------------------------

    def _sleep(self, call: Call) -> None:
        desk = self._desk
        try:
            if desk.held - self._held > desk.limits.asleep:
                raise NoRoom(desk.limits.asleep)
            self.attempt = desk.gateway.wait(call, self)
        except ServegateError as error:
            self.give_up(error)
        else:
            self._hold()

    def _wait_loaded(self, attempt: Attempt, error: NotLoaded) -> None:
        try:
            self.attempt = self._desk.gateway.wait_loaded(attempt, self, error)
        except NotLoaded as final:
            self.give_up(final)
        else:
            self._hold()

    def _hold(self) -> None:
        """Wait with as much of the body as is kept; then the client is paused."""
        self._desk.held += self._size - self._held  # what had come whole was not counted
        self._held = self._size
        if not self.is_complete:
            self._invite()

    def on_awake(self, attempt: Attempt) -> None:
        """See `Waiter`."""
        self.attempt, self._target = attempt, None
        self._send(attempt)

    def on_asleep(self, error: ServegateError) -> None:
        """See `Waiter`."""
        self.give_up(error)

    # --- a replica is asked -----------------------------------------------------------------------

    def _send(self, attempt: Attempt) -> None:
        choice = attempt.choice
        if choice is not None and choice.is_renamed:
            self._target = choice.target
        if not self.is_complete:
            self._invite()
        pool = self._desk.pool
        upstream = pool.take(attempt.replica)
        if upstream is not None:
            self._begin(attempt, upstream)
        else:
            pool.open(attempt.replica, opened=self._opened, failed=self._unreachable)

    def _begin(self, attempt: Attempt, upstream: HttpConnection) -> None:
        self._upstream = upstream
        upstream.begin(self)
        self._write_request(attempt, upstream)

    def _opened(self, upstream: HttpConnection) -> None:
        if self.is_over or self.attempt is None:
            self._desk.pool.give_back(upstream)
            return
        try:
            self._begin(self.attempt, upstream)
        except Exception as fault:
            self.on_fault(fault)

    def _unreachable(self, error: NotSent) -> None:
        attempt = self.attempt
        if self.is_over or attempt is None:
            return
        try:
            attempt.not_sent(error)
            self._send(attempt)
        except ServegateError as refusal:
            self.give_up(refusal)
        except Exception as fault:
            self.on_fault(fault)
