"""The walk of a call: route → admit → pick a replica → send, and again only where the rule allows.

One snapshot is read per call, once, so a call sees one generation from its first line to its last.
"""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from serve.core.calls import Call, Choice, Reply, Transport, Verb
from serve.core.errors import DeadlineExceeded, NoReplica, NotSent, ServegateError
from serve.core.snapshot import Snapshot
from serve.proxy.admission import Admission
from serve.proxy.attempts import attempts_allowed
from serve.proxy.balancing import pick
from serve.proxy.health import Health
from serve.proxy.live import Live
from serve.proxy.loads import Loads
from serve.proxy.routing import choose
from serve.telemetry import Meters
from serve.wire.status import code_name, is_broken, refusal, succeeded


@dataclass(frozen=True, slots=True)
class Answer:
    """A reply of Triton, with the decision that led to it."""

    reply: Reply
    choice: Choice | None
    generation: int
    replica: str

    @property
    def decision(self) -> str:
        """The value of the `servegate-version` header; empty when no version was chosen."""
        return self.choice.reason(self.generation) if self.choice else ""


class Gateway:
    """Takes calls and gives answers. Everything it needs is handed in."""

    def __init__(
        self,
        live: Live,
        transports: Mapping[str, Transport],
        *,
        loads: Loads,
        admission: Admission,
        health: Health,
        meters: Meters,
        draw: Callable[[], float],
        clock: Callable[[], float],
    ) -> None:
        self._live = live
        self._transports = transports
        self._loads = loads
        self._admission = admission
        self._health = health
        self._meters = meters
        self._draw = draw
        self._clock = clock
        self._turns = itertools.count()

    def __repr__(self) -> str:
        return f"<Gateway {self._live!r} {self._loads!r} {self._health!r}>"

    def is_ready(self) -> bool:
        """Whether nothing is left to wait for: each routed version of each model has a replica.

        A model that could not be loaded is not waited for: it must not take the others down.
        """
        if self._live.generation == 0:
            return False
        snapshot = self._live.snapshot
        return bool(snapshot.replicas) and all(
            model.split is not None and all(v in model.targets for v in model.split.versions)
            for model in snapshot.models.values()
            if not model.failed
        )

    def serves_sequences(self, model: str) -> bool:
        """Whether calls of this model carry a correlation id that routing must read."""
        if self._live.generation == 0:
            return False
        view = self._live.snapshot.models.get(model)
        return view is not None and view.sequences

    async def handle(self, call: Call) -> Answer:
        """Answer one call, or raise from `core.errors`; every status of Triton is an answer."""
        begun = self._clock()
        choice: Choice | None = None
        try:
            snapshot = self._live.snapshot
            if call.verb is Verb.SERVER_METADATA:
                answer = await self._attempt(call, None, snapshot, tuple(snapshot.replicas))
            else:
                choice = choose(snapshot, call, self._draw)
                self._admission.enter(call.model)
                try:
                    answer = await self._attempt(call, choice, snapshot, choice.target.replicas)
                finally:
                    self._admission.leave(call.model)
        except ServegateError as error:
            self._meters.call_failed(call, choice, error.code, self._clock() - begun)
            raise
        code = code_name(call.protocol, answer.reply.status)
        good = succeeded(call.protocol, answer.reply)
        self._meters.call_answered(call, choice, code, self._clock() - begun, good=good)
        return answer

    async def _attempt(
        self, call: Call, choice: Choice | None, snapshot: Snapshot, names: tuple[str, ...]
    ) -> Answer:
        """Try replicas until one has answered for good, or the rule forbids another."""
        target = f"{choice.target.model}/{choice.target.version}" if choice else ""
        left = list(names)
        why = retry = ""
        refused: Answer | None = None
        stateful = choice is not None and snapshot.models[call.model].sequences
        for _ in range(attempts_allowed(stateful=stateful)):
            name = pick(
                left,
                load=self._loads.on_replica,
                is_usable=lambda replica: self._health.is_usable(replica, target),
                turn=next(self._turns),
                sequence=call.sequence,
            )
            if name is None:
                break
            if call.deadline is not None and self._clock() >= call.deadline:
                raise DeadlineExceeded
            left.remove(name)
            if retry:
                self._meters.retried(call, retry)
            try:
                reply = await self._send(call, choice, snapshot, name)
            except NotSent as error:
                self._health.failed(name)
                why, retry = str(error), "not sent"
                continue
            answer = Answer(reply, choice, snapshot.generation, name)
            asked = choice.target.physical_name if choice else ""
            proof = refusal(call.protocol, call.verb, reply, asked)
            if proof is None and is_broken(call.protocol, reply):
                self._health.failed(name, target)
                return answer
            if proof is None:
                self._health.succeeded(name, target)
                return answer
            if proof.lacks_version:
                self._health.failed(name, target)
            refused, retry = answer, proof.reason
        if refused is not None:
            return refused
        raise NoReplica(call.model, str(choice.target.version) if choice else "", why)

    async def _send(
        self, call: Call, choice: Choice | None, snapshot: Snapshot, name: str
    ) -> Reply:
        self._loads.replica_entered(name)
        try:
            transport = self._transports[call.protocol]
            return await transport.send(call, choice, snapshot.replicas[name])
        finally:
            self._loads.replica_left(name)
