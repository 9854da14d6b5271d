"""The walk of a call: route → admit → pick a replica, and again only where the rule allows.

`begin` is one synchronous function: no task, no future and no timer is made for a call. It gives an
`Attempt`, which knows the replica to send to. Whoever moves the bytes tells the attempt what came
of it, and ends it exactly once:

    begin ──▶ attempt ──┬─ not_sent ──▶ another replica, or NoReplica
                        ├─ refused ───▶ another replica, `NotLoaded`, or the refusal is the answer
                        └─ answered | failed | left | passed_on ──▶ ended

A call that ends before its replica is done with it leaves its slot behind: see `slots`.
One snapshot is read per call, once, so a call sees one generation from its first line to its last.

Live: the one reference to the snapshot in force; swapped whole, never edited.
"""

import time
from collections.abc import Callable

from serve.core.access import Access, Act, ApiKey
from serve.core.calls import Call, Choice, Verb
from serve.core.errors import Asleep, NoSnapshot, NotLoaded, ServegateError
from serve.core.replicas import Replica
from serve.core.snapshot import Snapshot
from serve.proxy.admission import Admission
from serve.proxy.attempts import NOWHERE, Attempt
from serve.proxy.health import Health
from serve.proxy.journal import EndedCall, Journal
from serve.proxy.loads import Loads
from serve.proxy.mirrors import Mirrors
from serve.proxy.routing import Routing
from serve.proxy.slots import Slot
from serve.proxy.waiting_calls import WaitingBytes, Waking
from serve.telemetry import Meters

# --- live -----------------------------------------------------------------------------------------


class LiveSnapshot:
    """Holds the snapshot that calls read. Generations never go backwards here."""

    def __init__(self) -> None:
        self.current: Snapshot | None = None  # None before the first one

    def __repr__(self) -> str:
        return f"<LiveSnapshot generation={self.generation}>"

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot in force; `NoSnapshot` before the first one."""
        if self.current is None:
            raise NoSnapshot
        return self.current

    @property
    def generation(self) -> int:
        """The generation in force, 0 before the first snapshot."""
        return self.current.generation if self.current else 0

    def swap(self, snapshot: Snapshot) -> bool:
        """Put a newer snapshot in force; an older one or the same changes nothing."""
        if snapshot.generation <= self.generation:
            return False
        self.current = snapshot
        return True


# --- the walk of a call ---------------------------------------------------------------------------


class Gateway:
    """Takes calls and gives attempts. Everything it needs is handed in."""

    def __init__(
        self,
        live: LiveSnapshot,
        *,
        loads: Loads,
        admission: Admission,
        health: Health,
        meters: Meters,
        draw: Callable[[], float],
        clock: Callable[[], float],
        wall: Callable[[], float] = time.time,
        needs_key: Callable[[Snapshot], bool] = lambda snapshot: snapshot.guarded,
        journal: Journal | None = None,
        waking: Waking | None = None,
        mirrors: Mirrors | None = None,
    ) -> None:
        self.loads = loads
        self.mirrors = mirrors
        self.admission = admission
        self.health = health
        self.meters = meters
        self.clock = clock
        self._live = live
        self._draw = draw
        self._routing: Routing | None = None
        self._access = Access({}, is_required=True, wall=wall)  # of the same snapshot
        self._wall = wall
        self._needs_key = needs_key
        self._journal = journal
        self._waking = waking or Waking(calls=0, seconds=0.0, tell=lambda: None)
        self.kept: set[Slot] = set()  # of calls whose callers have gone
        self.turns = 0  # rises with every pick, so that equals take turns

    def __repr__(self) -> str:
        return f"<Gateway {self._live!r} {self.loads!r} {self.health!r}>"

    def is_ready(self) -> bool:
        """Whether nothing is left to wait for: each routed version of each model has a replica.

        A model that could not be loaded is not waited for: it must not take the others down. Nor is
        one whose pool has been scaled to zero: its calls wait.
        """
        snapshot = self._live.current
        if snapshot is None:
            return False
        models = snapshot.models.values()
        is_served = bool(snapshot.replicas) or any(model.asleep for model in models)
        return is_served and all(
            model.route is not None and all(v in model.targets for v in model.called)
            for model in models
            if not (model.failed or model.asleep)
        )

    @property
    def needs_key(self) -> bool:
        """Whether callers have to show a key."""
        snapshot = self._live.current
        return snapshot is not None and self._needs_key(snapshot)

    def has(self, replica: Replica) -> bool:
        """Whether the snapshot in force has this replica: it has not left, and is not about to."""
        snapshot = self._live.current
        return snapshot is not None and snapshot.replicas.get(replica.name) == replica

    def serves_sequences(self, model: str, credential: bytes) -> bool:
        """Whether calls of this model carry a correlation id that routing must read.

        Never where the model does not exist for the caller: to wait for more of a call would tell.
        """
        snapshot = self._live.current
        view = None if snapshot is None else snapshot.models.get(model)
        if snapshot is None or view is None or not view.sequences:
            return False
        if self._routing is None or self._routing.snapshot is not snapshot:
            self._meet(snapshot)
        try:
            self._access.check(credential, Act.CALL, model)
        except ServegateError:
            return False  # and `begin` says which
        return True

    def begin(self, call: Call) -> Attempt:
        """The first attempt of a call, or an error of `core.errors` that says why there is none.

        An error is counted here; an attempt has to be ended by whoever gets it. `Asleep` is not
        counted: whoever gets it lets the call `wait`.
        """
        begun = self.clock()
        choice: Choice | None = None
        try:
            snapshot = self._live.current or self._live.snapshot
            routing = self._routing
            if routing is None or routing.snapshot is not snapshot:
                routing = self._meet(snapshot)
            if call.verb is Verb.SERVER_METADATA:
                self._access.check(call.credential, Act.ASK)
                names = tuple(snapshot.replicas)
            else:
                if self._access.is_required:
                    self._access.check(call.credential, Act.CALL, call.model)
                if routing.deadlines:
                    routing.limit(call, begun)
                choice = routing.choose(call, self._draw)
                names = choice.target.replicas
                self.admission.enter(call.model)
        except Asleep:
            raise
        except ServegateError as error:
            self.ended(call, choice, NOWHERE, error.code, begun, error=error.code)
            raise
        attempt = Attempt(self, call, choice, snapshot, names, begun)
        attempt.go_to_replica(begun)
        return attempt

    def check(self, call: Call) -> None:
        """Raise what `begin` would raise now, for a call whose body has not come yet.

        An error is counted. Nothing is drawn and no slot is taken: `begin` decides when the call
        can be sent. A pool that sleeps is no error, since the call may wait for it.
        """
        begun = self.clock()
        choice: Choice | None = None
        try:
            snapshot = self._live.current or self._live.snapshot
            routing = self._routing
            if routing is None or routing.snapshot is not snapshot:
                routing = self._meet(snapshot)
            if self._access.is_required:
                self._access.check(call.credential, Act.CALL, call.model)
            choice = routing.choose(call, lambda: 0.0)
            self.admission.check(call.model)
        except Asleep:
            return
        except ServegateError as error:
            self.ended(call, choice, NOWHERE, error.code, begun, error=error.code)
            raise

    def wait(self, call: Call, waiter: WaitingBytes) -> Attempt:
        """Let a call that `begin` has refused with `Asleep` wait for its pool; see `waking`.

        What comes back is ended when the caller leaves first. `Asleep` when it cannot wait.
        """
        return self._waking.wait(self, call, waiter)

    def wait_loaded(self, attempt: Attempt, waiter: WaitingBytes, error: NotLoaded) -> Attempt:
        """Let a call wait for a moment whose attempt has ended with `NotLoaded`; see `wait`.

        The error itself is raised, and counted, when the call cannot wait.
        """
        return self._waking.wait_loaded(self, attempt, waiter, error)

    @property
    def calls(self) -> dict[str, int]:
        """By model the calls that have come and have not ended, those that wait included."""
        found = dict(self.loads.models)
        for model, count in self._waking.waiting.items():
            found[model] = found.get(model, 0) + count
        return found

    def sweep(self) -> None:
        """Look at the clock, for limits and calls that wait; and at replicas no longer called.

        What such a replica still works on keeps no other one from its calls.
        """
        now = self.clock()
        for slot in tuple(self.kept):
            if slot.until <= now or not self.has(slot.replica):
                slot.free()
        self.admission.sweep(now, self.meters.good_answers)
        self._waking.sweep(self)

    def fleet(self, call: Call, act: Act = Act.ASK) -> tuple[Snapshot, Callable[[str], bool]]:
        """For questions to all replicas: the snapshot, and which models exist for the caller.

        `Unauthenticated` or `Forbidden` when the caller may not ask; that is counted.
        """
        begun = self.clock()
        try:
            snapshot = self._live.current or self._live.snapshot
            if self._routing is None or self._routing.snapshot is not snapshot:
                self._meet(snapshot)
            key = self._access.check(call.credential, act, call.model)
        except ServegateError as error:
            self.ended(call, None, NOWHERE, error.code, begun, error=error.code)
            raise
        return snapshot, (lambda _: True) if key is None else key.sees

    def key_of(self, call: Call) -> ApiKey | None:
        """The key that the caller has shown, if it is a valid one and one was needed."""
        try:
            return self._access.who(call.credential)
        except ServegateError:
            return None

    def _key_id(self, call: Call) -> str:
        key = self.key_of(call)
        return "" if key is None else key.id

    def _meet(self, snapshot: Snapshot) -> Routing:
        if self._routing is not None:
            before = self._routing.snapshot.replicas.items()
            same = (name for name, replica in before if snapshot.replicas.get(name) == replica)
            self.health.keep(same)
        self._access = Access(snapshot.keys, is_required=self._needs_key(snapshot), wall=self._wall)
        routing = self._routing = Routing(snapshot, self._key_id)
        return routing

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
        """Count a call that has ended, and write it down; `begun` is when, by the clock."""
        seconds = self.clock() - begun
        if error:
            self.meters.call_failed(call, choice, error, seconds)
        else:
            self.meters.call_answered(call, choice, code, seconds, good=good)
        journal = self._journal
        if journal is not None and (not good or journal.takes()):
            key = self.key_of(call)
            shown = "" if key is None else key.id
            journal.write(
                EndedCall(call, choice, replica, code, seconds, error, tries, good, shown)
            )
