"""Attempts, and the retry rule: another replica is tried only after what was provably not executed.

| what happened                                                        | executed? | next       |
|----------------------------------------------------------------------|-----------|------------|
| connecting failed, not a byte was written (`NotSent`)                | no        | another    |
| a complete 503 / UNAVAILABLE that Triton itself wrote                | no        | another    |
| "unknown model" from a replica that the snapshot says has it         | no        | another *  |
| reset or EOF after bytes were written (`OutcomeUnknown`)             | perhaps   | fail **    |
| any other answer                                                     | yes       | the answer |

Never the same replica twice, at most two extra attempts, never for a model that serves sequences,
whose state lives on one replica.

** Another one, once, if the model's route says that its calls may be executed twice: a request that
crashes a Triton must not crash them all.

* Where no replica is left the call waits for a moment and begins anew (`NotLoaded`): a Triton that
has just started does not know its models yet. Callers never hear of that.
"""

import math
from collections.abc import Callable, Collection
from typing import Protocol

from serve.core import faults
from serve.core.calls import PREDICTIONS, Call, Choice, Reply, Verb
from serve.core.errors import (
    DeadlineExceeded,
    NoReplica,
    NotLoaded,
    NotSent,
    OutcomeUnknown,
    ServegateError,
)
from serve.core.replicas import Replica
from serve.core.snapshot import Snapshot
from serve.proxy.admission import Admission
from serve.proxy.balancing import pick
from serve.proxy.health import Health
from serve.proxy.loads import Loads
from serve.proxy.slots import Slot
from serve.telemetry import Meters
from serve.wire.status import code_name, is_broken, is_failure, is_unreadable, refusal

NOWHERE = Replica("", "", 0, 0, 0, "")  # where a call is that goes to no replica (yet)

EXTRA_ATTEMPTS = 2
_JUDGED = PREDICTIONS | {Verb.STREAM}  # what a replica must be able to do
_NONE: Collection[str] = ()
PATIENCE = 1.0  # seconds from its beginning in which a call waits for a version to be loaded


def attempts_allowed(*, stateful: bool) -> int:
    """How many replicas may be tried for a call, the first one included."""
    return 1 if stateful else 1 + EXTRA_ATTEMPTS


class Home(Protocol):
    """The gateway, as its attempts know it."""

    loads: Loads
    admission: Admission
    health: Health
    meters: Meters
    clock: Callable[[], float]
    turns: int
    kept: set[Slot]

    def ended(
        self,
        call: Call,
        choice: Choice | None,
        replica: Replica,
        code: str,
        begun: float,
        *,
        error: str = "",
        good: bool = False,
        tries: int = 0,
    ) -> None:
        """Count a call that has ended."""


class Attempt:
    """A call on its way to `replica`. Ended exactly once; what is told later changes nothing.

    `decision` is the value of the `servegate-version` header, empty when no version was chosen.
    """

    __slots__ = (
        "_begun",
        "_by_caller",
        "_gateway",
        "_is_detached",
        "_is_repeated",
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
        gateway: Home,
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
        self._by_caller = False  # what failed is the request itself
        self._is_detached = False  # its slot outlives it
        self._is_repeated = False  # it may have been executed before

    def __repr__(self) -> str:
        state = "ended" if self.is_ended else f"on {self.replica.name or 'no replica'}"
        return f"<Attempt {self.call.model} {self._target()} {state}>"

    @property
    def versions(self) -> tuple[int, ...]:
        """What metadata lists: the version that was asked for, or all that are ready somewhere."""
        choice = self.choice
        if choice is None:
            return ()
        if choice.pinned:
            return (choice.target.version,)
        return tuple(sorted(self._snapshot.models[choice.target.model].targets))

    @property
    def begun(self) -> float:
        """When the call came, by the gateway's clock."""
        return self._begun

    def came_at(self, begun: float) -> None:
        """The call had waited before this attempt could begin."""
        self._begun = begun

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

    def broken_off(self, error: OutcomeUnknown) -> None:
        """The replica may have executed the call: go on to another one if it may be repeated.

        Otherwise `error` is raised, and the caller of this method has to end the call with it.
        `NoReplica` and `DeadlineExceeded` end it.
        """
        choice, gateway = self.choice, self._gateway
        if self.is_ended or choice is None or not choice.idempotent or self._is_repeated:
            raise error
        if self.call.verb not in PREDICTIONS or error.what == faults.WHAT or not self._may_go_on():
            raise error
        self._is_repeated = True
        self._fail_replica(broke=True)
        self.go_to_replica(gateway.clock())
        gateway.meters.retried(self.call, "outcome unknown")

    def refused(self, reply: Reply, *, can_repeat: bool = True, can_wait: bool = True) -> bool:
        """Learn from an error answer of Triton; True when another replica is to be tried.

        `can_repeat` says whether the whole request is still at hand. The answer is False for every
        reply that is to be passed on as it is; `answered` ends such a call. That a replica does not
        know the version is never passed on: `NotLoaded` ends the attempt when no other is left. A
        call that `can_wait` is not counted then: the caller of this lets it `wait_loaded`.
        """
        if self.is_ended:
            return False
        gateway, call = self._gateway, self.call
        choice = self.choice
        proof = refusal(call.protocol, call.verb, reply, choice.target) if choice else None
        if proof is None:
            if is_broken(call.protocol, reply):
                gateway.health.failed(self.replica.name, self._target())
            self._by_caller = is_unreadable(call.protocol, reply)
            return False
        if proof.lacks_version:
            gateway.health.failed(self.replica.name, self._target())
        if not can_repeat or not self._may_go_on():
            if proof.lacks_version:
                is_fresh = not self._is_repeated  # who waits begins anew, and may be repeated again
                raise self._not_loaded(can_wait=can_wait and can_repeat and is_fresh)
            return False
        self.go_to_replica(gateway.clock())
        gateway.meters.retried(call, proof.reason)
        return True

    def answered(self, status: int, *, good: bool, by_replica: bool = True) -> None:
        """Triton's answer has been passed on, or is about to be: the call has ended.

        `by_replica`, unless it is the answer of another one.
        """
        if self.is_ended:
            return
        gateway, call = self._gateway, self.call
        health = gateway.health
        if health.pauses:
            health.answered(self.replica.name, self._target() if good else "")
        if by_replica and (health.outliers.rows or not good):
            self._judge(status, good=good)
        self._end()
        code, begun, tries = code_name(call.protocol, status), self._begun, self._tried
        gateway.ended(call, self.choice, self.replica, code, begun, good=good, tries=tries)

    def failed(self, error: ServegateError, *, by_replica: bool = True) -> None:
        """The call ends with an error of our own; `by_replica`, unless it is that of another."""
        if not self.is_ended:
            is_broken_off = by_replica and isinstance(error, OutcomeUnknown)
            if is_broken_off and error.what != faults.WHAT:
                self._fail_replica(broke=True)
            self._end()
            self._count(error.code)

    def detach(self, until: float = math.inf) -> Slot:
        """Take the call's slot, before it ends: its replica goes on with it, and no caller waits.

        The end is counted as ever; the slot is free when the replica is done, or at `until`.
        """
        assert self._tried and not self.is_ended
        self._is_detached = True
        model = None if self.choice is None else self.call.model
        return Slot(self._gateway, self.replica, model, until)

    def left(self) -> None:
        """The caller has gone away before the answer: the call has ended."""
        if not self.is_ended:
            self._end()
            self._count("client_left")

    def passed_on(self) -> None:
        """A message of a stream was passed on; what answers it belongs to the stream."""
        if not self.is_ended:
            self._let_go()
            self._end()
            self._gateway.meters.passed_on(self.call, self.choice)

    # --- the steps --------------------------------------------------------------------------------

    def go_to_replica(self, now: float) -> None:
        """Go to one that was not tried: `NoReplica` and `DeadlineExceeded` end the call."""
        gateway, call = self._gateway, self.call
        if now >= call.deadline:
            raise self._end_with(DeadlineExceeded())
        health, avoided = gateway.health, _NONE
        is_troubled = health.pauses or health.outliers.rows
        if is_troubled:
            self._let_go()
            avoided = health.avoided(self._target())
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
        if is_troubled and self.call.verb in _JUDGED:
            health.outliers.picked(name, self._target(), self)

    def _may_go_on(self) -> bool:
        """Whether the rule allows another attempt; then the present replica is no candidate."""
        allowed = attempts_allowed(stateful=self._is_stateful())
        if self._tried >= allowed or len(self._names) < 2:
            return False
        self._names = tuple(name for name in self._names if name != self.replica.name)
        return True

    def _target(self) -> str:
        """The version as health knows it; empty when the call names no model."""
        return "" if self.choice is None else "/".join(self.choice.labels[:2])

    def _is_stateful(self) -> bool:
        return self.choice is not None and self.choice.stateful

    def _version(self) -> str:
        return str(self.choice.target.version) if self.choice else ""

    def _nobody(self, why: str) -> NoReplica:
        return NoReplica(self.call.model, self._version(), why)

    def _not_loaded(self, *, can_wait: bool) -> NotLoaded:
        self._let_go()
        error, until = NotLoaded(self.call.model, self._version()), self._begun + PATIENCE
        if not can_wait or self._is_stateful() or self._gateway.clock() >= until:
            self._end_with(error)
        else:
            error.until = until
            self._end()
        return error

    def _end(self) -> None:
        self.is_ended = True
        if self._is_detached:
            return
        gateway = self._gateway
        if self._tried:
            gateway.loads.left(self.replica.name)
        if self.choice is not None:
            gateway.admission.leave(self.call.model)

    def _end_with(self, error: ServegateError) -> ServegateError:
        self._end()
        self._count(error.code)
        return error

    # --- what is learned of the replica -----------------------------------------------------------

    def _judge(self, status: int, *, good: bool) -> None:
        """Whether the answer is a failure of the replica; the answer to a question says nothing."""
        call = self.call
        if call.verb not in _JUDGED:
            return
        if not (good or self._by_caller) and is_failure(call.protocol, status):
            self._fail_replica(broke=False)
            return
        self._gateway.health.outliers.answered(self.replica.name, self._target(), good=good)
        self._let_go()

    def _fail_replica(self, *, broke: bool) -> None:
        choice, gateway, name = self.choice, self._gateway, self.replica.name
        if choice is None or not self._tried or self.call.verb not in _JUDGED:
            return
        target, holders = self._target(), choice.target.replicas
        if gateway.health.outliers.failed(name, target, self, holders, broke=broke):
            gateway.meters.ejected(name, choice)

    def _let_go(self) -> None:
        """If this was a probe of the replica, another call may be one."""
        outliers = self._gateway.health.outliers
        if self._tried and outliers.rows:
            outliers.let_go(self.replica.name, self._target(), self)

    def _count(self, error: str) -> None:
        self._let_go()
        call, choice, replica, begun = self.call, self.choice, self.replica, self._begun
        if self._is_detached and call.verb is Verb.INFER:
            gateway = self._gateway
            gateway.admission.gave_up(call.model, gateway.clock() - begun)
        self._gateway.ended(call, choice, replica, error, begun, error=error, tries=self._tried)
