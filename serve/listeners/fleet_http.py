"""Questions over HTTP to all replicas at once: statistics, and the repository index.

All are asked at the same time, and each has the same short time to answer. A replica that does not
answer is left out where another one does: `servegate-partial` names it then.
"""

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from serve.core.calls import Call, Headers, Reply, Verb
from serve.core.errors import NoReplica, NotSent, OutcomeUnknown, ServegateError, Unavailable
from serve.core.replicas import Replica
from serve.core.snapshot import Snapshot
from serve.listeners.http_asking import Asking
from serve.proxy.attempts import NOWHERE
from serve.proxy.gateway import Gateway
from serve.proxy.routing import targets_of
from serve.triton.http_pool import Pool, header_lines, request_line
from serve.wire import statistics
from serve.wire.kserve_http import end_to_end, upstream_path
from serve.wire.statistics import Entry, Names, Tally

PATIENCE = 5.0  # seconds for one replica to answer
_CODINGS = (b"accept-encoding", b"content-encoding")  # what is merged has to be readable
_JSON = (b"content-type", b"application/json")


@dataclass(frozen=True, slots=True)
class Part:
    """One request to one replica."""

    replica: Replica
    line: bytes


@dataclass(frozen=True, slots=True)
class Told:
    """What one replica said: entries, or an answer that has none, or an error of ours."""

    replica: str
    entries: list[Entry] | None
    reply: Reply | None
    error: ServegateError | None = None


class FleetHttp:
    """Asks all replicas and merges what they say. Remembers counters, so that they only rise."""

    def __init__(self, gateway: Gateway, pool: Pool, *, clock: Callable[[], float]) -> None:
        self._gateway = gateway
        self._pool = pool
        self._clock = clock
        self._tally = Tally()

    def __repr__(self) -> str:
        return f"<FleetHttp {self._tally!r}>"

    async def answer(self, call: Call, asking: Asking, body: bytes = b"") -> Reply:
        """One answer of all; errors are counted, and raised."""
        snapshot, sees = self._gateway.fleet(call)
        begun = self._clock()
        try:
            reply = await self._ask(call, snapshot, sees, asking.headers, body)
        except ServegateError as error:
            self._gateway.ended(call, None, NOWHERE, error.code, begun, error=error.code)
            raise
        asking.upstream, asking.answered = self._clock() - begun, len(reply.body)
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
        names, parts = Names(snapshot), _parts(call, snapshot, sees)
        if not parts:
            raise NoReplica(call.model, call.selector)
        passed = [pair for pair in end_to_end(headers) if pair[0] not in _CODINGS]
        lines = header_lines(tuple(passed))
        if call.verb is Verb.INDEX:
            lines += b"Content-Length: %d\r\n" % len(body)
        rest, deadline = lines + b"\r\n" + body, min(self._clock() + PATIENCE, call.deadline)
        told = await asyncio.gather(*(self._one(part, rest, deadline) for part in parts))
        good: dict[str, list[Entry]] = {}
        for one in told:
            if one.entries is not None:
                good.setdefault(one.replica, []).extend(one.entries)
        if not good:
            return _nobody(told)
        missing = sorted({one.replica for one in told if one.entries is None})
        if call.verb is Verb.INDEX:
            return _reply(statistics.index(good.values(), names, sees), missing)
        is_complete = not call.model and not missing
        merged = self._tally.merged(good, names, sees, is_complete=is_complete)
        return _reply({"model_stats": merged}, missing)

    async def _one(self, part: Part, rest: bytes, deadline: float) -> Told:
        name = part.replica.name
        try:
            reply = await self._pool.fetch(part.replica, part.line + rest, deadline)
        except NotSent as error:
            return Told(name, None, None, Unavailable(error.what, why=error.why))
        except ServegateError as error:
            return Told(name, None, None, error)
        try:
            return Told(name, _entries(reply) if reply.status == 200 else None, reply)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            strange = OutcomeUnknown(f"replica {name} answers strangely", why=repr(error))
            return Told(name, None, None, strange)


def _parts(call: Call, snapshot: Snapshot, sees: Callable[[str], bool]) -> list[Part]:
    """Which replicas are asked for what: those that hold the versions which are asked about."""
    if call.verb is Verb.INDEX:
        replicas = snapshot.replicas.values()
        return [Part(one, request_line("POST", one, "/v2/repository/index")) for one in replicas]
    if not call.model:
        replicas = snapshot.replicas.values()
        return [Part(one, request_line("GET", one, "/v2/models/stats")) for one in replicas]
    parts: dict[tuple[str, str], Part] = {}
    for target in targets_of(call, snapshot, sees):
        version = target.physical_version if call.selector else None
        path = upstream_path(Verb.STATS, target.physical_name, version)
        for name in target.replicas:
            replica = snapshot.replicas[name]
            parts[name, path] = Part(replica, request_line("GET", replica, path))
    return list(parts.values())


def _entries(reply: Reply) -> list[Entry]:
    """What an answer holds; `ValueError` and its like when it is of another shape."""
    told: Any = json.loads(reply.body)
    entries: Any = told["model_stats"] if isinstance(told, Mapping) else told
    return [{**entry, "name": str(entry["name"])} for entry in entries]


def _nobody(told: Iterable[Told]) -> Reply:
    """What is said when nobody has told anything: an answer of Triton's, or an error of ours."""
    for one in told:
        if one.reply is not None:
            return one.reply
    raise next(one.error for one in told if one.error is not None)


def _reply(told: Any, missing: list[str]) -> Reply:
    headers: Headers = (_JSON,)
    if missing:
        headers += ((b"servegate-partial", ", ".join(missing).encode("latin-1", "replace")),)
    body = json.dumps(told, ensure_ascii=False, separators=(",", ":"))
    return Reply(200, body.encode(), headers)
