"""How versions are run, over the admin API: shown, changed, and how far a change is."""

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from serve.admin.api import schemas
from serve.admin.api.context import ByWhom, InControl
from serve.control.batching.configurations import ShownConfiguration
from serve.control.batching.reconfiguration import (
    ChangeOutcome,
    ChangeRequest,
    Phase,
    Reconfiguration,
)
from serve.triton.canonical import canonical_text
from serve.triton.config_revisions import revised
from serve.triton.lint import Diagnosis

_PATH = "/api/models/{model}/versions/{number}/serving-configuration"

router = APIRouter(tags=["versions"], responses={404: {"model": schemas.ErrorBody}})


class FieldsBody(BaseModel):
    """The fields that replace those of config.pbtxt. null removes a field, and an empty object
    restores the published configuration. `tuned` contains the measurements of a tuning, if any.
    """

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
    """A lint finding for one field."""

    rule: str
    severity: str
    field: str
    why: str
    fix: str


class ReplicaProgressView(BaseModel):
    """The progress of a replica with the configuration, and the reason if it is stuck."""

    state: Literal["applied", "waiting", "loading", "failed"]
    why: str


class ChangeView(BaseModel):
    """The newest change since the control plane started: its state and since when, or its
    `outcome`, which is empty before the end. `told` is the reason or the result.
    """

    phase: Phase
    outcome: ChangeOutcome | Literal[""]
    told: str
    since: datetime
    watch_until: datetime | None
    fields: dict[str, Any]
    replicas: dict[str, ReplicaProgressView]


class ServingConfigurationView(BaseModel):
    """The configuration of a version. `base` is the published one and `config` the one in force, as
    texts of config.pbtxt. `fields` are the changed fields. `name` is its name in Triton, where it
    shares the configuration with the versions in `shared_with`. `trouble` is the reason if `fields`
    are ignored. `author` and `at` are of the last change, empty and null without one.
    """

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
    replicas: dict[str, ReplicaProgressView]
    change: ChangeView | None


@router.get(_PATH, summary="Show the serving configuration of a version")
async def show_serving_configuration(
    model: str, number: int, control: InControl, response: Response
) -> ServingConfigurationView:
    """Use its ETag in `If-Match` of a change."""
    return _view(await control.configuring.show(model, number), response)


@router.put(
    _PATH,
    summary="Change the serving configuration of a version",
    responses={
        202: {"model": ServingConfigurationView, "description": "The change was started."},
        409: {
            "model": schemas.ErrorBody,
            "description": "The change was rolled back, or another one is running.",
        },
        412: {
            "model": schemas.ErrorBody,
            "description": "The configuration was changed since it was read.",
        },
    },
)
async def put_serving_configuration(
    model: str,
    number: int,
    body: FieldsBody,
    control: InControl,
    who: ByWhom,
    response: Response,
    dry_run: Annotated[bool, Query(description="Only validate and lint it.")] = False,
    watch: Annotated[
        float,
        Query(
            ge=0,
            le=86400,
            description="Seconds to observe calls before the change is kept; it is rolled back "
            "if they get worse.",
        ),
    ] = 0.0,
    wait: Annotated[
        bool, Query(description="Respond at the end of the change, not at its start.")
    ] = True,
) -> ServingConfigurationView:
    """The change is linted, tried on a temporary Triton, and loaded on one replica after the other.
    It is rolled back if the results are worse. It continues if the client disconnects.
    """
    if dry_run:
        found = await control.configuring.preview(model, number, body.fields, who)
        return _view(found, response, body)
    wish = ChangeRequest(body.fields, who, watch, body.tuned)
    await control.configuring.set(model, number, wish, wait=wait)
    response.status_code = 200 if wait else 202
    return _view(await control.configuring.show(model, number), response)


def _view(
    found: ShownConfiguration, response: Response, body: FieldsBody | None = None
) -> ServingConfigurationView:
    """As it is; with a body as it would be."""
    one = found.served
    response.headers["etag"] = one.decided.etag
    config = one.effective if body is None else revised(one.base, body.fields)
    replicas = {
        name: ReplicaProgressView(state=each.state, why=each.why)
        for name, each in found.replicas.items()
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


def _change(one: Reconfiguration, replicas: dict[str, ReplicaProgressView]) -> ChangeView:
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
