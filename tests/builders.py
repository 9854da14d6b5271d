"""Plain builders and hand-written fakes that many tests share: values, data and control planes.

Nothing here starts a process or opens a socket; time is a `Clock` that tests set.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from serve.control.decisions import Decisions
from serve.control.fleet import Fleet
from serve.control.inventory import Inventory
from serve.control.keys import Keys
from serve.control.models import Models
from serve.control.reconciling.steering import Steering
from serve.control.scaling.allowing import Pools
from serve.control.scaling.pools import settings_of
from serve.control.snapshots import Publisher, compile_snapshot
from serve.control.storing.store import Store
from serve.core.calls import Call, Choice, Headers, Reply, Verb
from serve.core.errors import NotSent, ServegateError
from serve.core.replicas import Replica
from serve.core.routes import Split
from serve.core.snapshot import ModelView, Snapshot, Target
from serve.proxy.admission import Admission
from serve.proxy.attempts import Attempt
from serve.proxy.gateway import Gateway
from serve.proxy.health import Health
from serve.proxy.journal import Journal
from serve.proxy.live import Live
from serve.proxy.loads import Loads
from serve.proxy.waking import Waking
from serve.telemetry import Meters

CONFIG = 'backend: "onnxruntime"\nversion_policy { all { } }\n'


class Clock:
    """A clock that stands still until a test moves it. Seconds."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


# --- values --------------------------------------------------------------------------------------


def replica(
    name: str = "a", *, http: int = 8000, grpc: int = 8001, pool: str = "default"
) -> Replica:
    return Replica(name, "127.0.0.1", http, grpc, 8002, pool)


def target(version: int = 1, *holders: str, model: str = "m", physical: str = "") -> Target:
    name = physical or model
    return Target(model, version, name, version, "onnxruntime", holders or ("a",))


def view(
    *targets: Target,
    name: str = "m",
    split: str = "",
    labels: Mapping[str, int] | None = None,
    sequences: bool = False,
    failed: bool = False,
    asleep: bool = False,
) -> ModelView:
    """A model with these targets; without a split the highest version is served."""
    held = {one.version: one for one in targets}
    newest = Split.of({max(held): 100}) if held else None
    return ModelView(
        name=name,
        targets=MappingProxyType(held),
        labels=MappingProxyType(dict(labels or {})),
        split=Split.parse(split.split()) if split else newest,
        routed=bool(split),
        sequences=sequences,
        failed=failed,
        asleep=asleep,
    )


def snapshot(*models: ModelView, generation: int = 1, replicas: Sequence[str] = ()) -> Snapshot:
    """A snapshot with these models and every replica that they name."""
    named = {name for model in models for one in model.targets.values() for name in one.replicas}
    return Snapshot(
        generation,
        MappingProxyType({model.name: model for model in models}),
        MappingProxyType({name: replica(name) for name in sorted(named | set(replicas))}),
    )


def call(
    verb: Verb = Verb.INFER,
    *,
    protocol: str = "http",
    model: str = "m",
    selector: str = "",
    deadline: float = math.inf,
    sequence: str = "",
    prefer: str = "",
) -> Call:
    return Call(protocol, verb, model, selector, deadline, sequence, prefer)


def choice(version: int = 1, *, physical: str = "", pinned: bool = True) -> Choice:
    return Choice(target(version, physical=physical), "number", pinned)


# --- a data plane --------------------------------------------------------------------------------

Outcome = Reply | ServegateError
GOOD = Reply(200, b'{"outputs":[]}', ((b"content-type", b"application/json"),))
GOOD_GRPC = Reply(0, b"\x0a\x01m")


@dataclass(slots=True)
class Walk:
    """What came of a call: the replicas that were tried, and an answer or an error."""

    tried: list[str] = field(default_factory=list)
    reply: Reply | None = None
    error: ServegateError | None = None
    decision: str = ""


class DataPlane:
    """A gateway without connections. `draw` is what the split draws.

    Up to `waking_calls` wait for a pool that was scaled to zero, for ten seconds each; `news` is
    how often the control plane would have been told of a model that is waited for.
    """

    def __init__(
        self,
        snapshot: Snapshot | None,
        *,
        limit: int = 100,
        draw: float = 0.0,
        journal: Journal | None = None,
        waking_calls: int = 4,
    ) -> None:
        self.clock = Clock()
        self.news = 0
        self.waking = Waking(calls=waking_calls, seconds=10.0, tell=self._tell)
        self.live = Live()
        if snapshot is not None:
            self.live.swap(snapshot)
        self.loads = Loads()
        self.health = Health(self.clock)
        self.meters = Meters()
        self.gateway = Gateway(
            self.live,
            loads=self.loads,
            admission=Admission(self.loads, limit=limit),
            health=self.health,
            meters=self.meters,
            draw=lambda: draw,
            clock=self.clock,
            journal=journal,
            waking=self.waking,
        )

    def _tell(self) -> None:
        self.news += 1

    def wake(self, woken: Snapshot) -> None:
        """The models of this snapshot are in force, and the sweeper has looked at who waits."""
        now = self.live.snapshot
        replicas = MappingProxyType({**woken.replicas, **now.replicas})
        newer = replace(woken, generation=now.generation + 1, replicas=replicas)
        assert self.live.swap(newer)
        self.gateway.sweep()

    def begin(self, asked: Call | None = None) -> Attempt:
        return self.gateway.begin(asked or call())

    def walk(self, *outcomes: Outcome, asked: Call | None = None) -> Walk:
        """One call, as a listener walks it: the outcomes of its attempts; later ones succeed."""
        asked, waiting, walk = asked or call(), list(outcomes), Walk()
        good = GOOD if asked.protocol == "http" else GOOD_GRPC
        try:
            attempt = self.begin(asked)
            walk.decision = attempt.decision
            while walk.reply is None:
                walk.tried.append(attempt.replica.name)
                walk.reply = _step(attempt, waiting.pop(0) if waiting else good)
        except ServegateError as error:
            walk.error = error
        return walk

    def count(self, name: str, **labels: str) -> float:
        """One sample of the meters; 0 when it does not exist."""
        return self.meters.registry.get_sample_value(name, labels) or 0.0


def _step(attempt: Attempt, outcome: Outcome) -> Reply | None:
    """Tell the attempt what came of it; the reply when it is to be passed on."""
    if isinstance(outcome, NotSent):
        attempt.not_sent(outcome)
        return None
    if isinstance(outcome, ServegateError):
        attempt.failed(outcome)
        raise outcome
    good = outcome.status in ((0,) if attempt.call.protocol == "grpc" else range(200, 300))
    if not good and attempt.refused(outcome):
        return None
    attempt.answered(outcome.status, good=good)
    return outcome


# --- a control plane -----------------------------------------------------------------------------


class ControlPlane:
    """Store, inventory, fleet and publisher; tests say what the replicas hold.

    Those are a and b if no others are named, unless it `discovers` which there are.
    """

    def __init__(
        self, folder: Path, *, replicas: Sequence[Replica] = (), discovers: bool = False
    ) -> None:
        self.clock = Clock()
        self.repository = folder / "models"
        self.repository.mkdir(exist_ok=True)
        self.store = Store(folder / "control.sqlite", clock=lambda: 1_700_000_000.0)
        self.store.migrate()
        self.decisions = Decisions()
        usual = () if discovers else (replica("a"), replica("b"))
        self.fleet = Fleet(tuple(replicas) or usual, clock=self.clock, is_complete=not discovers)
        self.inventory = Inventory(self.repository, self.fleet, decisions=lambda: self.decisions)
        self.publisher = Publisher(
            self._compile, self.store, clock=self.clock, knows=lambda: self.fleet.is_known
        )
        self.steering = Steering(self.fleet, self.publisher, min_available=0.5, refuse=False)
        self.models = Models(
            self.store,
            self.inventory,
            self.fleet,
            self.publisher,
            self.steering,
            decisions=lambda: self.decisions,
            reload=self.reload,
        )
        self.wall = Clock(1_700_000_000.0)
        self.pools = Pools(
            self.store,
            self.inventory,
            self.fleet,
            decisions=lambda: self.decisions,
            reload=self.reload,
            publish=self.publisher.committed,
            wall=self.wall,
        )
        self.keys = Keys(
            self.store,
            decisions=lambda: self.decisions,
            reload=self.reload,
            publish=self.publisher.committed,
            wall=self.wall,
        )

    def _compile(self) -> Snapshot:
        models, decisions = self.inventory.models, self.decisions
        return compile_snapshot(
            *(models, decisions, self.fleet),
            may_sleep=lambda pool: settings_of(decisions, pool).to_zero,
        )

    async def reload(self) -> None:
        self.decisions = Decisions(await self.store.read())

    async def begin(self, **held: Mapping[str, tuple[int, ...]]) -> ControlPlane:
        """Read repository and store; the replicas named hold what is given, the others are lost."""
        await self.reload()
        await self.inventory.scan()
        for name in self.fleet.observations:
            if name in held:
                self.fleet.saw(name, held[name])
            else:
                self.fleet.lost(name, "refused")
        await self.publisher.refresh()
        return self


def write_model(
    repository: Path, name: str = "m", *versions: int, config: str | None = CONFIG
) -> Path:
    """A model's folder in Triton's layout, versions 1 and 2 unless others are named."""
    folder = repository / name
    for version in versions or (1, 2):
        (folder / str(version)).mkdir(parents=True)
        (folder / str(version) / "model.onnx").write_bytes(b"model")
    if config is not None:
        (folder / "config.pbtxt").write_text(config)
    return folder


# --- waiting and asking --------------------------------------------------------------------------


async def until(reached: Callable[[], bool], *, within: float = 5.0) -> None:
    """Let other tasks run until this holds; fail when it does not in time."""
    end = time.monotonic() + within
    while not reached():
        assert time.monotonic() < end, "it did not come to pass"
        await asyncio.sleep(0)


@dataclass(slots=True)
class Answered:
    """What an ASGI application answered."""

    status: int = 0
    headers: dict[bytes, bytes] = field(default_factory=dict)
    body: bytes = b""


async def ask(
    app: Callable[..., Awaitable[None]],
    method: str,
    path: bytes,
    *chunks: bytes,
    headers: Headers = (),
) -> Answered:
    """One request to an ASGI application, its body in these chunks."""
    waiting = [{"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks]
    waiting.append({"type": "http.request", "body": b"", "more_body": False})
    answered = Answered()

    async def receive() -> dict[str, Any]:
        return waiting.pop(0) if waiting else {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            answered.status = message["status"]
            answered.headers = dict(message["headers"])
        else:
            answered.body += message.get("body", b"")

    scope = {"type": "http", "method": method, "raw_path": path, "headers": list(headers)}
    await app(scope, receive, send)
    return answered
