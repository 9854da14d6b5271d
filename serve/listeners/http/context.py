"""What the HTTP connections of all clients share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import httptools

from serve.core import faults
from serve.core.calls import PREDICTIONS
from serve.core.errors import ServegateError
from serve.core.limits import Limits
from serve.listeners.incomplete import Incomplete
from serve.proxy.attempts import Attempt
from serve.proxy.gateway import Gateway
from serve.triton.http_pool import Pool, request_line
from serve.wire import kserve_http
from serve.wire.known_heads import KnownHead, Pattern
from serve.wire.kserve_http import KServeQuestion, upstream_path
from serve.wire.request_ids import GIVEN, TOLD, fresh_ids, usable

if TYPE_CHECKING:
    from serve.listeners.http.connection import HttpClientConnection

_REMEMBERED = 1024  # different paths, heads, decisions
_LONGEST_REMEMBERED = 4096  # bytes of a path or head


class HttpContext:
    """Passed to every connection.

    `held` counts the bytes of request bodies that are kept at the moment, `now` is the clock as of
    the last sweep, `ids` are names for calls without one. `is_local` says that the port is open to
    this machine alone.
    """

    def __init__(
        self,
        gateway: Gateway,
        pool: Pool,
        *,
        limits: Limits,
        clock: Callable[[], float],
        is_local: bool = False,
    ) -> None:
        self.gateway = gateway
        self.pool = pool
        self.limits = limits
        self.clock = clock
        self.is_local = is_local
        self.now = clock()
        self.held = 0
        self.incomplete = Incomplete(limits.incomplete)
        self.ids = fresh_ids()
        self.clients: set[HttpClientConnection] = set()
        self.heads: dict[bytes, KnownHead] = {}
        self._patterns: dict[bytes, Pattern] = {}
        self._asked: dict[bytes, KServeQuestion] = {}
        self._request_lines: dict[tuple[str, str, int, str], bytes] = {}
        self._decisions: dict[str, bytes] = {}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} clients={len(self.clients)} held={self.held}>"

    def sweep(self) -> None:
        """Keep all deadlines and time limits; called about ten times a second."""
        self.now = self.clock()
        self.incomplete.turn()
        for client in tuple(self.clients):
            if not faults.contained(client, client.tick, self.now):
                client.abort()
        for memo in (self._request_lines, self._decisions):
            if len(memo) > _REMEMBERED:
                memo.clear()

    def predict_call(self, method: bytes, url: bytes) -> KServeQuestion | None:
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
            if not isinstance(found, KServeQuestion) or found.verb not in PREDICTIONS:
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

    def shared(self, pattern: Pattern) -> Pattern:
        """The same pattern as other connections have found it."""
        if len(self._patterns) >= _REMEMBERED:
            self._patterns.clear()
        return self._patterns.setdefault(pattern.source, pattern)

    def request_id(self, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
        """The id of a call with these headers, whose names are in lower case; made up if need be.

        To be asked once per call: what is made up is another one each time.
        """
        given = (usable(value) for name, value in headers if name == GIVEN)
        return next(filter(None, given), b"") or next(self.ids)

    def request_line(self, attempt: Attempt) -> bytes:
        """The first lines of a predict request to the replica of an attempt."""
        choice = attempt.choice
        assert choice is not None
        target, verb = choice.target, attempt.call.verb
        key = (attempt.replica.name, target.physical_name, target.physical_version, verb)
        line = self._request_lines.get(key)
        if line is None:
            path = upstream_path(verb, target.physical_name, target.physical_version)
            line = self._request_lines[key] = request_line("POST", attempt.replica, path)
        return line

    def decision_lines(self, attempt: Attempt) -> bytes:
        """The header that says which version answers, and why; and the name of the request id's."""
        line = self._decisions.get(attempt.decision)
        if line is None:
            decision = attempt.decision.encode("latin-1", "replace")
            line = b"servegate-version: %b\r\n%b: " % (decision, TOLD)
            self._decisions[attempt.decision] = line
        return line
