"""The walk of a call: route → admit → pick a replica, and again only where the rule allows.

`begin` is one synchronous function: no task, no future and no timer is made for a call. It gives an
`Attempt`, which knows the replica to send to. Whoever moves the bytes tells the attempt what came
of it, and ends it exactly once:

    begin ──▶ attempt ──┬─ not_sent ──▶ another replica, or NoReplica
                        ├─ refused ───▶ another replica, or the refusal is the answer
                        └─ answered | failed | left | passed_on ──▶ ended

One snapshot is read per call, once, so a call sees one generation from its first line to its last.
"""

from collections.abc import Callable, Collection

from serve.core.calls import Call, Choice, Reply, Verb
from serve.core.errors import DeadlineExceeded, NoReplica, NotSent, ServegateError
from serve.core.replicas import Replica
from serve.core.snapshot import Snapshot
from serve.proxy.admission import Admission
from serve.proxy.attempts import attempts_allowed
from serve.proxy.balancing import pick
from serve.proxy.health import Health
from serve.proxy.live import Live
from serve.proxy.loads import Loads
from serve.proxy.routing import Routing
from serve.telemetry import Meters
from serve.wire.status import code_name, is_broken, refusal

NOWHERE = Replica("", "", 0, 0, 0, "")  # where a call is that goes to no replica (yet)


class Gateway:
    """Takes calls and gives attempts. Everything it needs is handed in."""

    def __init__(
        self,
        live: Live,
        *,
        loads: Loads,
        admission: Admission,
        health: Health,
        meters: Meters,
        draw: Callable[[], float],
        clock: Callable[[], float],
    ) -> None:
        self.loads = loads
        self.admission = admission
        self.health = health
        self.meters = meters
        self.clock = clock
        self._live = live
        self._draw = draw
        self._routing: Routing | None = None
        self.turns = 0  # rises with every pick, so that equals take turns

    def __repr__(self) -> str:
        return f"<Gateway {self._live!r} {self.loads!r} {self.health!r}>"

    def is_ready(self) -> bool:
        """Whether nothing is left to wait for: each routed version of each model has a replica.

        A model that could not be loaded is not waited for: it must not take the others down.
        """
        snapshot = self._live.current
        if snapshot is None:
            return False
        return bool(snapshot.replicas) and all(
            model.split is not None and all(v in model.targets for v in model.split.versions)
            for model in snapshot.models.values()
            if not model.failed
        )

    def serves_sequences(self, model: str) -> bool:
        """Whether calls of this model carry a correlation id that routing must read."""
        snapshot = self._live.current
        view = None if snapshot is None else snapshot.models.get(model)
        return view is not None and view.sequences

    def begin(self, call: Call) -> "Attempt":
        """The first attempt of a call, or an error of `core.errors` that says why there is none.

        An error is counted here; an attempt has to be ended by whoever gets it.
        """
        begun = self.clock()
        choice: Choice | None = None
        try:
            snapshot = self._live.current or self._live.snapshot
            if call.verb is Verb.SERVER_METADATA:
                names = tuple(snapshot.replicas)
            else:
                routing = self._routing
                if routing is None or routing.snapshot is not snapshot:
                    routing = self._routing = Routing(snapshot)
                choice = routing.choose(call, self._draw)
                names = choice.target.replicas
                self.admission.enter(call.model)
        except ServegateError as error:
            self.meters.call_failed(call, choice, error.code, self.clock() - begun)
            raise
        attempt = Attempt(self, call, choice, snapshot, names, begun)
        attempt.go_to_replica(begun)
        return attempt


class Attempt:
    """A call on its way to `replica`. Ended exactly once; what is told later changes nothing.

    `decision` is the value of the `servegate-version` header, empty when no version was chosen.
    """

    __slots__ = (
        "_begun",
        "_gateway",
        "_names",
        "_snapshot",
        "_tried",
        "call",
        "choice",
        "decision",
        "is_ended",
        "replica",
    )

    def __init__(
        self,
        gateway: Gateway,
        call: Call,
        choice: Choice | None,
        snapshot: Snapshot,
        names: tuple[str, ...],
        begun: float,
    ) -> None:
        self.call = call
        self.choice = choice
        self.decision = "" if choice is None else choice.reason
        self.is_ended = False
        self.replica: Replica = NOWHERE
        self._gateway = gateway
        self._snapshot = snapshot
        self._names = names  # the replicas that have not been tried
        self._tried = 0
        self._begun = begun

    def __repr__(self) -> str:
        state = "ended" if self.is_ended else f"on {self.replica.name or 'no replica'}"
        return f"<Attempt {self.call.model} {self._target()} {state}>"

    # --- what came of it --------------------------------------------------------------------------

    def not_sent(self, error: NotSent) -> None:
        """Not a byte reached the replica: go on to another, or raise `NoReplica`, which ends it.

        After the end there is nowhere to go on to: the error itself is raised.
        """
        if self.is_ended:
            raise error
        gateway = self._gateway
        gateway.health.failed(self.replica.name)
        if not self._may_go_on():
            raise self._end_with(self._nobody(str(error)))
        self.go_to_replica(gateway.clock())
        gateway.meters.retried(self.call, "not sent")

    def refused(self, reply: Reply, *, can_repeat: bool = True) -> bool:
        """Learn from an error answer of Triton; True when another replica is to be tried.

        `can_repeat` says whether the whole request is still at hand. The answer is False for every
        reply that is to be passed on as it is; `answered` ends such a call.
        """
        if self.is_ended:
            return False
        gateway, call = self._gateway, self.call
        asked = self.choice.target.physical_name if self.choice else ""
        proof = refusal(call.protocol, call.verb, reply, asked)
        if proof is None:
            if is_broken(call.protocol, reply):
                gateway.health.failed(self.replica.name, self._target())
            return False
        if proof.lacks_version:
            gateway.health.failed(self.replica.name, self._target())
        if not can_repeat or not self._may_go_on():
            return False
        self.go_to_replica(gateway.clock())
        gateway.meters.retried(call, proof.reason)
        return True

    def answered(self, status: int, *, good: bool) -> None:
        """Triton's answer has been passed on, or is about to be: the call has ended."""
        if self.is_ended:
            return
        gateway, call = self._gateway, self.call
        if gateway.health.pauses:
            gateway.health.answered(self.replica.name, self._target() if good else "")
        self._end()
        code = code_name(call.protocol, status)
        seconds = gateway.clock() - self._begun
        gateway.meters.call_answered(call, self.choice, code, seconds, good=good)

    def failed(self, error: ServegateError) -> None:
        """The call ends with an error of our own."""
        if not self.is_ended:
            self._end()
            self._count(error.code)

    def left(self) -> None:
        """The caller has gone away before the answer: the call has ended."""
        if not self.is_ended:
            self._end()
            self._count("client_left")

    def passed_on(self) -> None:
        """A message of a stream was passed on; what answers it belongs to the stream."""
        if not self.is_ended:
            self._end()
            self._gateway.meters.passed_on(self.call, self.choice)

    # --- the steps --------------------------------------------------------------------------------

    def go_to_replica(self, now: float) -> None:
        """Go to one that was not tried: `NoReplica` and `DeadlineExceeded` end the call."""
        gateway, call = self._gateway, self.call
        if now >= call.deadline:
            raise self._end_with(DeadlineExceeded())
        avoided: Collection[str] = ()
        if gateway.health.pauses:
            avoided = gateway.health.avoided(self._names, self._target())
        gateway.turns += 1
        name = pick(
            self._names,
            loads=gateway.loads.replicas,
            avoided=avoided,
            turn=gateway.turns,
            sequence=call.sequence,
            prefer=call.prefer,
        )
        if name is None:
            raise self._end_with(self._nobody(""))
        if self._tried:
            gateway.loads.left(self.replica.name)
        self._tried += 1
        self.replica = self._snapshot.replicas[name]
        gateway.loads.entered(name)

    def _may_go_on(self) -> bool:
        """Whether the rule allows another attempt; then the present replica is no candidate."""
        stateful = self.choice is not None and self.choice.stateful
        if self._tried >= attempts_allowed(stateful=stateful) or len(self._names) < 2:
            return False
        self._names = tuple(name for name in self._names if name != self.replica.name)
        return True

    def _target(self) -> str:
        """The version as health knows it; empty when the call names no model."""
        return "" if self.choice is None else "/".join(self.choice.labels[:2])

    def _nobody(self, why: str) -> NoReplica:
        version = str(self.choice.target.version) if self.choice else ""
        return NoReplica(self.call.model, version, why)

    def _end(self) -> None:
        self.is_ended = True
        gateway = self._gateway
        if self._tried:
            gateway.loads.left(self.replica.name)
        if self.choice is not None:
            gateway.admission.leave(self.call.model)

    def _end_with(self, error: ServegateError) -> ServegateError:
        self._end()
        self._count(error.code)
        return error

    def _count(self, code: str) -> None:
        seconds = self._gateway.clock() - self._begun
        self._gateway.meters.call_failed(self.call, self.choice, code, seconds)
