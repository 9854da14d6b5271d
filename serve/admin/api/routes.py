"""Routes over the admin API."""

from fastapi import APIRouter, Response

from serve.admin.api import schemas
from serve.admin.api.context import ByWhom, InControl
from serve.admin.api.models import Wait, done
from serve.control.decisions import ROUTE
from serve.control.live.mirror_counts import MirrorCounts, read_mirror_counts
from serve.control.statuses import ModelStatus
from serve.core.errors import NoMirror
from serve.core.routes import Route, RouteRules

router = APIRouter(tags=["routes"], responses={404: {"model": schemas.ErrorBody}})


@router.get("/api/routes", summary="List all routes")
async def list_routes(control: InControl) -> list[schemas.RouteEntry]:
    """Returns the route of every model for which one is set."""
    decisions = control.models.decisions
    return [
        schemas.RouteEntry(
            **_view(one).model_dump(), etag=decisions.entry(ROUTE, one.model.name).etag
        )
        for one in control.models.all()
        if one.route is not None
    ]


@router.put(
    "/api/routes",
    summary="Set the routes of several models",
    responses={
        409: {"model": schemas.ErrorBody, "description": "A version is not ready."},
        412: {"model": schemas.ErrorBody, "description": "A route was changed since it was read."},
    },
)
async def put_routes(
    body: schemas.RoutesBody,
    control: InControl,
    who: ByWhom,
    response: Response,
    wait: Wait = 5.0,
    dry_run: bool = False,
) -> schemas.Done:
    """Sets all of them as one change, or none. Other models keep their routes."""
    routes = {name: _route(one) for name, one in body.routes.items()}
    etags = {name: one.etag for name, one in body.routes.items()}
    written = await control.models.set_routes(routes, who, etags=etags, dry_run=dry_run)
    return await done(control, written, wait, response)


@router.get("/api/routes/{model}", summary="Show a model's route")
async def show_route(model: str, control: InControl, response: Response) -> schemas.RouteView:
    """Returns the route in force. Use its ETag in `If-Match` of a change."""
    status = control.models.get(model)
    response.headers["etag"] = control.models.decisions.entry(ROUTE, model).etag
    return _view(status)


@router.put(
    "/api/routes/{model}",
    summary="Set a model's traffic split",
    responses={
        409: {"model": schemas.ErrorBody, "description": "A version is not ready."},
        412: {
            "model": schemas.ErrorBody,
            "description": "The route was changed since it was read.",
        },
    },
)
async def put_route(
    model: str,
    body: schemas.RouteBody,
    control: InControl,
    who: ByWhom,
    response: Response,
    wait: Wait = 5.0,
) -> schemas.Done:
    """Every version with traffic has to be ready. The weights are relative."""
    route = _route(body)
    given = body.model_dump(exclude_none=True, exclude_unset=True)
    rules = RouteRules(**{name: rule for name, rule in route.rules.items() if name in given})  # type: ignore[typeddict-item]
    written = await control.models.set_route(model, route.split, who, **rules)
    return await done(control, written, wait, response)


@router.get(
    "/api/routes/{model}/mirror",
    summary="Show what came of mirrored calls",
    responses={
        503: {"model": schemas.ErrorBody, "description": "The data plane does not respond."}
    },
)
async def show_mirror(model: str, control: InControl) -> MirrorCounts:
    """Returns counts since the data plane started: copies, their mean time, and by output how many
    rows agree and differ. A route without a mirror has none (404).
    """
    route = control.models.get(model).route
    if route is None or route.mirror is None:
        raise NoMirror(model)
    return read_mirror_counts(await control.data_metrics(), model, route.mirror.version)


def _route(body: schemas.RouteBody) -> Route:
    return Route.from_json(body.model_dump(exclude_none=True, exclude_unset=True))


def _view(status: ModelStatus) -> schemas.RouteView:
    name, route = status.model.name, status.route
    if route is None:
        split = dict(status.split.shares) if status.split else {}
        return schemas.RouteView(model=name, split=split, routed=False)
    return schemas.RouteView(model=name, routed=True, **route.to_json())
