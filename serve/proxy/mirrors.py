"""Mirrored calls: a share of a model's calls is also sent to another version, a candidate.

    responded ──▶ wants ──┬─ not drawn ──▶ nothing
                          └─ offer ──┬─ no room ──▶ dropped, and counted
                                     └─ waits ──▶ sent ──▶ counted

No caller waits for any of this. A call is offered when its response has been passed on. Its copy
goes over connections of its own and takes no slot of the model, and the copies that wait or are
being sent are limited in number and bytes: a slow candidate costs copies, not calls. How a copy
ends is not held against its replica, so only the calls of callers decide where calls go.
"""

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from serve.core import faults
from serve.core.calls import Choice, Reply
from serve.core.errors import BodyTooLarge, NoReplica, ServegateError
from serve.core.replicas import Replica
from serve.core.snapshot import VersionTarget
from serve.proxy.balancing import pick
from serve.proxy.health import Health
from serve.proxy.loads import Loads
from serve.telemetry import Meters
from serve.wire.status import code_name

MOST_SENT = 32  # copies in flight at a time, in each worker
MOST_WAITING = 64  # copies that wait for that
MOST_BYTES = 16 << 20  # of all their requests, and of the responses to compare with
MOST_REQUEST = 256 << 10  # bytes; a larger request is not kept, and so not mirrored
MOST_RESPONSE = 1 << 20  # bytes; a larger one is not compared
LONGEST_COPY = 30.0  # seconds
LONGEST_COMPARISON = 5.0  # seconds
MOST_COMPARED = 16  # pairs of responses that wait for their comparison; the others go without
COMPARED_PER_SECOND = 10.0  # one takes milliseconds of CPU time: all of them would cost a core
COMPARED_AT_ONCE = 32.0
KEPT_EVERY = 10.0  # seconds between two calls that one worker gives to be kept
_GOOD = frozenset((0, 200))  # over gRPC and HTTP


@dataclass(frozen=True, slots=True)
class MirroredCall:
    """A call to repeat on the version that `choice.mirror` names.

    `head` and `pieces` are its request in the form that the sender of its protocol needs; `size` is
    in bytes. `response` is what the caller got, None if it was not kept: it cannot be compared.
    """

    choice: Choice
    protocol: str
    head: bytes
    pieces: tuple[bytes, ...]
    size: int
    response: Reply | None = None

    @property
    def weight(self) -> int:
        """Bytes that it holds while it waits and is compared."""
        return self.size + (0 if self.response is None else len(self.response.body))

    @property
    def target(self) -> VersionTarget:
        """The candidate."""
        assert self.choice.mirror is not None
        return self.choice.mirror.target

    @property
    def place(self) -> tuple[str, str]:
        """Model and candidate, as metrics name them."""
        return self.target.model, str(self.target.version)


Send = Callable[[MirroredCall, Replica, float], Awaitable[Reply]]
"""Sends a copy to a replica, until a moment of the clock; raises what any call to Triton raises."""


Compare = Callable[[MirroredCall, Reply], Awaitable[Mapping[str, tuple[int, int]]]]
"""By output, how many rows of the two responses agree and differ; an error if one is unreadable."""


Keep = Callable[[MirroredCall], Awaitable[None]]
"""Keeps the inputs of a call to which the two versions respond differently; raises nothing."""


class Mirrors:
    """The copies of one worker. `seconds` is the longest time that one may take.

    `replicas` are those of the snapshot in force, and `senders` are by protocol.
    """

    def __init__(
        self,
        *,
        replicas: Callable[[], Mapping[str, Replica]],
        loads: Loads,
        health: Health,
        meters: Meters,
        draw: Callable[[], float],
        clock: Callable[[], float],
        senders: Mapping[str, Send],
        compare: Compare,
        keep: Keep,
        seconds: float,
    ) -> None:
        self._replicas = replicas
        self._loads = loads
        self._health = health
        self._meters = meters
        self._draw = draw
        self._clock = clock
        self._senders = senders
        self._compare = compare
        self._keep = keep
        self._comparing = 0
        self._credit, self._credit_at = COMPARED_AT_ONCE, 0.0  # comparisons that may begin; when
        self._kept_at = -math.inf
        self._seconds = seconds
        self._waiting: deque[MirroredCall] = deque()
        self._sending: set[asyncio.Task[None]] = set()
        self._bytes = 0
        self._turns = 0

    def __repr__(self) -> str:
        return f"<Mirrors busy={self.busy} waiting={len(self._waiting)}>"

    @property
    def busy(self) -> int:
        """Copies that are being sent or compared."""
        return len(self._sending)

    def wants(self, choice: Choice) -> bool:
        """Whether this call is one of the share that is mirrored."""
        mirror = choice.mirror
        return mirror is not None and self._draw() < mirror.share

    def drop(self, choice: Choice, reason: str) -> None:
        """Count a call that `wants` has drawn and that cannot be mirrored."""
        assert choice.mirror is not None
        target = choice.mirror.target
        self._meters.mirror_dropped((target.model, str(target.version)), reason)

    def offer(self, call: MirroredCall) -> None:
        """Mirror this call now or soon, or drop it."""
        if len(self._waiting) >= MOST_WAITING or self._bytes + call.weight > MOST_BYTES:
            self.drop(call.choice, "queue_full")
            return
        self._bytes += call.weight
        self._waiting.append(call)
        self._go_on()

    def close(self) -> None:
        """Send nothing more, and give up what is being sent."""
        self._waiting.clear()
        for task in self._sending:
            task.cancel()

    def _go_on(self, ended: asyncio.Task[None] | None = None) -> None:
        if ended is not None:
            self._sending.discard(ended)
        while self._waiting and len(self._sending) < MOST_SENT:
            task = asyncio.get_running_loop().create_task(self._send(self._waiting.popleft()))
            self._sending.add(task)
            task.add_done_callback(self._go_on)

    async def _send(self, call: MirroredCall) -> None:
        begun = self._clock()
        try:
            code, reply = await self._outcome(call, begun + self._seconds)
            self._meters.mirrored((*call.place, call.protocol), code, self._clock() - begun)
            if reply is not None and reply.status in _GOOD:
                await self._count_agreement(call, reply)
        finally:
            self._bytes -= call.weight

    async def _outcome(self, call: MirroredCall, until: float) -> tuple[str, Reply | None]:
        """The code that is counted, and the response if there is one that can be kept."""
        try:
            reply = await self._ask(call, until)
        except BodyTooLarge:
            self._meters.compared(call.place, "too_large")
            return code_name(call.protocol, 0 if call.protocol == "grpc" else 200), None
        except ServegateError as error:
            return error.code, None
        except Exception as fault:
            faults.report(self, fault)
            return ServegateError.code, None
        return code_name(call.protocol, reply.status), reply

    async def _ask(self, call: MirroredCall, until: float) -> Reply:
        """The candidate's response, from the replica that is least busy."""
        target = call.target
        avoided = self._health.avoided(f"{target.model}/{target.version}")
        self._turns += 1
        name = pick(target.replicas, loads=self._loads.replicas, avoided=avoided, turn=self._turns)
        replica = None if name is None else self._replicas().get(name)
        if replica is None:
            raise NoReplica(target.model, str(target.version), "")
        self._loads.entered(replica.name)
        try:
            return await self._senders[call.protocol](call, replica, until)
        finally:
            self._loads.left(replica.name)

    async def _count_agreement(self, call: MirroredCall, reply: Reply) -> None:
        """Compare the response with what the caller got."""
        if call.response is None:
            self._meters.compared(call.place, "not_kept")
            return
        if self._comparing >= MOST_COMPARED or not self._may_compare():
            self._meters.compared(call.place, "skipped")
            return
        self._comparing += 1
        try:
            async with asyncio.timeout(LONGEST_COMPARISON):
                counts = await self._compare(call, reply)
        except TimeoutError:
            self._meters.compared(call.place, "timed_out")
            return
        except ServegateError as error:
            self._meters.compared(call.place, error.code)
            return
        except Exception as fault:
            faults.report(self, fault)
            self._meters.compared(call.place, ServegateError.code)
            return
        finally:
            self._comparing -= 1
        self._meters.compared(call.place, "compared")
        for output, (agreeing, differing) in counts.items():
            self._meters.compared_rows((*call.place, output), agreeing, differing)
        if any(differing for _, differing in counts.values()):
            await self._keep_some(call)

    def _may_compare(self) -> bool:
        now = self._clock()
        earned = (now - self._credit_at) * COMPARED_PER_SECOND
        self._credit, self._credit_at = min(COMPARED_AT_ONCE, self._credit + earned), now
        if self._credit < 1:
            return False
        self._credit -= 1
        return True

    async def _keep_some(self, call: MirroredCall) -> None:
        now = self._clock()
        assert call.choice.mirror is not None
        if call.choice.mirror.keeps and now - self._kept_at >= KEPT_EVERY:
            self._kept_at = now
            await self._keep(call)
