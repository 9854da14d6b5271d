"""Models and their labels over the admin API."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from serve.control.decisions import LABEL, MODEL, label_key
from serve.listeners.admin import schemas
from serve.listeners.admin.context import ByWhom, Control, InControl

router = APIRouter(tags=["models"], responses={404: {"model": schemas.ErrorBody}})

Wait = Annotated[
    float, Query(ge=0, le=60, description="seconds to wait until every worker serves the change")
]


@router.get("/api/models", summary="List all models")
async def list_models(control: InControl) -> list[schemas.ModelSummary]:
    """Every model with its versions, labels and split, those that cannot be served included."""
    return [schemas.ModelSummary(**schemas.summary(status)) for status in control.models.all()]


@router.get("/api/models/{model}", summary="Show one model")
async def show_model(model: str, control: InControl, response: Response) -> schemas.ModelDetail:
    """One model with its label texts, recorded preprocessing and model card."""
    status = control.models.get(model)
    response.headers["etag"] = control.models.decisions.entry(MODEL, model).etag
    return schemas.ModelDetail(**schemas.detail(status))


@router.patch("/api/models/{model}", summary="Set a model's objective or pool")
async def patch_model(
    model: str,
    body: schemas.ModelPatch,
    control: InControl,
    who: ByWhom,
    response: Response,
    wait: Wait = 5.0,
) -> schemas.Done:
    """What the body does not name stays as it is."""
    generation = await control.models.configure(
        model, objective=body.objective, pool=body.pool, by=who
    )
    response.headers["etag"] = control.models.decisions.entry(MODEL, model).etag
    return await done(control, generation, wait)


@router.put("/api/models/{model}/labels/{label}", summary="Make a label name a version")
async def put_label(
    model: str,
    label: str,
    body: schemas.LabelBody,
    control: InControl,
    who: ByWhom,
    response: Response,
    wait: Wait = 5.0,
) -> schemas.Done:
    """The version must be ready on a replica."""
    generation = await control.models.set_label(model, label, body.version, who)
    response.headers["etag"] = control.models.decisions.entry(LABEL, label_key(model, label)).etag
    return await done(control, generation, wait)


@router.delete("/api/models/{model}/labels/{label}", summary="Remove a label")
async def delete_label(
    model: str, label: str, control: InControl, who: ByWhom, wait: Wait = 5.0
) -> schemas.Done:
    """Calls that name the label are refused from then on."""
    generation = await control.models.remove_label(model, label, who)
    return await done(control, generation, wait)


async def done(control: Control, generation: int, wait: float) -> schemas.Done:
    """The answer to every change: where it holds, and whether it does so everywhere yet."""
    in_force = await control.publisher.in_force(generation, wait)
    return schemas.Done(generation=generation, in_force=in_force)
