"""One predict call over HTTP: its request from a client, its answer from a replica.

    reads ──go──▶ routes ──▶ connects ──▶ sends ──end──▶ waits ──▶ answers ──▶ over
      │              │  ▲        └─ not sent ─┘ ▲            │          │
      │              ▼  │ `on_awake`            └── refused ─┘          │
      │            sleeps, until its model's pool has a replica         │
      └──────────────┴──── an error: `give_up` ─────────────────────────┴─────▶ over

Nothing here waits: the client's connection, the replica's connection and the sweeper call.

The request: a call takes a slot when it can be sent: a small body is complete, of a large one the
first `FIRST` bytes have come, and the rest keeps a minimum rate. From then on it passes in the
pieces in which it comes. The first of them are kept until they are too many, so that a call that
was provably not executed can be sent to another replica. A large body whose length is known is
moved by the kernel. Whichever side is slower pauses the other.

The answer:

    head ──┬──────────────────────────────────────────────▶ passed on
           ├─ names to be restored: held until they are found ──▶ passed on
           └─ 404, 500, 503: held and judged ──┬──▶ passed on
                                               ├──▶ the call is sent again, to another replica
                                               └──▶ it waits until a replica has loaded the model
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from serve.core import faults
from serve.core.calls import Account, Call, Choice, Reply, Verb
from serve.core.errors import (
    Asleep,
    BadRequest,
    BodyTooLarge,
    DeadlineExceeded,
    InflatedTooLarge,
    NoRoom,
    NotLoaded,
    NotSent,
    OutcomeUnknown,
    ServegateError,
    TooManyIncomplete,
    TooSlow,
)
from serve.core.limits import FIRST, SMALL
from serve.core.snapshot import VersionTarget
from serve.listeners.http.context import HttpContext
from serve.listeners.http.splice import WORTHWHILE, Splice
from serve.proxy.attempts import NOWHERE, Attempt
from serve.proxy.mirrors import MirroredCall
from serve.triton.http_connection import HIGH_WATER, HttpConnection
from serve.triton.http_pool import broken
from serve.wire import model_names
from serve.wire.decompression import FREE, Inflation, inflated_head
from serve.wire.http_head import ReplyHead
from serve.wire.kserve_http import InferHead, KServeQuestion, infer_head
from serve.wire.sequences import sequence_of

if TYPE_CHECKING:
    from serve.listeners.http.connection import HttpClientConnection

KEPT = HIGH_WATER  # bytes of a request that are kept for a second attempt
JOINED = 16 << 10  # bytes; a small request or answer is written in one piece
LAST_CHUNK = b"0\r\n\r\n"
_MOST_PIECES = 1024  # kept one by one; more are joined, for each costs more than its bytes
_LEARNED_FROM = frozenset((404, 500, 503))  # answers that may prove that a call was not executed
_HELD = model_names.SEARCHED  # bytes; a longer answer has no names, and is no refusal of Triton's


class HttpPredictCall:
    """A predict call between two connections. `is_over` once nothing more will happen to it.

    It is the origin of the gateway's `Call`, and waits for its pool (`Waiter`).
    """

    # What most calls never change stays here, in the class: a call costs only what it uses.
    is_over = False
    is_complete = False
    keeps_alive = True
    takes_chunks = True
    attempt: Attempt | None = None
    deadline = math.inf  # monotonic seconds, once the call has its turn
    request_id = b""  # once it is known, given or made up
    lines = b""  # that are passed on, when they are not those of the head
    _upstream: HttpConnection | None = None
    _target: VersionTarget | None = None  # when Triton knows it by other names than callers do
    _pieces: list[bytes] | None  # None once they are too many to be kept
    _owed_since = 0.0  # by the clock, while it waits for a body that has not come
    _sent = 0.0  # when, by the clock, the whole request had been handed on
    _size = 0  # bytes of the body so far
    _held = 0  # of these, in `_pieces`
    _mark: tuple[float, int] | None = None  # since when, and with how many bytes, more is owed
    _inflation: Inflation | None = None
    _is_invited = False  # the client has been told to go on
    _splice: Splice | None = None
    _wants_splice = ""  # "request" or "answer", while what was written before drains
    _reply: ReplyHead | None = None
    _answer: list[bytes] | None = None  # held back, to be judged or restored
    _started = False  # the answer is on its way to the client
    _grows = False  # the answer goes out in chunks
    _heard = 0.0  # when, by the clock, the answer began
    _answered = 0  # bytes of its body that the client has been sent, or soon will be
    _events: model_names.RestoredEvents | None = None  # of an answer that is a stream of them

    def __init__(
        self,
        client: HttpClientConnection,
        context: HttpContext,
        asked: KServeQuestion,
        headers: list[tuple[bytes, bytes]],
        head: InferHead,
    ) -> None:
        self.asked = asked
        self.headers = headers
        self.head = head
        self._client = client
        self._context = context
        self._pieces = []
        if head.request_id:
            self.request_id = head.request_id
        if head.inflates:
            self._inflation = Inflation(context.limits.inflated)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.asked.model} {self.attempt!r} over={self.is_over}>"

    def identity(self) -> bytes:
        """The request id, which the caller is told."""
        if not self.request_id:
            self.request_id = next(self._context.ids)
        return self.request_id

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

    def header(self, name: bytes) -> bytes:
        """See `CallOrigin`."""
        return b", ".join(value for key, value in self.headers if key == name)

    # --- the request comes ------------------------------------------------------------------------

    def whole(self, body: bytes) -> None:
        """The whole of a small body, which is the usual case."""
        self._size = len(body)
        self._pieces = [body]
        self.is_complete = True
        self.go()

    def body(self, data: bytes) -> None:
        """A piece of the body."""
        if self.is_over:
            return
        self._size += len(data)
        limits = self._context.limits
        if self._size > limits.body:
            self.give_up(BodyTooLarge(limits.body))
            return
        if self._inflation is not None and self._inflation.exceeds(data):
            self.give_up(InflatedTooLarge(self._inflation.limit))
            return
        if self._pieces is not None:
            self._keep(self._pieces, data)
        if self._upstream is not None:
            if self.head.length is None:
                self._upstream.write(b"%x\r\n" % len(data), data, b"\r\n")
            else:
                self._upstream.write(data)

    def end(self) -> None:
        """The body is complete."""
        if self.is_over:
            return
        claimed = self.head.json_length
        if claimed is not None and claimed > self._size and self._inflation is None:
            what = f"Inference-Header-Content-Length is {claimed}, but the body has {self._size}"
            self.give_up(BadRequest(f"{what} bytes"))
            return
        self.is_complete = True
        if self._upstream is not None:
            if self.head.length is None:
                self._upstream.write(LAST_CHUNK)
            self._sent = self._context.clock()

    # --- it is routed -----------------------------------------------------------------------------

    def go(self) -> None:
        """What came with the head has been read: route the call, as soon as that is possible."""
        if self.is_over or self.attempt is not None:
            return
        context = self._context
        if self.deadline == math.inf:
            self.deadline = context.now + context.limits.call
        if context.held > context.limits.in_flight:
            self.give_up(NoRoom(context.limits.in_flight))
            return
        if not self.is_complete and self._has_to_wait():
            self._wait_for_body()
            return
        sequence = ""
        if context.gateway.serves_sequences(self.asked.model, self.head.credential):
            if not self._has_json_head():
                self._invite()
                return
            try:
                sequence = self._sequence()
            except ServegateError as error:
                self.give_up(error)
                return
        call = self._call(sequence)
        since = self._owed_since
        if since:
            self._owed_since = 0.0
        try:
            attempt = self.attempt = context.gateway.begin(call)
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
            self._context.gateway.check(self._call())
        except ServegateError as error:
            self.give_up(error)
            return
        self._owed_since = self._context.clock()
        self._invite()

    def _call(self, sequence: str = "") -> Call:
        asked, key = self.asked, self.head.credential
        model, selector, until = asked.model, asked.selector, self.deadline
        return Call("http", asked.verb, model, selector, until, sequence, "", key, self)

    def _count_unsent(self, code: str) -> None:
        """It ends while it waits for its body."""
        if self._owed_since:
            since, self._owed_since = self._owed_since, 0.0
            self._context.gateway.ended(self._call(), None, NOWHERE, code, since, error=code)

    def _has_json_head(self) -> bool:
        wanted = self.head.json_length
        return self.is_complete or (
            wanted is not None and not self.head.inflates and self._size >= wanted > 0
        )

    def _sequence(self) -> str:
        """The correlation id, for models that serve sequences."""
        body = b"".join(self._pieces or ())
        if self.head.inflates:
            body = inflated_head(body, self.head.json_length or FREE)
        if self.asked.verb is not Verb.INFER:
            return sequence_of(body, is_flat=True)
        return sequence_of(body[: self.head.json_length] if self.head.json_length else body)

    # --- its model's pool sleeps, or has not loaded it --------------------------------------------

    def _sleep(self, call: Call) -> None:
        context, self.deadline = self._context, call.deadline
        try:
            if context.held - self._held > context.limits.asleep:
                raise NoRoom(context.limits.asleep)
            self.attempt = context.gateway.wait(call, self)
        except ServegateError as error:
            self.give_up(error)
        else:
            self._hold()

    def _wait_loaded(self, attempt: Attempt, error: NotLoaded) -> None:
        try:
            self.attempt = self._context.gateway.wait_loaded(attempt, self, error)
        except NotLoaded as final:
            self.give_up(final)
        else:
            self._hold()

    def _hold(self) -> None:
        """Wait with as much of the body as is kept; then the client is paused."""
        self._context.held += self._size - self._held  # what had come whole was not counted
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

    # --- it is sent to a replica ------------------------------------------------------------------

    def _send(self, attempt: Attempt) -> None:
        self.deadline = attempt.call.deadline
        choice = attempt.choice
        if choice is not None and choice.is_renamed:
            self._target = choice.target
        if not self.is_complete:
            self._invite()
        pool = self._context.pool
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
            self._context.pool.give_back(upstream)
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

    def _write_request(self, attempt: Attempt, upstream: HttpConnection) -> None:
        """Write the head, and the body as far as it is here."""
        head, size = self.head, self._size
        lines = self.lines or head.lines
        if self._target is not None:
            # The answer has to come uncompressed, so that names can be restored in it.
            is_flat = self.asked.verb is not Verb.INFER
            lines = infer_head(self.headers, plain_answer=True, is_flat=is_flat).lines
        start = self._context.request_line(attempt) + lines
        pieces = self._pieces or []
        if self.is_complete:
            self._sent = self._context.clock()
            if head.length is not None and size <= JOINED:
                upstream.write(b"".join((start, b"\r\n", *pieces)))
                return
        if head.length is not None:
            pieces = [start, b"\r\n", *pieces]
        elif self.is_complete:
            pieces = [start, b"Content-Length: %d\r\n\r\n" % size, *pieces]
        else:
            chunks = [(b"%x\r\n" % len(piece), piece, b"\r\n") for piece in pieces]
            pieces = [start, b"Transfer-Encoding: chunked\r\n\r\n"]
            pieces += [part for chunk in chunks for part in chunk]
        if not self.is_complete:
            self._client.resume_request()  # writing may pause it at once
        if size <= JOINED:
            upstream.write(b"".join(pieces))
        else:
            upstream.write(*pieces)
        if size > KEPT or (head.length or 0) > KEPT:
            self._drop_pieces()  # at once: what is kept costs the next pieces their warm memory
        left = 0 if self.is_complete or head.length is None else head.length - size
        if left >= WORTHWHILE and self._inflation is None and self._client.is_plain:
            self._wants_splice = "request"
            self._client.pause_request()
            upstream.tell_when_drained()

    def request_paused(self) -> None:
        """Triton reads more slowly than the client sends."""
        if not self.is_complete:
            self._client.pause_request()

    def request_resumed(self) -> None:
        """What was written to Triton has gone out."""
        if self._wants_splice == "request":
            self._splice_request()
        elif self._splice is None:
            self._client.resume_request()

    def _splice_request(self) -> None:
        upstream, length = self._upstream, self.head.length
        assert upstream is not None and length is not None
        self._wants_splice = ""
        try:
            self._splice = Splice(
                self._client.fileno(),
                upstream.fileno(),
                length - self._size,
                loop=self._client.loop,
                done=self._request_moved,
            )
        except OSError:  # no descriptor is left: the body goes through this process
            self._client.resume_request()
        else:
            self._drop_pieces()  # what is moved is not kept, so the call cannot be sent again

    def _request_moved(self, failed: str) -> None:
        if self._splice is not None:
            self._size += self._splice.moved
        self._splice = None
        if failed == "source":
            self._client.abort()
        elif not failed:
            self._client.body_was_moved()
            self.end()

    # --- what is kept of the request --------------------------------------------------------------

    def _keep(self, pieces: list[bytes], data: bytes) -> None:
        """Keep a piece for a later attempt, and while there is none yet."""
        if self._size > KEPT and self._upstream is not None:
            self._drop_pieces()
            return
        pieces.append(data)
        if len(pieces) > _MOST_PIECES:
            pieces[:] = [b"".join(pieces)]
        self._held += len(data)
        self._context.held += len(data)
        if self._upstream is None and self.attempt is not None and self._size > HIGH_WATER:
            self._client.pause_request()

    def _drop_pieces(self) -> None:
        self._pieces = None
        self._context.held -= self._held
        self._held = 0

    def _invite(self) -> None:
        """Tell a client that waits for it that its body is wanted."""
        if self.head.expects_continue and not self._is_invited and not self._size:
            self._is_invited = True
            self._client.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _watch_body(self, now: float) -> None:
        """Give up a client that owes a part of the body and does not send it, or hardly."""
        limits, is_new = self._context.limits, self._mark is None
        since, size = self._mark or (now, self._size)
        self._mark = (since, size)
        splice = self._splice
        got = self._size if splice is None else (self.head.length or 0) - splice.left
        if self._client.is_request_paused and (splice is None or not splice.waits_for_source):
            self._mark = (now, got)
            return
        try:
            peer, key = self._client.peer, self.head.credential
            self._context.incomplete.count(peer, key, is_new=is_new)
        except TooManyIncomplete as error:
            self.give_up(error)
            return
        if now - since < limits.body_window(holds_slot=self.attempt is not None):
            return
        if got - size < limits.body_rate * (now - since) or got == size:
            what = f"only {got - size} bytes of the body arrived in {now - since:.3g} s"
            self.give_up(TooSlow(what, now - since))
        else:
            self._mark = (now, got)

    # --- the answer comes -------------------------------------------------------------------------

    def reply_head(self, head: ReplyHead, body: bytes, *, is_whole: bool) -> None:
        """Triton's answer begins; most come whole."""
        self._reply = head
        self._heard = self._context.clock()
        attempt = self.attempt
        assert attempt is not None
        if self._target is None and head.status not in _LEARNED_FROM:
            if is_whole and self.is_complete and self.keeps_alive and len(body) <= JOINED:
                told = self._context.decision_lines(attempt)
                identity = self.request_id or self.identity()
                self._answered = len(body)
                start = (head.lines, told, identity, b"\r\n\r\n", body)
                self._client.transport.write(b"".join(start))
                self._finish(attempt, head, body)
            else:
                self._begin_answer(attempt, head, body, is_whole=is_whole)
            return
        target, is_good = self._target, 200 <= head.status < 300
        if target is not None and is_good and head.length is None and head.is_event_stream:
            self._events = model_names.RestoredEvents(target)
            self._begin_answer(attempt, head, self._events.restored(body), is_whole=False)
            return
        self._answer = [body]
        if is_whole:
            self.reply_end()
        else:
            self._pass_on_what_is_clear(head, self._answer)

    def reply_body(self, data: bytes) -> None:
        """More of the answer."""
        if self._events is not None:
            self._write_answer(self._events.restored(data))
        elif self._answer is None or self._reply is None:
            self._write_answer(data)
        else:
            self._answer.append(data)
            self._pass_on_what_is_clear(self._reply, self._answer)

    def reply_end(self) -> None:
        """The answer is complete."""
        attempt, head = self.attempt, self._reply
        assert attempt is not None and head is not None
        if self._answer is not None:
            body, self._answer = b"".join(self._answer), None
            if head.status in _LEARNED_FROM and self._goes_elsewhere(attempt, head, body):
                return
            if self._target is not None:
                head, body = _restored(head, body, self._target)
            self._begin_answer(attempt, head, body, is_whole=True)
            return
        if self._events is not None:
            self._write_answer(self._events.rest())
        if self._grows:
            self._client.write(LAST_CHUNK)
        self._finish(attempt, head)

    def reply_broken(self, why: str) -> None:
        """The connection broke: nobody knows whether the call was executed."""
        attempt = self.attempt
        error = broken(why, attempt.replica.name if attempt is not None else "")
        if attempt is None or self._started or self._pieces is None:
            self.give_up(error)
            return
        try:
            attempt.broken_off(error)
        except ServegateError as final:
            self.give_up(final)
        else:
            self._repeat(attempt, reusable=False)

    # --- the answer is judged, and names are restored ---------------------------------------------

    def _goes_elsewhere(self, attempt: Attempt, head: ReplyHead, body: bytes) -> bool:
        """Whether the answer proves that the call was not executed, and it is sent again."""
        reply, missing = Reply(head.status, body, head.headers), None
        try:
            if not attempt.refused(reply, can_repeat=self._pieces is not None):
                return False
        except NotLoaded as error:
            missing = error
        except ServegateError as error:
            self.give_up(error)
            return True
        if missing is None:
            self._repeat(attempt, reusable=self.is_complete)
        else:
            self._drop_answer(reusable=self.is_complete)
            self._wait_loaded(attempt, missing)
        return True

    def _repeat(self, attempt: Attempt, *, reusable: bool) -> None:
        """Send what was kept to the replica that the attempt has come to."""
        self._drop_answer(reusable=reusable)
        self._send(attempt)

    def _drop_answer(self, *, reusable: bool) -> None:
        self._leave_upstream(reusable=reusable)
        self._reply = self._answer = self._events = None
        self._wants_splice = ""

    def _pass_on_what_is_clear(self, head: ReplyHead, held: list[bytes]) -> None:
        """Pass a held answer on as soon as its names are restored, or it is too long to matter."""
        attempt = self.attempt
        assert attempt is not None
        start = b"".join(held)
        self._answer = [start]
        restored = None
        if self._target is not None and head.status not in _LEARNED_FROM:
            restored = model_names.in_answer(start, self._target)
        if restored is not None or len(start) > _HELD:
            self._answer = None
            body = start if restored is None else restored
            self._begin_answer(attempt, head.resized(len(body) - len(start)), body, is_whole=False)

    # --- the answer goes out ----------------------------------------------------------------------

    def _begin_answer(
        self, attempt: Attempt, head: ReplyHead, body: bytes, *, is_whole: bool
    ) -> None:
        client = self._client
        self._started = True
        if not self.is_complete:
            self.keeps_alive = False
        told = self._context.decision_lines(attempt) + self.identity() + b"\r\n"
        if head.length is not None and self.keeps_alive:
            start: tuple[bytes, ...] = (head.lines, told, b"\r\n")
        else:
            start = (head.lines, told, self._framing(head, len(body) if is_whole else None))
        if len(body) <= JOINED and not self._grows:
            client.transport.write(b"".join((*start, body)))
            self._answered = len(body)
        else:
            client.write(b"".join(start))
            self._write_answer(body)
        if is_whole:
            self._finish(attempt, head, body)
            return
        upstream = self._upstream
        is_large = upstream is not None and upstream.answer_left >= WORTHWHILE
        if upstream is not None and is_large and self.is_complete and client.is_plain:
            upstream.pause_answer()
            self._wants_splice = "answer"
            client.tell_when_drained()

    def _framing(self, head: ReplyHead, whole: int | None) -> bytes:
        """How the client finds the end of an answer, and whether the connection ends with it."""
        lines = b""
        if head.length is None and whole is not None:
            lines = b"Content-Length: %d\r\n" % whole
        elif head.length is None and self.takes_chunks:
            self._grows = True
            lines = b"Transfer-Encoding: chunked\r\n"
        elif head.length is None:
            self.keeps_alive = False
        return lines + (b"\r\n" if self.keeps_alive else b"Connection: close\r\n\r\n")

    def _write_answer(self, data: bytes) -> None:
        client = self._client
        if not data:
            return
        self._answered += len(data)
        if self._grows:
            client.write(b"%x\r\n" % len(data), data, b"\r\n")
        else:
            client.write(data)
        if client.is_answer_paused and self._upstream is not None:
            self._upstream.pause_answer()

    def _finish(self, attempt: Attempt, head: ReplyHead, body: bytes | None = None) -> None:
        """The answer has been passed on; `body` is all of it, where it came as a whole."""
        is_good, choice = 200 <= head.status < 300, attempt.choice
        attempt.answered(head.status, good=is_good)
        if is_good and choice is not None and choice.mirror is not None:
            response = None
            if body is not None and not head.header(b"content-encoding"):
                response = Reply(head.status, body, head.headers)
            faults.contained(self, self._mirror, choice, response)
        self._close(reusable=self.is_complete)
        self._client.answered(self)

    def _mirror(self, choice: Choice, response: Reply | None) -> None:
        """Offer a copy of the call, if it is one of those to be mirrored."""
        mirrors = self._context.gateway.mirrors
        if mirrors is None or self.asked.verb is not Verb.INFER or not mirrors.wants(choice):
            return
        if self._pieces is None or not self.is_complete:
            mirrors.drop(choice, "too_large" if self._pieces is None else "incomplete")
            return
        head, size = infer_head(self.headers, plain_answer=True).lines, self._size
        head += b"\r\n" if self.head.length is not None else b"Content-Length: %d\r\n\r\n" % size
        pieces = tuple(self._pieces)
        mirrors.offer(MirroredCall(choice, "http", head, pieces, size, response))

    def answer_drained(self) -> None:
        """What was written to the client has gone out."""
        if self._wants_splice == "answer":
            self._splice_answer()
        elif self._upstream is not None and self._splice is None:
            self._upstream.resume_answer()

    def _splice_answer(self) -> None:
        upstream = self._upstream
        assert upstream is not None
        self._wants_splice = ""
        try:
            self._splice = Splice(
                upstream.fileno(),
                self._client.fileno(),
                upstream.answer_left,
                loop=self._client.loop,
                done=self._answer_moved,
            )
        except OSError:  # no descriptor is left: the body goes through this process
            upstream.resume_answer()

    def _answer_moved(self, failed: str) -> None:
        if self._splice is not None:
            self._answered += self._splice.moved
        self._splice = None
        attempt, head, upstream = self.attempt, self._reply, self._upstream
        assert attempt is not None and head is not None and upstream is not None
        if failed == "source":
            self.reply_broken("the response was cut off")
        elif failed:
            self._client.abort()
        else:
            upstream.answer_was_moved()
            self._finish(attempt, head)

    # --- the end ----------------------------------------------------------------------------------

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
        attempt = self.attempt
        if attempt is not None:
            self._leave_to_triton(attempt)
            attempt.left()
        else:
            self._count_unsent("client_left")
        self._close(reusable=False)

    def _leave_to_triton(self, attempt: Attempt) -> None:
        """Triton goes on with a request that it has whole, and keeps the slot until it is done."""
        upstream, until = self._upstream, attempt.begun + self._context.limits.call
        is_sent = self.is_complete and upstream is not None and upstream.awaits_answer
        if upstream is not None and is_sent and self.asked.verb is not Verb.GENERATE_STREAM:
            self._upstream = None
            self._context.pool.absorb(upstream, attempt.detach().free, until=until)

    def give_up(self, error: ServegateError) -> None:
        """End the call with an error of our own; an answer that has begun is broken off."""
        if self.is_over:
            return
        if self.attempt is not None:
            if isinstance(error, DeadlineExceeded):
                self._leave_to_triton(self.attempt)
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

    def _leave_upstream(self, *, reusable: bool) -> None:
        upstream, self._upstream = self._upstream, None
        if upstream is None:
            return
        if reusable and (self._size <= JOINED or upstream.has_sent_all):
            self._context.pool.give_back(upstream)
        else:
            self._context.pool.discard(upstream)

    def _close(self, *, reusable: bool) -> None:
        """Let go of everything; the client's connection is told by whoever calls."""
        self.is_over = True
        self.attempt = None  # whose call knows its origin: what refers to itself is not freed soon
        if self._wants_splice:
            self._wants_splice = ""
        if self._splice is not None:
            self._splice.stop()
            self._splice = None
        self._leave_upstream(reusable=reusable)
        if self._held:
            self._drop_pieces()


def _restored(head: ReplyHead, body: bytes, target: VersionTarget) -> tuple[ReplyHead, bytes]:
    """A whole answer with the model's own name in it."""
    if 200 <= head.status < 300:
        restored = model_names.in_answer(body, target) or body
    else:
        restored = model_names.in_error(body, target)
    return head.resized(len(restored) - len(body)), restored
