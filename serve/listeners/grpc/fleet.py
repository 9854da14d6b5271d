"""Questions over gRPC that are about the fleet: statistics, the repository index, metadata.

All replicas are asked at the same time, and each has the same short time to answer. A replica that
does not answer is left out where another one does: `servegate-partial` names it then. Metadata is
what one replica says, with the versions that are ready anywhere.
"""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from serve.core.calls import Call, Headers, Reply, Verb
from serve.core.errors import (
    Asleep,
    BadRequest,
    NoReplica,
    NotLoaded,
    NotSent,
    ServegateError,
    UnknownModel,
    UnknownVersion,
)
from serve.core.snapshot import Snapshot
from serve.listeners.fleet import PATIENCE, ReplicaQuestion, ask_all
from serve.listeners.grpc.services import Service, ServiceRequest, Unary
from serve.listeners.waits import until_awake, until_loaded
from serve.proxy.attempts import NOWHERE, Attempt
from serve.proxy.gateway import Gateway
from serve.proxy.routing import targets_of
from serve.triton.grpc_pool import GrpcPool
from serve.triton.grpc_question import ask
from serve.wire import statistics, statistics_grpc
from serve.wire.statistics import Entry, ReplicaTally, StatisticsNames
from serve.wire.statistics_grpc import INDEX, METADATA, STATISTICS
from serve.wire.status import GRPC_NAMES, OK

LARGEST = 1 << 26  # bytes of its answer
Sees = Callable[[str], bool]


class FleetGrpc:
    """Asks all replicas and merges what they say. Remembers counters, so that they only rise."""

    def __init__(self, gateway: Gateway, pool: GrpcPool, *, clock: Callable[[], float]) -> None:
        self._gateway = gateway
        self._pool = pool
        self._clock = clock
        self._tally = ReplicaTally()

    def __repr__(self) -> str:
        return f"<FleetGrpc {self._tally!r}>"

    def services(self) -> dict[str, Service]:
        """Its methods, for `KServeGrpc(services=…)`."""
        return {
            STATISTICS: Unary(self.statistics),
            INDEX: Unary(self.index),
            METADATA: Unary(self.metadata),
        }

    async def statistics(self, asked: ServiceRequest) -> Reply:
        """What was counted, of one model or of all that the caller may see."""
        model, version = statistics_grpc.asked_about(asked.message)
        call = asked.call(Verb.STATS, model, version)
        snapshot, sees = self._gateway.fleet(call)
        begun = self._clock()
        with self._counting(call, begun):
            parts = _parts(call, snapshot, sees)

        def merge(good: dict[str, list[Entry]], is_whole: bool) -> list[Entry]:
            whole = is_whole and not model
            return self._tally.merged(good, StatisticsNames(snapshot), sees, is_complete=whole)

        return self._ended(call, await self._ask(call, STATISTICS, parts, begun, merge), begun)

    async def index(self, asked: ServiceRequest) -> Reply:
        """All models that the caller may see; one is READY when it is ready anywhere."""
        call = asked.call(Verb.INDEX)
        snapshot, sees = self._gateway.fleet(call)
        begun = self._clock()
        parts = [ReplicaQuestion(replica, asked.message) for replica in snapshot.replicas.values()]

        def merge(good: dict[str, list[Entry]], is_whole: bool) -> list[Entry]:
            return statistics.index(good.values(), StatisticsNames(snapshot), sees)

        return self._ended(call, await self._ask(call, INDEX, parts, begun, merge), begun)

    async def metadata(self, asked: ServiceRequest) -> Reply:
        """What one replica says of a model, and which versions are ready anywhere."""
        model, version = statistics_grpc.asked_about(asked.message)
        call = asked.call(Verb.METADATA, model, version)
        self._gateway.fleet(call)
        try:
            attempt = self._gateway.begin(call)
        except Asleep:
            attempt = await until_awake(self._gateway, call)
        while True:
            choice = attempt.choice
            assert choice is not None, "metadata of a model always have a version"
            try:
                reply = await self._walk(attempt, choice.pinned)
                break
            except NotLoaded as error:
                attempt = await until_loaded(self._gateway, attempt, error)
        said: Headers = ((b"servegate-version", attempt.decision.encode("latin-1", "replace")),)
        if reply.status:
            words = reply.message.replace(f"'{choice.target.physical_name}'", f"'{model}'")
            return Reply(reply.status, b"", said, words)
        versions = () if choice.pinned else attempt.versions
        return Reply(OK, statistics_grpc.metadata(reply.body, model, versions), said)

    # --- one after the other ----------------------------------------------------------------------

    async def _walk(self, attempt: Attempt, is_pinned: bool) -> Reply:
        """Ask one replica after the other, as long as the rule allows."""
        assert attempt.choice is not None
        target = attempt.choice.target
        number = str(target.physical_version) if is_pinned else ""
        message = statistics_grpc.question(target.physical_name, number)
        try:
            while True:
                seconds = attempt.call.deadline - self._clock()
                try:
                    reply = await ask(
                        self._pool,
                        attempt.replica,
                        METADATA,
                        message,
                        seconds=seconds,
                        limit=LARGEST,
                    )
                except NotSent as error:
                    attempt.not_sent(error)
                    continue
                if not attempt.refused(reply):
                    attempt.answered(reply.status, good=reply.status == OK)
                    return reply
        except ServegateError as error:
            attempt.failed(error)
            raise
        finally:
            attempt.left()

    # --- all at once ------------------------------------------------------------------------------

    async def _ask(
        self,
        call: Call,
        method: str,
        parts: Collection[ReplicaQuestion],
        begun: float,
        merge: Callable[[dict[str, list[Entry]], bool], list[Entry]],
    ) -> Reply:
        """The merged answer; an error of Triton's, or of ours, when nobody has told anything."""
        with self._counting(call, begun):
            if not parts:
                raise NoReplica(call.model, call.selector)
            seconds = min(PATIENCE, call.deadline - begun)

            async def one(part: ReplicaQuestion) -> Reply:
                return await ask(
                    self._pool, part.replica, method, part.question, seconds=seconds, limit=LARGEST
                )

            def read(reply: Reply) -> list[Entry] | None:
                return None if reply.status else statistics_grpc.entries(method, reply.body)

            heard = await ask_all(parts, one, read)
        if isinstance(heard, Reply):
            return heard
        merged = merge(heard.told, not heard.missing)
        return Reply(OK, statistics_grpc.answer(method, merged), heard.headers)

    @contextmanager
    def _counting(self, call: Call, begun: float) -> Iterator[None]:
        """An error ends the call."""
        try:
            yield
        except ServegateError as error:
            self._gateway.ended(call, None, NOWHERE, error.code, begun, error=error.code)
            raise

    def _ended(self, call: Call, reply: Reply, begun: float) -> Reply:
        name = GRPC_NAMES[reply.status]
        self._gateway.ended(call, None, NOWHERE, name, begun, good=reply.status == OK)
        return reply


def _parts(call: Call, snapshot: Snapshot, sees: Sees) -> Collection[ReplicaQuestion]:
    """Who is asked what for statistics; `BadRequest` in Triton's words when there is no such."""
    if not call.model:
        return [ReplicaQuestion(replica, b"") for replica in snapshot.replicas.values()]
    parts: dict[tuple[str, bytes], ReplicaQuestion] = {}
    try:
        targets = targets_of(call, snapshot, sees)
    except UnknownModel as error:
        raise BadRequest(f"requested model '{call.model}' is not available") from error
    except UnknownVersion as error:
        words = f"requested model version is not available for model '{call.model}'"
        raise BadRequest(words) from error
    for target in targets:
        number = str(target.physical_version) if call.selector else ""
        message = statistics_grpc.question(target.physical_name, number)
        for name in target.replicas:
            parts[name, message] = ReplicaQuestion(snapshot.replicas[name], message)
    return list(parts.values())
