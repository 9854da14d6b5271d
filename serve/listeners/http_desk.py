"""What the HTTP connections of all clients share: the gateway, the pool, limits, time and memos."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import httptools

from serve.core.calls import Verb
from serve.core.errors import ServegateError
from serve.core.limits import Limits
from serve.proxy.gateway import Attempt, Gateway
from serve.triton.http_pool import Pool, request_line
from serve.wire import kserve_http
from serve.wire.kserve_http import InferHead, Question, upstream_path

_REMEMBERED = 1024  # different paths, heads, decisions
_LONGEST_REMEMBERED = 4096  # bytes of a path or head


@dataclass(frozen=True, slots=True)
class KnownHead:
    """The head of a predict request that llhttp has read, under the bytes that it was read from."""

    asked: Question
    headers: list[tuple[bytes, bytes]]
    head: InferHead


class Connection(Protocol):
    """A client's connection, as the sweeper sees it."""

    def tick(self, now: float) -> None:
        """Look at the clock: what is owed, by whom, and for how long."""


class Desk:
    """Handed to every connection.

    `held` counts the bytes of request bodies that are kept at the moment, `now` is the clock as of
    the last sweep.
    """

    def __init__(
        self, gateway: Gateway, pool: Pool, *, limits: Limits, clock: Callable[[], float]
    ) -> None:
        self.gateway = gateway
        self.pool = pool
        self.limits = limits
        self.clock = clock
        self.now = clock()
        self.held = 0
        self.clients: set[Connection] = set()
        self.heads: dict[bytes, KnownHead] = {}
        self._asked: dict[bytes, Question] = {}
        self._request_lines: dict[tuple[str, str, int], bytes] = {}
        self._decisions: dict[str, bytes] = {}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} clients={len(self.clients)} held={self.held}>"

    def sweep(self) -> None:
        """Keep all deadlines and time limits; called about ten times a second."""
        self.now = self.clock()
        for client in tuple(self.clients):
            client.tick(self.now)
        for memo in (self._request_lines, self._decisions):
            if len(memo) > _REMEMBERED:
                memo.clear()

    def predict_call(self, method: bytes, url: bytes) -> Question | None:
        """What a predict request asks for; None for every other request."""
        if method != b"POST":
            return None
        asked = self._asked.get(url)
        if asked is None:
            path = httptools.parse_url(url).path or b""
            try:
                found = kserve_http.parse("POST", path)
            except ServegateError:
                return None
            if not isinstance(found, Question) or found.verb is not Verb.INFER:
                return None
            asked = found
            if len(url) <= _LONGEST_REMEMBERED:
                if len(self._asked) >= _REMEMBERED:
                    self._asked.clear()
                self._asked[url] = asked
        return asked

    def remember(self, start: bytes, known: KnownHead) -> None:
        """Keep the meaning of a head that llhttp has read; of the last thousand that came twice."""
        if len(start) <= _LONGEST_REMEMBERED:
            if len(self.heads) >= _REMEMBERED:
                self.heads.clear()
            self.heads[start] = known

    def request_line(self, attempt: Attempt) -> bytes:
        """The first lines of a predict request to the replica of an attempt."""
        choice = attempt.choice
        assert choice is not None
        target = choice.target
        key = (attempt.replica.name, target.physical_name, target.physical_version)
        line = self._request_lines.get(key)
        if line is None:
            path = upstream_path(Verb.INFER, target.physical_name, target.physical_version)
            line = self._request_lines[key] = request_line("POST", attempt.replica, path)
        return line

    def decision_line(self, attempt: Attempt) -> bytes:
        """The header that says which version answers, and why."""
        line = self._decisions.get(attempt.decision)
        if line is None:
            line = b"servegate-version: %b\r\n" % attempt.decision.encode("latin-1", "replace")
            self._decisions[attempt.decision] = line
        return line
