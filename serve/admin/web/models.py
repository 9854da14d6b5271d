"""Models: the fleet and everything it serves, and one model with all that is known of it.

What was done with a model lately: tries, and what the features of the workbench did.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Form, Response

from serve.admin.api import models as api
from serve.admin.api import schemas
from serve.admin.api.configurations import ConfigurationView, show_configuration
from serve.admin.api.context import AdminContext
from serve.admin.api.replicas import list_replicas
from serve.admin.api.tries import list_tries
from serve.admin.web.form_fields import IfMatch, Reason, as_asked
from serve.admin.web.page_templates import Visiting, go, page, segment
from serve.admin.web.preprocessing_text import in_words
from serve.admin.web.shares import shares
from serve.control.tries.records import TryLine
from serve.core.errors import PreconditionFailed

# --- what was done with a model lately ------------------------------------------------------------


_MOST = 5


@dataclass(frozen=True, slots=True)
class Recent:
    """The newest first."""

    tries: Sequence[TryLine] = ()
    others: Sequence[tuple[str, Sequence[Any]]] = ()  # template and lines of each feature


async def recent(control: AdminContext, model: str) -> Recent:
    """Of one model."""
    others = [
        (each.template, (await each.of(model))[:_MOST])
        for feature in control.features
        for each in feature.recent
    ]
    return Recent(await list_tries(control, model, _MOST), others)


# --- models ---------------------------------------------------------------------------------------


router = APIRouter(include_in_schema=False)
_SECONDS = 5.0  # that a page waits until every worker serves a change


@dataclass(frozen=True, slots=True)
class FleetSummary:
    """How the fleet is. `late` workers serve an older generation than the newest."""

    replicas: Sequence[schemas.ReplicaView]
    workers: int
    late: int
    generation: int

    @property
    def up(self) -> int:
        """Replicas that answer."""
        return sum(one.state == "up" for one in self.replicas)

    @property
    def is_well(self) -> bool:
        """Whether there is nothing to worry about."""
        return 0 < len(self.replicas) == self.up and self.workers > 0 and not self.late


@router.get("/")
async def show_all(visit: Visiting) -> Response:
    """The fleet's health, every model, and what can be done next."""
    found = await api.list_models(visit.control)
    return page(
        visit,
        "models.html",
        fleet=await _fleet(visit.control),
        models=[(one, shares(one.split)) for one in found],
        publishes=visit.control.publishes,
    )


@router.get("/models/{model}")
async def show_one(model: str, visit: Visiting, changed: str = "") -> Response:
    """One model: versions, traffic, what it takes and gives, and what was measured of it."""
    answer = Response()
    told = await api.show_model(model, visit.control, answer)
    return page(
        visit,
        "model.html",
        model=told,
        etag=answer.headers["etag"],
        changed=bool(changed),
        shares=shares(told.split),
        share_of={one.version: one.length for one in shares(told.split)},
        configuration=await _configuration(visit.control, told),
        steps=in_words(told.preprocessing),
        pools=visit.control.pools.names(),
        recent=await recent(visit.control, model),
    )


@router.post("/models/{model}/settings")
async def change_settings(
    model: str,
    visit: Visiting,
    objective: Annotated[str, Form(max_length=100)] = "",
    pool: Annotated[str, Form(max_length=200)] = "",
    reason: Reason = "",
    if_match: IfMatch = "",
) -> Response:
    """Objective and pool; what is not as it was shown is told instead of overwritten."""
    path = f"/models/{segment(model)}"
    body = schemas.ModelPatch(objective=objective, pool=pool)
    who = as_asked(visit, reason, if_match)
    try:
        await api.patch_model(model, body, visit.control, who, Response(), _SECONDS)
    except PreconditionFailed:
        return go(f"{path}?changed=1", visit)
    return go(path, visit)


async def _fleet(control: AdminContext) -> FleetSummary:
    publisher = control.publisher
    generation = publisher.snapshot.generation
    workers = publisher.workers
    return FleetSummary(
        await list_replicas(control, readings=False),
        len(workers),
        sum(one.generation < generation for one in workers),
        generation,
    )


async def _configuration(
    control: AdminContext, model: schemas.ModelDetail
) -> ConfigurationView | None:
    """Of the version that gets most calls, else of the newest; None where there is no version."""
    by_share = sorted(shares(model.split), key=lambda one: one.length)
    numbers = [one.version for one in model.versions] + [one.version for one in by_share]
    return await show_configuration(model.name, numbers[-1], control) if numbers else None
