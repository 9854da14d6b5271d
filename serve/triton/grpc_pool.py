"""The gRPC connections to all replicas: up to four for each, opened when they are needed.

`find` gives a connection that has room, at once; when there is none, `wait` opens one and tells the
waiter. One task per opening connection is the only task there is. `sweep` looks after what time
does: idle connections are closed, replicas that nobody asks for are forgotten, and calls without a
client are ended when their time is over.

Calls on a Triton that no client waits for: answers to be dropped, and one question of our own.

Triton before 2.53 may crash when calls in flight are cancelled (server issues 7368 and 8034). So
its version is asked, and until it is known to be safe, the calls of clients that have gone run to
their end and their answers are dropped.
"""

import asyncio
import math
import re
from collections.abc import Callable, Iterator

from serve.core import faults
from serve.core.calls import Verb
from serve.core.errors import BadRequest, NotSent, OutcomeUnknown
from serve.core.limits import Limits
from serve.core.replicas import Replica
from serve.triton.grpc_upstream import ConnectionWaiter, Upstream, UpstreamLeg
from serve.wire import protobuf
from serve.wire.grpc_heads import CONTENT_TYPE, TE, AnswerHead, answer_memo
from serve.wire.grpc_messages import EMPTY_MESSAGE, PREFIX_SIZE
from serve.wire.hpack_blocks import literal
from serve.wire.http2 import CANCEL, END_STREAM
from serve.wire.http2_flow import FlowBoard
from serve.wire.http2_stream import Piece
from serve.wire.kserve_grpc import method_of

# --- calls on a Triton that no client waits for ---------------------------------------------------


SAFE = (2, 53)  # the first Triton that survives cancelled calls, of the container 24.12
_LARGEST = 1 << 16  # bytes of an answer about the server
_VERSION = re.compile(r"(\d+)\.(\d+)")


class Absorber:
    """Takes the rest of an answer that nobody wants; `on_end` is told when it is over."""

    def __init__(self, on_end: Callable[[UpstreamLeg], None]) -> None:
        self._on_end = on_end

    def on_answer(self, leg: UpstreamLeg, piece: Piece) -> None:
        """Dropped; the credit goes back, so that what follows can come."""
        leg.consume(len(piece))

    def on_trailers(self, leg: UpstreamLeg, trailers: AnswerHead) -> None:
        """It is over."""
        self._on_end(leg)

    def on_whole_answer(self, leg: UpstreamLeg, piece: Piece, trailers: AnswerHead) -> None:
        """Dropped, too."""
        self._on_end(leg)

    def on_lost(self, leg: UpstreamLeg, error: NotSent | OutcomeUnknown) -> None:
        """Nobody minds."""
        self._on_end(leg)

    def on_fault(self, error: Exception) -> None:
        """See `Receiver`."""
        faults.report(self, error)


class VersionQuestion:
    """Asks a Triton for its version. `is_safe` is False until it is known to be."""

    def __init__(self, upstream: Upstream) -> None:
        self.is_safe = False
        self.is_lost = False
        self._answer = b""
        head = literal(b":path", method_of(Verb.SERVER_METADATA).encode()) + TE + CONTENT_TYPE
        upstream.open(self, head, EMPTY_MESSAGE, END_STREAM, None)

    def on_answer(self, leg: UpstreamLeg, piece: Piece) -> None:
        """A piece of `ServerMetadataResponse`."""
        leg.consume(len(piece))
        if len(self._answer) < _LARGEST:
            self._answer += piece

    def on_trailers(self, leg: UpstreamLeg, trailers: AnswerHead) -> None:
        """The answer is complete."""
        self.is_safe = _is_safe(self._answer[PREFIX_SIZE:])

    def on_whole_answer(self, leg: UpstreamLeg, piece: Piece, trailers: AnswerHead) -> None:
        """All at once."""
        self.on_answer(leg, piece)
        self.on_trailers(leg, trailers)

    def on_lost(self, leg: UpstreamLeg, error: NotSent | OutcomeUnknown) -> None:
        """It has to be asked again."""
        self.is_lost = True

    def on_fault(self, error: Exception) -> None:
        """See `Receiver`."""
        faults.report(self, error)
        self.is_lost = True


def _is_safe(message: bytes) -> bool:
    """Whether a `ServerMetadataResponse` names a version (field 2) that survives it."""
    try:
        found = dict(protobuf.fields(message)).get(2)
    except BadRequest:
        return False
    match = _VERSION.match(found.decode("latin-1")) if isinstance(found, bytes) else None
    return match is not None and (int(match[1]), int(match[2])) >= SAFE


# --- the gRPC connections to all replicas ---------------------------------------------------------


CONNECTIONS = 4  # to one replica
BUSY = 32  # calls on the least busy connection that make another one worth opening
IDLE = 60.0  # seconds after which a connection without a call is closed


class ReplicaConnections:
    """The connections to one replica, and who waits for one."""

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.connections: list[Upstream] = []
        self.waiting: list[ConnectionWaiter] = []
        self.opening: asyncio.Task[None] | None = None
        self.question: VersionQuestion | None = None

    @property
    def is_worth_another(self) -> bool:
        """Whether another connection would help and may be opened."""
        return self.opening is None and len(self.connections) < CONNECTIONS

    def best(self) -> Upstream | None:
        """The least busy connection that takes another call."""
        best: Upstream | None = None
        for upstream in self.connections:
            if upstream.has_room and (best is None or len(upstream.streams) < len(best.streams)):
                best = upstream
        return best

    def serve(self) -> None:
        """Let those who wait go on, as far as there is room."""
        while self.waiting:
            upstream = self.best()
            if upstream is None:
                return
            waiter = self.waiting.pop(0)
            try:
                waiter.on_connected(upstream)
            except Exception as error:
                waiter.on_fault(error)

    def refuse(self, error: NotSent) -> None:
        """Nobody who waits will get a connection."""
        waiting, self.waiting = self.waiting, []
        for waiter in waiting:
            try:
                waiter.on_not_connected(error)
            except Exception as fault:
                waiter.on_fault(fault)


class GrpcPool:
    """The connections to all replicas. `connect_timeout` is in seconds."""

    def __init__(
        self, *, limits: Limits, connect_timeout: float, clock: Callable[[], float]
    ) -> None:
        self.board = FlowBoard()
        self._limits = limits
        self._connect_timeout = connect_timeout
        self._clock = clock
        self._memo = answer_memo()
        self._groups: dict[str, ReplicaConnections] = {}
        self._moved: list[ReplicaConnections] = []  # of replicas that now have another address
        self._absorbed: dict[
            UpstreamLeg, tuple[float, Callable[[], None]]
        ] = {}  # until when, and then

    def __repr__(self) -> str:
        return f"<GrpcPool connections={self.connections} streams={self.streams}>"

    @property
    def connections(self) -> int:
        """Open connections."""
        return sum(len(group.connections) for group in self._all())

    @property
    def streams(self) -> int:
        """Calls on them, those included whose clients have gone."""
        return sum(len(upstream.streams) for group in self._all() for upstream in group.connections)

    def find(self, replica: Replica) -> Upstream | None:
        """A connection that has room; None when there is none yet."""
        group = self._groups.get(replica.name)
        if group is not None and group.replica is replica and group.connections:
            first = group.connections[0]
            if len(first.streams) < BUSY and first.has_room:
                return first
        group = self._group(replica)
        best = group.best()
        if best is not None and len(best.streams) >= BUSY and group.is_worth_another:
            self._open(group)
        return best

    def wait(self, replica: Replica, waiter: ConnectionWaiter) -> None:
        """Tell the waiter when there is a connection, or that there will be none."""
        group = self._group(replica)
        group.waiting.append(waiter)
        if group.is_worth_another:
            self._open(group)

    def survives_cancelling(self, replica: Replica) -> bool:
        """Whether this Triton is known to survive it; asked in the background when it is not."""
        group = self._groups.get(replica.name)
        if group is None or group.replica is not replica:
            group = self._group(replica)
        question = group.question
        if question is not None and not question.is_lost:
            return question.is_safe
        upstream = group.best()
        group.question = None if upstream is None else VersionQuestion(upstream)
        return False

    def absorb(
        self, leg: UpstreamLeg, ended: Callable[[], None] = lambda: None, *, until: float = math.inf
    ) -> None:
        """Let a call that no caller waits for run to its end; then `ended` is called.

        At `until`, and after the longest time for a call, it is cancelled.
        """
        leg.receiver = Absorber(self._absorbed_ended)
        leg.source = None
        self._absorbed[leg] = min(until, self._clock() + self._limits.call), ended

    def calls(self, replica: Replica) -> Iterator[object]:
        """What stands for each call on a replica, for as long as it is the same."""
        for group in self._all():
            if group.replica == replica:
                for upstream in group.connections:
                    yield from ((id(upstream), number) for number in upstream.streams)

    def cut(self, replica: Replica, why: str) -> None:
        """End the calls on a replica, and close their connections."""
        for group in tuple(self._all()):
            if group.replica == replica:
                for upstream in tuple(group.connections):
                    upstream.guarded(upstream.abort, why)
        self.board.flush()

    def sweep(self) -> None:
        """Look at the clock, for all connections together."""
        now = self._clock()
        for leg in [leg for leg, (until, _) in self._absorbed.items() if until <= now]:
            leg.link.guarded(self._absorbed_ended, leg)
            leg.link.guarded(leg.link.reset, leg, CANCEL)
        for group in tuple(self._all()):
            for upstream in tuple(group.connections):
                upstream.guarded(self._sweep, upstream, now)
            group.serve()
        self._moved = [group for group in self._moved if group.connections]
        for name, group in tuple(self._groups.items()):
            if not (group.connections or group.waiting or group.opening):
                del self._groups[name]
        self.board.flush()

    def close(self) -> None:
        """Abort every connection; who waits is told."""
        for group in tuple(self._all()):
            if group.opening is not None:
                group.opening.cancel()
            group.refuse(NotSent("the gateway is stopping"))
            for upstream in tuple(group.connections):
                upstream.guarded(upstream.abort, "the gateway is stopping")
        self.board.flush()

    # --- connections ------------------------------------------------------------------------------

    def _all(self) -> Iterator[ReplicaConnections]:
        yield from self._groups.values()
        yield from self._moved

    def _group(self, replica: Replica) -> ReplicaConnections:
        group = self._groups.get(replica.name)
        if group is not None:
            if group.replica is replica:
                return group
            if group.replica == replica:
                group.replica = replica
                return group
            for upstream in group.connections:
                upstream.go()
            group.refuse(NotSent(f"replica {replica.name} has moved"))
            self._moved.append(group)
        group = self._groups[replica.name] = ReplicaConnections(replica)
        return group

    def _open(self, group: ReplicaConnections) -> None:
        group.opening = asyncio.get_running_loop().create_task(self._connect(group))

    async def _connect(self, group: ReplicaConnections) -> None:
        replica = group.replica
        settled = asyncio.Event()

        def on_change(upstream: Upstream) -> None:
            settled.set()
            self._changed(group, upstream)

        upstream = Upstream(replica, self.board, self._limits, self._memo, on_change=on_change)
        why = "it closed the connection at once"
        try:
            async with asyncio.timeout(self._connect_timeout):
                loop = asyncio.get_running_loop()
                await loop.create_connection(lambda: upstream, replica.host, replica.grpc_port)
                await settled.wait()
        except Exception as error:  # of the socket, of the name, or of a transport closed meanwhile
            why = str(error) or f"no connection within {self._connect_timeout:.3g} s"
            # When the time is over in the same turn in which the connection is made, uvloop closes
            # its transport and reports that to no one: this one looks ready, and is not.
            upstream.abort(why)
        group.opening = None
        if upstream.is_ready and not upstream.is_closed:
            group.connections.append(upstream)
            self._serve(group)
        else:
            upstream.abort(why)
            if group.best() is None:
                group.refuse(NotSent(f"replica {replica.name} cannot be reached", why=why))
        self.board.flush()

    def _changed(self, group: ReplicaConnections, upstream: Upstream) -> None:
        """A connection of the group has got room, or is going."""
        if upstream.is_closed and upstream in group.connections:
            group.connections.remove(upstream)
            if not group.connections:
                group.question = None  # another Triton may be there next
        elif upstream.is_going and not upstream.streams:
            upstream.close()
        self._serve(group)

    def _serve(self, group: ReplicaConnections) -> None:
        """Let those who wait go on, and open another connection for those who still do."""
        group.serve()
        if group.waiting and group.is_worth_another:
            self._open(group)

    def _sweep(self, upstream: Upstream, now: float) -> None:
        if upstream.streams:
            upstream.idle_since = 0.0
        elif not upstream.idle_since:
            upstream.idle_since = now
        if not upstream.streams and (upstream.is_going or now - upstream.idle_since > IDLE):
            upstream.close()

    def _absorbed_ended(self, leg: UpstreamLeg) -> None:
        _, ended = self._absorbed.pop(leg, (0.0, None))
        if ended is not None:
            ended()
