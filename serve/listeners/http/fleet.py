"""Questions over HTTP to all replicas at once: statistics, and the repository index.

All are asked at the same time, and each has the same short time to answer. A replica that does not
answer is left out where another one does: `servegate-partial` names it then.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from serve.core.calls import Call, Headers, Reply, Verb
from serve.core.errors import NoReplica, ServegateError
from serve.core.snapshot import Snapshot
from serve.listeners.fleet import PATIENCE, FleetAnswers, ReplicaQuestion, ask_all
from serve.listeners.http.request import HttpRequest
from serve.proxy.attempts import NOWHERE
from serve.proxy.gateway import Gateway
from serve.proxy.routing import targets_of
from serve.triton.http_pool import Pool, header_lines, request_line
from serve.wire import statistics
from serve.wire.kserve_http import end_to_end, upstream_path
from serve.wire.statistics import Entry, ReplicaTally, StatisticsNames

_CODINGS = (b"accept-encoding", b"content-encoding")  # what is merged has to be readable
_JSON = (b"content-type", b"application/json")


class FleetHttp:
    """Asks all replicas and merges what they say. Remembers counters, so that they only rise."""

    def __init__(self, gateway: Gateway, pool: Pool, *, clock: Callable[[], float]) -> None:
        self._gateway = gateway
        self._pool = pool
        self._clock = clock
        self._tally = ReplicaTally()

    def __repr__(self) -> str:
        return f"<FleetHttp {self._tally!r}>"

    async def answer(self, call: Call, origin: HttpRequest, body: bytes = b"") -> Reply:
        """One answer of all; errors are counted, and raised."""
        snapshot, sees = self._gateway.fleet(call)
        begun = self._clock()
        try:
            reply = await self._ask(call, snapshot, sees, origin.headers, body)
        except ServegateError as error:
            self._gateway.ended(call, None, NOWHERE, error.code, begun, error=error.code)
            raise
        origin.upstream, origin.answered = self._clock() - begun, len(reply.body)
        good = 200 <= reply.status < 300
        self._gateway.ended(call, None, NOWHERE, str(reply.status), begun, good=good)
        return reply

    async def _ask(
        self,
        call: Call,
        snapshot: Snapshot,
        sees: Callable[[str], bool],
        headers: Headers,
        body: bytes,
    ) -> Reply:
        names, parts = StatisticsNames(snapshot), _parts(call, snapshot, sees)
        if not parts:
            raise NoReplica(call.model, call.selector)
        passed = [pair for pair in end_to_end(headers) if pair[0] not in _CODINGS]
        lines = header_lines(tuple(passed))
        if call.verb is Verb.INDEX:
            lines += b"Content-Length: %d\r\n" % len(body)
        rest, deadline = lines + b"\r\n" + body, min(self._clock() + PATIENCE, call.deadline)
        heard = await ask_all(
            parts,
            lambda part: self._pool.fetch(part.replica, part.question + rest, deadline),
            _entries,
        )
        if isinstance(heard, Reply):
            return heard
        if call.verb is Verb.INDEX:
            return _reply(statistics.index(heard.told.values(), names, sees), heard)
        is_complete = not call.model and not heard.missing
        merged = self._tally.merged(heard.told, names, sees, is_complete=is_complete)
        return _reply({"model_stats": merged}, heard)


def _parts(call: Call, snapshot: Snapshot, sees: Callable[[str], bool]) -> list[ReplicaQuestion]:
    """Which replicas are asked for what: those that hold the versions which are asked about."""
    if call.verb is Verb.INDEX:
        replicas = snapshot.replicas.values()
        return [
            ReplicaQuestion(one, request_line("POST", one, "/v2/repository/index"))
            for one in replicas
        ]
    if not call.model:
        replicas = snapshot.replicas.values()
        return [
            ReplicaQuestion(one, request_line("GET", one, "/v2/models/stats")) for one in replicas
        ]
    parts: dict[tuple[str, str], ReplicaQuestion] = {}
    for target in targets_of(call, snapshot, sees):
        version = target.physical_version if call.selector else None
        path = upstream_path(Verb.STATS, target.physical_name, version)
        for name in target.replicas:
            replica = snapshot.replicas[name]
            parts[name, path] = ReplicaQuestion(replica, request_line("GET", replica, path))
    return list(parts.values())


def _entries(reply: Reply) -> list[Entry] | None:
    """What an answer holds; `ValueError` and its like when it is of another shape."""
    if reply.status != 200:
        return None
    told: Any = json.loads(reply.body)
    entries: Any = told["model_stats"] if isinstance(told, Mapping) else told
    return [{**entry, "name": str(entry["name"])} for entry in entries]


def _reply(told: Any, heard: FleetAnswers) -> Reply:
    body = json.dumps(told, ensure_ascii=False, separators=(",", ":"))
    return Reply(200, body.encode(), (_JSON, *heard.headers))
