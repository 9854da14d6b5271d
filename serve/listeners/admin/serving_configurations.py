"""How versions are run, over the admin API: shown, changed, and how far a change is."""

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from serve.control.batching.configuring import Shown
from serve.control.batching.reconfiguration import Outcome, Phase, Reconfiguration, Wish
from serve.listeners.admin import schemas
from serve.listeners.admin.context import ByWhom, InControl
from serve.triton.canonical import canonical_text
from serve.triton.lint import Diagnosis
from serve.triton.revising import revised

_PATH = "/api/models/{model}/versions/{number}/serving-configuration"

router = APIRouter(tags=["versions"], responses={404: {"model": schemas.ErrorBody}})


class FieldsBody(BaseModel):
    """The fields that take the place of those in config.pbtxt, whole; null removes one, and none
    at all is how the version came. `tuned` is what was measured for it, if anything was."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "fields": {
                        "max_batch_size": 16,
                        "dynamic_batching": {"max_queue_delay_microseconds": 500},
                    }
                }
            ]
        },
    )
    fields: dict[str, Any]
    tuned: dict[str, Any] = Field(default_factory=dict)


class FindingView(BaseModel):
    """What lint says of one field."""

    rule: str
    severity: str
    field: str
    why: str
    fix: str


class ReplicaView(BaseModel):
    """How far a replica is with the configuration, and why not further."""

    state: Literal["applied", "waiting", "loading", "failed"]
    why: str


class ChangeView(BaseModel):
    """The newest change since this control plane began: where it is since when, or its `outcome`,
    which is empty before its end. `told` says why, or what was found."""

    phase: Phase
    outcome: Outcome | Literal[""]
    told: str
    since: datetime
    watch_until: datetime | None
    fields: dict[str, Any]
    replicas: dict[str, ReplicaView]


class ServingConfigurationView(BaseModel):
    """How a version is run. `base` is what it came with and `config` what is in force, as texts of
    config.pbtxt; `fields` are those that were changed. `name` is that in Triton, where it shares
    its configuration with the versions in `shared_with`. `trouble` says why `fields` are passed
    over. `author` and `at` are of the last change, empty and null without one."""

    model: str
    version: int
    name: str
    shared_with: list[int]
    base: str
    config: str
    fields: dict[str, Any]
    tuned: dict[str, Any]
    trouble: str
    etag: str
    author: str
    reason: str
    at: datetime | None
    findings: list[FindingView]
    replicas: dict[str, ReplicaView]
    change: ChangeView | None


@router.get(_PATH, summary="Show how a version is run")
async def show_serving_configuration(
    model: str, number: int, control: InControl, response: Response
) -> ServingConfigurationView:
    """With what was changed of it; its ETag is what `If-Match` of a change refers to."""
    return _view(await control.configuring.show(model, number), response)


@router.put(
    _PATH,
    summary="Change how a version is run",
    responses={
        202: {"model": ServingConfigurationView, "description": "it has begun"},
        409: {"model": schemas.ErrorBody, "description": "it was taken back, or another goes on"},
        412: {"model": schemas.ErrorBody, "description": "it has changed since it was read"},
    },
)
async def put_serving_configuration(
    model: str,
    number: int,
    body: FieldsBody,
    control: InControl,
    who: ByWhom,
    response: Response,
    dry_run: Annotated[bool, Query(description="only validate and lint it")] = False,
    watch: Annotated[
        float, Query(ge=0, le=86400, description="seconds to watch callers, and take it back")
    ] = 0.0,
    wait: Annotated[bool, Query(description="answer when it is over, not when it begins")] = True,
) -> ServingConfigurationView:
    """It is linted and tried, comes to one replica after the other, and is taken back where it
    turns out to be worse. It goes on when nobody waits for it."""
    if dry_run:
        found = await control.configuring.preview(model, number, body.fields, who)
        return _view(found, response, body)
    wish = Wish(body.fields, who, watch, body.tuned)
    await control.configuring.set(model, number, wish, wait=wait)
    response.status_code = 200 if wait else 202
    return _view(await control.configuring.show(model, number), response)


def _view(
    found: Shown, response: Response, body: FieldsBody | None = None
) -> ServingConfigurationView:
    """As it is; with a body as it would be."""
    one = found.served
    response.headers["etag"] = one.decided.etag
    config = one.effective if body is None else revised(one.base, body.fields)
    replicas = {
        name: ReplicaView(state=each.state, why=each.why) for name, each in found.replicas.items()
    }
    return ServingConfigurationView(
        model=one.model,
        version=one.version,
        name=one.name,
        shared_with=list(one.shared_with),
        base=canonical_text(one.base),
        config=canonical_text(config),
        fields=dict(one.decided.fields if body is None else body.fields),
        tuned=dict(one.decided.tuned if body is None else body.tuned),
        trouble=one.one.passed_over,
        etag=one.decided.etag,
        author=found.author,
        reason=found.reason,
        at=datetime.fromtimestamp(found.at, UTC) if found.at else None,
        findings=[_finding(each) for each in found.findings],
        replicas=replicas,
        change=None if found.change is None else _change(found.change, replicas),
    )


def _finding(one: Diagnosis) -> FindingView:
    return FindingView(
        rule=one.rule, severity=str(one.severity), field=one.field, why=one.why, fix=one.fix
    )


def _change(one: Reconfiguration, replicas: dict[str, ReplicaView]) -> ChangeView:
    until = one.watch_until
    return ChangeView(
        phase=one.phase,
        outcome=one.outcome or "",
        told=one.told,
        since=datetime.fromtimestamp(one.since, UTC),
        watch_until=None if until is None else datetime.fromtimestamp(until, UTC),
        fields=dict(one.wish.fields),
        replicas=replicas,
    )
