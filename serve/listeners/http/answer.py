"""The answer half of a predict call: from a replica to the client, as it comes.

head ──┬──────────────────────────────────────────────▶ passed on
       ├─ names to be restored: held until they are found ──▶ passed on
       └─ 404, 500, 503: held and judged ──┬──▶ passed on
                                           ├──▶ the call is sent again, to another replica
                                           └──▶ it waits until a replica has loaded the model
"""

from serve.core.calls import Reply
from serve.core.errors import NotLoaded, ServegateError
from serve.core.snapshot import Target
from serve.listeners.http.splicing import WORTHWHILE, Splice
from serve.listeners.http.upload import JOINED, LAST_CHUNK, Upload
from serve.proxy.attempts import Attempt
from serve.triton.http_pool import broken
from serve.wire import restoring
from serve.wire.http_head import ReplyHead

_LEARNED_FROM = frozenset((404, 500, 503))  # answers that may prove that a call was not executed
_HELD = restoring.SEARCHED  # bytes; a longer answer has no names, and is no refusal of Triton's


class Answer(Upload):
    """What an `Exchange` knows of its answer; a replica's connection calls it."""

    _reply: ReplyHead | None = None
    _answer: list[bytes] | None = None  # held back, to be judged or restored
    _started = False  # the answer is on its way to the client
    _grows = False  # the answer goes out in chunks
    _heard = 0.0  # when, by the clock, the answer began
    _answered = 0  # bytes of its body that the client has been sent, or soon will be
    _events: restoring.Events | None = None  # of an answer that is a stream of them

    def _send(self, attempt: Attempt) -> None:
        """Send the call to the attempt's replica."""
        raise NotImplementedError

    def _wait_loaded(self, attempt: Attempt, error: NotLoaded) -> None:
        """Wait until a replica has loaded the model."""
        raise NotImplementedError

    # --- it comes ---------------------------------------------------------------------------------

    def reply_head(self, head: ReplyHead, body: bytes, *, is_whole: bool) -> None:
        """Triton's answer begins; most come whole."""
        self._reply = head
        self._heard = self._desk.clock()
        attempt = self.attempt
        assert attempt is not None
        if self._target is None and head.status not in _LEARNED_FROM:
            if is_whole and self.is_complete and self.keeps_alive and len(body) <= JOINED:
                told = self._desk.decision_lines(attempt)
                identity = self.request_id or self.identity()
                self._answered = len(body)
                start = (head.lines, told, identity, b"\r\n\r\n", body)
                self._client.transport.write(b"".join(start))
                self._finish(attempt, head)
            else:
                self._begin_answer(attempt, head, body, is_whole=is_whole)
            return
        target, is_good = self._target, 200 <= head.status < 300
        if target is not None and is_good and head.length is None and head.is_event_stream:
            self._events = restoring.Events(target)
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
        self.give_up(broken(why, attempt.replica.name if attempt is not None else ""))

    # --- it is judged, and names are restored -----------------------------------------------------

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
        self._leave_upstream(reusable=self.is_complete)
        self._reply = None
        self._wants_splice = ""
        if missing is None:
            self._send(attempt)
        else:
            self._wait_loaded(attempt, missing)
        return True

    def _pass_on_what_is_clear(self, head: ReplyHead, held: list[bytes]) -> None:
        """Pass a held answer on as soon as its names are restored, or it is too long to matter."""
        attempt = self.attempt
        assert attempt is not None
        start = b"".join(held)
        self._answer = [start]
        restored = None
        if self._target is not None and head.status not in _LEARNED_FROM:
            restored = restoring.in_answer(start, self._target)
        if restored is not None or len(start) > _HELD:
            self._answer = None
            body = start if restored is None else restored
            self._begin_answer(attempt, head.resized(len(body) - len(start)), body, is_whole=False)

    # --- it goes out ------------------------------------------------------------------------------

    def _begin_answer(
        self, attempt: Attempt, head: ReplyHead, body: bytes, *, is_whole: bool
    ) -> None:
        client = self._client
        self._started = True
        if not self.is_complete:
            self.keeps_alive = False
        told = self._desk.decision_lines(attempt) + self.identity() + b"\r\n"
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
            self._finish(attempt, head)
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

    def _finish(self, attempt: Attempt, head: ReplyHead) -> None:
        attempt.answered(head.status, good=200 <= head.status < 300)
        self._close(reusable=self.is_complete)
        self._client.answered(self)

    # --- or it is moved ---------------------------------------------------------------------------

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


def _restored(head: ReplyHead, body: bytes, target: Target) -> tuple[ReplyHead, bytes]:
    """A whole answer with the model's own name in it."""
    if 200 <= head.status < 300:
        restored = restoring.in_answer(body, target) or body
    else:
        restored = restoring.in_error(body, target)
    return head.resized(len(restored) - len(body)), restored
