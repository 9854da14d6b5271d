"""The request half of a predict call: its body, on the way from a client to a replica.

A call takes a slot when it can be sent: a small body is complete, of a large one the first `FIRST`
bytes have come, and the rest keeps a minimum rate. From then on it passes in the pieces in which it
comes. The first of them are kept until they are too many,
so that a call that was provably not executed can be sent to another replica. A large body whose
length is known is moved by the kernel. Whoever is slower pauses the other.
"""

import math

from serve.core.calls import Verb
from serve.core.errors import (
    BadRequest,
    BodyTooLarge,
    InflatedTooLarge,
    ServegateError,
    TooManyIncomplete,
    TooSlow,
)
from serve.core.snapshot import Target
from serve.listeners.http.desk import Client, Desk
from serve.listeners.http.splicing import WORTHWHILE, Splice
from serve.proxy.attempts import Attempt
from serve.triton.http_connection import HIGH_WATER, HttpConnection
from serve.wire.inflating import FREE, Inflation, inflated_head
from serve.wire.kserve_http import InferHead, Question, infer_head
from serve.wire.sequences import sequence_of

KEPT = HIGH_WATER  # bytes of a request that are kept for a second attempt
JOINED = 16 << 10  # bytes; a small request or answer is written in one piece
LAST_CHUNK = b"0\r\n\r\n"
_MOST_PIECES = 1024  # kept one by one; more are joined, for each costs more than its bytes


class Upload:
    """What an `Exchange` knows of its request. `is_over` once nothing more will happen to it."""

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
    _target: Target | None = None  # when Triton knows it by other names than callers do
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

    def __init__(
        self,
        client: Client,
        desk: Desk,
        asked: Question,
        headers: list[tuple[bytes, bytes]],
        head: InferHead,
    ) -> None:
        self.asked = asked
        self.headers = headers
        self.head = head
        self._client = client
        self._desk = desk
        self._pieces = []
        if head.request_id:
            self.request_id = head.request_id
        if head.inflates:
            self._inflation = Inflation(desk.limits.inflated)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.asked.model} {self.attempt!r} over={self.is_over}>"

    def identity(self) -> bytes:
        """The request id, which the caller is told."""
        if not self.request_id:
            self.request_id = next(self._desk.ids)
        return self.request_id

    def give_up(self, error: ServegateError) -> None:
        """End the call with an error of our own."""
        raise NotImplementedError

    # --- the body comes ---------------------------------------------------------------------------

    def body(self, data: bytes) -> None:
        """A piece of the body."""
        if self.is_over:
            return
        self._size += len(data)
        limits = self._desk.limits
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
            self._sent = self._desk.clock()

    # --- what is kept of it -----------------------------------------------------------------------

    def _keep(self, pieces: list[bytes], data: bytes) -> None:
        """Keep a piece for a later attempt, and while there is none yet."""
        if self._size > KEPT and self._upstream is not None:
            self._drop_pieces()
            return
        pieces.append(data)
        if len(pieces) > _MOST_PIECES:
            pieces[:] = [b"".join(pieces)]
        self._held += len(data)
        self._desk.held += len(data)
        if self._upstream is None and self.attempt is not None and self._size > HIGH_WATER:
            self._client.pause_request()

    def _drop_pieces(self) -> None:
        self._pieces = None
        self._desk.held -= self._held
        self._held = 0

    def _invite(self) -> None:
        """Tell a client that waits for it that its body is wanted."""
        if self.head.expects_continue and not self._is_invited and not self._size:
            self._is_invited = True
            self._client.write(b"HTTP/1.1 100 Continue\r\n\r\n")

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

    def _watch_body(self, now: float) -> None:
        """Give up a client that owes a part of the body and does not send it, or hardly."""
        limits, is_new = self._desk.limits, self._mark is None
        since, size = self._mark or (now, self._size)
        self._mark = (since, size)
        splice = self._splice
        got = self._size if splice is None else (self.head.length or 0) - splice.left
        if self._client.is_request_paused and (splice is None or not splice.waits_for_source):
            self._mark = (now, got)
            return
        try:
            peer, key = self._client.peer, self.head.credential
            self._desk.incomplete.count(peer, key, is_new=is_new)
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

    # --- it is sent -------------------------------------------------------------------------------

    def _write_request(self, attempt: Attempt, upstream: HttpConnection) -> None:
        """Write the head, and the body as far as it is here."""
        head, size = self.head, self._size
        lines = self.lines or head.lines
        if self._target is not None:
            # The answer has to come uncompressed, so that names can be restored in it.
            is_flat = self.asked.verb is not Verb.INFER
            lines = infer_head(self.headers, plain_answer=True, is_flat=is_flat).lines
        start = self._desk.request_line(attempt) + lines
        pieces = self._pieces or []
        if self.is_complete:
            self._sent = self._desk.clock()
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

    # --- or moved ---------------------------------------------------------------------------------

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
        # when the sink has failed, the replica's connection is about to say what happened

    # --- the end ----------------------------------------------------------------------------------

    def _leave_upstream(self, *, reusable: bool) -> None:
        upstream, self._upstream = self._upstream, None
        if upstream is None:
            return
        if reusable and (self._size <= JOINED or upstream.has_sent_all):
            self._desk.pool.give_back(upstream)
        else:
            self._desk.pool.discard(upstream)

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
