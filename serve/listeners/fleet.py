"""One question to all replicas at the same time, over either protocol.

A replica that does not answer within `PATIENCE` is left out where another one does, and named in
`servegate-partial`. When nobody has told anything, the answer is Triton's own refusal, or an error.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass

from serve.core.calls import Headers, Reply
from serve.core.errors import NotSent, OutcomeUnknown, ServegateError, Unavailable, Unparsable
from serve.core.replicas import Replica
from serve.wire.statistics import Entry

PATIENCE = 5.0  # seconds for one replica to answer


@dataclass(frozen=True, slots=True)
class ReplicaQuestion:
    """One question to one replica."""

    replica: Replica
    question: bytes


@dataclass(frozen=True, slots=True)
class FleetAnswers:
    """What the replicas have told, by their names, and which of them have told nothing."""

    told: dict[str, list[Entry]]
    missing: tuple[str, ...]

    @property
    def headers(self) -> Headers:
        """What the caller has to know about those who are missing."""
        if not self.missing:
            return ()
        return ((b"servegate-partial", ", ".join(self.missing).encode("latin-1", "replace")),)


@dataclass(frozen=True, slots=True)
class _Told:
    """What one replica said: entries, or an answer that has none, or an error of ours."""

    replica: str
    entries: list[Entry] | None
    reply: Reply | None = None
    error: ServegateError | None = None


async def ask_all(
    parts: Collection[ReplicaQuestion],
    ask: Callable[[ReplicaQuestion], Awaitable[Reply]],
    read: Callable[[Reply], list[Entry] | None],
) -> FleetAnswers | Reply:
    """What all have told together; a refusal of Triton's, or an error, when nobody has.

    `read` gives the entries of an answer, None for a refusal, and raises for what is neither.
    """
    said = await asyncio.gather(*(_one(part, ask, read) for part in parts))
    missing = {one.replica for one in said if one.entries is None}
    told: dict[str, list[Entry]] = {}
    for one in said:
        if one.replica not in missing:
            told.setdefault(one.replica, []).extend(one.entries or ())
    if told:
        return FleetAnswers(told, tuple(sorted(missing)))
    for one in said:
        if one.reply is not None:
            return one.reply
    raise next(one.error for one in said if one.error is not None)


async def _one(
    part: ReplicaQuestion,
    ask: Callable[[ReplicaQuestion], Awaitable[Reply]],
    read: Callable[[Reply], list[Entry] | None],
) -> _Told:
    name = part.replica.name
    try:
        reply = await ask(part)
    except NotSent as error:
        return _Told(name, None, error=Unavailable(error.what, why=error.why))
    except ServegateError as error:
        return _Told(name, None, error=error)
    try:
        return _Told(name, read(reply), reply)
    except (ValueError, KeyError, TypeError, RecursionError, Unparsable) as error:
        strange = OutcomeUnknown(f"replica {name} returned an unexpected response", why=repr(error))
        return _Told(name, None, error=strange)
