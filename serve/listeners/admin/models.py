"""Models and their labels over the admin API."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from serve.control.decisions import MODEL
from serve.control.models import Written
from serve.listeners.admin import schemas
from serve.listeners.admin.context import ByWhom, Control, InControl

router = APIRouter(tags=["models"], responses={404: {"model": schemas.ErrorBody}})

Wait = Annotated[
    float, Query(ge=0, le=60, description="seconds to wait until every worker serves the change")
]
Patience = Annotated[float, Query(ge=0, le=3600, description="seconds to wait until it is done")]


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
    written = await control.models.configure(
        model, objective=body.objective, pool=body.pool, by=who
    )
    return await done(control, written, wait, response)


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
    written = await control.models.set_label(model, label, body.version, who)
    return await done(control, written, wait, response)


@router.delete("/api/models/{model}/labels/{label}", summary="Remove a label")
async def delete_label(
    model: str,
    label: str,
    control: InControl,
    who: ByWhom,
    response: Response,
    wait: Wait = 5.0,
) -> schemas.Done:
    """Calls that name the label are refused from then on."""
    written = await control.models.remove_label(model, label, who)
    return await done(control, written, wait, response)


@router.post("/api/models/{model}/load", summary="Load a model on every replica")
async def load_model(
    model: str, control: InControl, who: ByWhom, response: Response, wait: Patience = 60.0
) -> schemas.Done:
    """Anew where it is loaded already; also what somebody has unloaded. Its folder says what."""
    await control.management.load(model, None, who, wait)
    return await _told(control, response)


@router.post("/api/models/{model}/unload", summary="Unload a model everywhere")
async def unload_model(
    model: str, control: InControl, who: ByWhom, response: Response, wait: Patience = 60.0
) -> schemas.Done:
    """It is not served any more, on no replica, until it is loaded."""
    control.models.get(model)
    await control.management.unload(model, who, wait)
    return await _told(control, response)


async def _told(control: Control, response: Response) -> schemas.Done:
    generation = control.publisher.snapshot.generation
    return await done(control, Written(generation, ""), 5.0, response)


async def done(control: Control, written: Written, wait: float, response: Response) -> schemas.Done:
    """The answer to every change: where it holds, and whether it does so everywhere yet."""
    if written.etag:
        response.headers["etag"] = written.etag
    in_force = await control.publisher.in_force(written.generation, wait)
    return schemas.Done(generation=written.generation, in_force=in_force)
