"""The JSON of the admin API, with examples; the OpenAPI document is made of these."""

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, model_validator

from serve.control.keys import KeyStatus
from serve.control.observations import Observation
from serve.control.snapshots import WorkerStatus
from serve.control.statuses import ModelStatus
from serve.core.access import Role
from serve.core.routes import LONGEST_DEADLINE
from serve.core.snapshot import BY_NAME, Snapshot
from serve.triton.metrics import ReplicaScrape


class MatchBody(BaseModel):
    """Calls that have their own traffic split: those with this value of a header (gRPC: of a
    metadata key), or those with a key of this id. `value` and `key` are shell patterns.
    """

    model_config = ConfigDict(extra="forbid")
    header: str = Field(default="", max_length=100)
    value: str = Field(default="", max_length=1000)
    key: str = Field(default="", max_length=100)
    split: dict[int, int] = Field(min_length=1)


class MirrorBody(BaseModel):
    """Sends copies of so many percent of the calls to a version. An empty object means none. `code`
    allows it for a version that runs code or calls other models. `keep` keeps the inputs of some
    calls to which the versions respond differently, as runs.
    """

    model_config = ConfigDict(extra="forbid")
    version: int = Field(default=0, ge=0)
    percent: float = Field(default=0.0, ge=0, le=100)
    code: bool = False
    keep: bool = False

    @model_validator(mode="after")
    def is_whole(self) -> "MirrorBody":
        """Both are there, or nothing is."""
        if self.model_fields_set and not (self.version and self.percent):
            raise ValueError("a mirror needs a version and a percent above 0; {} removes it")
        return self


class RouteBody(BaseModel):
    """A traffic split: versions and their relative weights.

    `sticky` says whose calls stay with one version: `key`, `request-id` or `header:NAME`; an empty
    text means none. `matches` are tried in order before the split. `fallback` is the version for
    calls whose version no replica has loaded; 0 means none. `deadline` is the longest time for a
    unary predict call in seconds; 0 means none. `idempotent` says that a call may be executed
    twice. `mirror` sends copies of calls to a version. What is missing stays unchanged.
    """

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"split": {"1": 90, "2": 10}},
                {
                    "split": {"1": 100},
                    "sticky": "header:x-user-id",
                    "matches": [{"header": "x-team", "value": "blue", "split": {"2": 100}}],
                },
            ]
        },
    )
    split: dict[int, int] = Field(min_length=1)
    sticky: str | None = Field(default=None, max_length=200)
    matches: list[MatchBody] | None = None
    fallback: int | None = Field(default=None, ge=0)
    deadline: float | None = Field(default=None, ge=0, le=LONGEST_DEADLINE)
    idempotent: bool | None = None
    mirror: MirrorBody | None = None


class LabelBody(BaseModel):
    """The version that a label points to."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"version": 2}]})
    version: int = Field(gt=0)


class ModelPatch(BaseModel):
    """Changes to a model. Missing fields stay unchanged; an empty text removes a value."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"objective": "p99<50ms"}, {"pool": "default"}]},
    )
    objective: str | None = None
    pool: str | None = None


class Done(BaseModel):
    """A stored change. `in_force` is true when every worker uses `generation` or a newer one."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"generation": 7, "in_force": True}]})
    generation: int
    in_force: bool


class RouteOfMany(RouteBody):
    """The whole route of one model: what is missing is removed. `etag` is that of the route as you
    read it; if it has changed since, no route is set.
    """

    etag: str = Field(default="", max_length=100)


class RoutesBody(BaseModel):
    """Routes by model."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"routes": {"digits": {"split": {"1": 90, "2": 10}}}}]},
    )
    routes: dict[str, RouteOfMany] = Field(max_length=10_000)


class RouteView(BaseModel):
    """A model's route, as in `RouteBody`. `routed` is false if no split is set and the newest
    version serves.
    """

    model: str
    split: dict[int, int]
    routed: bool
    sticky: str = ""
    matches: list[MatchBody] = []
    fallback: int = 0
    deadline: float = 0.0
    idempotent: bool = False
    mirror: MirrorBody | None = None


class RouteEntry(RouteView):
    """A route in the list of all."""

    etag: str


class ModelVersionView(BaseModel):
    """One version: `ready`, `loading`, `failed` or `not wanted`, and the reason.

    `flavours` are the forms in which replicas have loaded it, if there are several.
    """

    version: int
    state: str
    replicas: list[str]
    labels: list[str]
    reason: str
    serving: bool
    published: bool
    flavours: dict[str, str]


class ModelSummary(BaseModel):
    """One entry of the list of models. `pools` load it: its own `pool` and the others of its
    group.
    """

    name: str
    state: str
    versions: list[ModelVersionView]
    labels: dict[str, int]
    split: dict[int, int]
    routed: bool
    objective: str
    pool: str
    pools: list[str]
    problems: list[str]


class ModelDetail(ModelSummary):
    """A model with its label texts, preprocessing and model card."""

    output_labels: dict[str, list[str]]
    preprocessing: dict[str, Any]
    card: dict[str, Any]


class GpuView(BaseModel):
    """One GPU: utilisation from 0 to 1, memory in bytes, power in watts; null if unknown."""

    utilization: float | None
    memory_used: float | None
    memory_total: float | None
    power: float | None


class ReplicaView(BaseModel):
    """One Triton server. `pending` and the utilisations are null if it does not report them.

    `preparing` is true while it responds but still lacks a version or loads one. New calls go to
    other replicas if possible. `zone` is the zone of its discovery, or empty. `gpus` are the
    readings of each GPU by uuid, and `gpu_utilization` that of the first one.
    """

    name: str
    address: str
    pool: str
    state: str
    seconds: float
    why: str
    self_managed: bool
    held: dict[str, list[int]]
    failures: dict[str, str]
    preparing: bool = False
    zone: str = ""
    pending: int | None = None
    cpu_utilization: float | None = None
    gpu_utilization: dict[str, float | None] = {}
    gpus: dict[str, GpuView] = {}


class WorkerView(BaseModel):
    """One data plane worker, and the generation that it uses."""

    name: str
    generation: int


class SnapshotView(BaseModel):
    """The snapshot in force, and the workers that use it."""

    generation: int
    workers: list[WorkerView]
    snapshot: dict[str, Any]


class KeyBody(BaseModel):
    """A new key: its purpose, and its expiry (a time, or seconds from now)."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"role": "predictor", "models": ["digits*"], "expires_in": 2592000, "note": "app"},
                {"role": "admin", "expires": "2030-01-01T00:00:00Z"},
            ]
        },
    )
    role: Role
    models: list[Annotated[str, Field(max_length=255)]] = Field(
        default=["*"], min_length=1, max_length=100
    )
    expires_in: float | None = Field(default=None, gt=0, le=3650 * 86400)
    expires: AwareDatetime | None = None
    note: str = Field(default="", max_length=1000)


class KeyMade(Done):
    """A new key. `key` is the secret to send with requests; it is shown only here, once."""

    id: str
    key: str


class KeyView(BaseModel):
    """One key, without its secret. `state` is `active`, `expired` or `revoked`."""

    id: str
    role: Role
    models: list[str]
    state: str
    created: datetime
    expires: datetime | None
    author: str
    note: str


class ErrorBody(BaseModel):
    """What failed, why, what to do, and a stable code."""

    error: str
    code: str
    what: str
    why: str
    try_this: str


def summary(status: ModelStatus) -> dict[str, Any]:
    """The fields of `ModelSummary`."""
    return {
        "name": status.model.name,
        "state": status.state,
        "versions": [
            {
                "version": version.number,
                "state": version.state,
                "replicas": list(version.replicas),
                "labels": list(version.labels),
                "reason": version.reason,
                "serving": version.serving,
                "published": version.published,
                "flavours": dict(version.flavours),
            }
            for version in status.versions
        ],
        "labels": dict(status.labels),
        "split": dict(status.split.shares) if status.split else {},
        "routed": status.route is not None,
        "objective": status.objective,
        "pool": status.pool,
        "pools": list(status.pools),
        "problems": list(status.problems),
    }


def detail(status: ModelStatus) -> dict[str, Any]:
    """The fields of `ModelDetail`."""
    newest = status.model.newest
    return summary(status) | {
        "output_labels": {k: list(v) for k, v in newest.labels.items()} if newest else {},
        "preprocessing": dict(newest.preprocessing) if newest else {},
        "card": dict(newest.card) if newest else {},
    }


def replica(
    seen: Observation, failures: dict[str, str], readings: ReplicaScrape | None, now: float
) -> dict[str, Any]:
    """The fields of `ReplicaView`."""
    view: dict[str, Any] = {
        "name": seen.replica.name,
        "address": seen.replica.address,
        "pool": seen.replica.pool,
        "state": seen.state,
        "seconds": round(now - seen.since, 1) if seen.state != "unseen" else 0.0,
        "why": seen.why,
        "self_managed": seen.self_managed,
        "held": {name: list(versions) for name, versions in seen.held.items()},
        "failures": failures,
    }
    if readings is not None:
        view["pending"] = readings.pending
        view["cpu_utilization"] = readings.cpu_utilization
        view["gpu_utilization"] = {
            uuid: reading.utilization for uuid, reading in readings.gpus.items()
        }
        view["gpus"] = {uuid: asdict(reading) for uuid, reading in readings.gpus.items()}
    return view


def worker(entry: WorkerStatus) -> dict[str, Any]:
    """The fields of `WorkerView`."""
    return {"name": entry.name, "generation": entry.generation}


def key(status: KeyStatus) -> dict[str, Any]:
    """The fields of `KeyView`."""
    return {
        "id": status.id,
        "role": status.role,
        "models": list(status.models),
        "state": status.state,
        "created": datetime.fromtimestamp(status.created, UTC),
        "expires": (
            None if status.expires is None else datetime.fromtimestamp(status.expires, UTC)
        ),
        "author": status.author,
        "note": status.note,
    }


def snapshot(one: Snapshot) -> dict[str, Any]:
    """A snapshot for people: holders by name; what is kept of the keys' secrets stays inside."""
    page = one.to_json() | {"format": BY_NAME}
    holders = page.pop("holders")
    for model in page["models"].values():
        for target in model["targets"].values():
            target["replicas"] = holders[target["replicas"]]
    for entry in page["keys"].values():
        del entry["digest"]
    return page
