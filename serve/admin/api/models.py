"""Models and their labels over the admin API."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from serve.admin.api import schemas
from serve.admin.api.context import AdminContext, ByWhom, InControl
from serve.control.decisions import MODEL
from serve.control.models import Written

router = APIRouter(tags=["models"], responses={404: {"model": schemas.ErrorBody}})

Wait = Annotated[
    float, Query(ge=0, le=60, description="Seconds to wait until every worker uses the change.")
]
Patience = Annotated[float, Query(ge=0, le=3600, description="Seconds to wait until it is done.")]


@router.get("/api/models", summary="List all models")
async def list_models(control: InControl) -> list[schemas.ModelSummary]:
    """Returns all models with their versions, labels and traffic splits, including models that are
    not served.
    """
    return [schemas.ModelSummary(**schemas.summary(status)) for status in control.models.all()]


@router.get("/api/models/{model}", summary="Show one model")
async def show_model(model: str, control: InControl, response: Response) -> schemas.ModelDetail:
    """Returns one model with its label texts, recorded preprocessing and model card."""
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
    """Fields that the body does not contain stay unchanged."""
    written = await control.models.configure(
        model, objective=body.objective, pool=body.pool, by=who
    )
    return await done(control, written, wait, response)


@router.put("/api/models/{model}/labels/{label}", summary="Point a label to a version")
async def put_label(
    model: str,
    label: str,
    body: schemas.LabelBody,
    control: InControl,
    who: ByWhom,
    response: Response,
    wait: Wait = 5.0,
) -> schemas.Done:
    """The version has to be ready on a replica."""
    written = await control.models.set_label(model, label, body.version, who)
    return await done(control, written, wait, response)


@router.delete("/api/models/{model}/labels/{label}", summary="Delete a label")
async def delete_label(
    model: str,
    label: str,
    control: InControl,
    who: ByWhom,
    response: Response,
    wait: Wait = 5.0,
) -> schemas.Done:
    """Calls that name the label are refused afterwards."""
    written = await control.models.remove_label(model, label, who)
    return await done(control, written, wait, response)


@router.post("/api/models/{model}/load", summary="Load a model on all replicas")
async def load_model(
    model: str, control: InControl, who: ByWhom, response: Response, wait: Patience = 60.0
) -> schemas.Done:
    """Reloads it if it is loaded, and loads a model that was unloaded. Triton reads the
    model's folder again.
    """
    await control.management.load(model, None, who, wait)
    return await _told(control, response)


@router.post("/api/models/{model}/unload", summary="Unload a model from all replicas")
async def unload_model(
    model: str, control: InControl, who: ByWhom, response: Response, wait: Patience = 60.0
) -> schemas.Done:
    """No replica serves the model until it is loaded again."""
    control.models.get(model)
    await control.management.unload(model, who, wait)
    return await _told(control, response)


async def _told(control: AdminContext, response: Response) -> schemas.Done:
    generation = control.publisher.snapshot.generation
    return await done(control, Written(generation, ""), 5.0, response)


async def done(
    control: AdminContext, written: Written, wait: float, response: Response
) -> schemas.Done:
    """The answer to every change: where it holds, and whether it does so everywhere yet."""
    if written.etag:
        response.headers["etag"] = written.etag
    in_force = await control.publisher.in_force(written.generation, wait)
    return schemas.Done(generation=written.generation, in_force=in_force)
