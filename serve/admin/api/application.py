"""The admin application: FastAPI, its error shape, its guards, and the routers of each noun."""

import json
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.routing import BaseRoute

from serve import __version__
from serve.admin.api import (
    batching,
    benches,
    configurations,
    contracts,
    discovery,
    hints,
    history,
    keys,
    live,
    management,
    metadata,
    models,
    pools,
    replicas,
    routes,
    schemas,
    serving_configurations,
    skew,
    snapshot,
    tries,
    uploads,
    versions,
)
from serve.admin.api.bounds import Bounded
from serve.admin.api.context import AdminContext, caller, publishing
from serve.admin.api.features import FeatureWeb
from serve.admin.api.origin import SameOrigin
from serve.admin.api.standby import Standby
from serve.core.errors import (
    Invalid,
    MethodNotAllowed,
    NotHere,
    ServegateError,
    Unauthenticated,
    WrongOffset,
)
from serve.wire.status import http_status

_REFUSED: dict[int | str, dict[str, Any]] = {
    422: {"model": schemas.ErrorBody, "description": "The request is not valid."}
}
_GUARDED = [Depends(caller)]
_PUBLISHING = [*_GUARDED, Depends(publishing)]
Refusal = Callable[[Request, ServegateError], Response | None]


def _never(request: Request, error: ServegateError) -> None:
    """No pages, no errors on pages."""


def create(
    control: AdminContext,
    *,
    hosts: Sequence[str],
    beside: Sequence[APIRouter] = (),
    refusal: Refusal = _never,
) -> FastAPI:
    """The application; `hosts` are the Host names under which it may be addressed.

    `beside` are further routes, which look themselves at who asks: pages, and those for our own
    processes. `refusal` tells an error to a browser that asks for a page; None is for the API.
    """
    app = FastAPI(
        title="Servegate admin API",
        version=__version__,
        description="Models, labels, routes, replicas and everything else that a Servegate control "
        "plane manages.",
        redirect_slashes=False,
        openapi_url=None,  # ours is guarded
        docs_url=None,
        redoc_url=None,
    )
    app.state.control = control
    app.state.refusal = refusal
    app.add_middleware(Bounded)
    app.add_middleware(SameOrigin, explain=_explain)
    app.add_middleware(Standby, leads=control.leads, explain=_explain)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=list(hosts), www_redirect=False)
    app.add_exception_handler(ServegateError, _explain)
    app.add_exception_handler(RequestValidationError, _malformed)
    app.add_exception_handler(HTTPException, _nowhere)
    app.router.routes.extend(_gateway_api())
    app.router.routes.extend(_features_api(control.features))
    for router in (management.router, snapshot.internal, *beside):  # with the workers' secret
        app.router.routes.extend(router.routes)

    @app.get("/openapi.json", include_in_schema=False, dependencies=_GUARDED)
    async def document() -> Response:
        return JSONResponse(app.openapi())

    @app.get("/livez", include_in_schema=False)
    async def livez() -> Response:
        return JSONResponse({"gateway": control.identity()})  # a random id: it opens nothing

    @app.get("/metrics", include_in_schema=False)
    async def metrics() -> Response:
        return Response(control.metrics(), media_type="text/plain; version=0.0.4")

    return app


@cache
def _gateway_api() -> tuple[BaseRoute, ...]:
    """What needs a key. Made once in a process: FastAPI takes a millisecond for each route."""
    api = APIRouter()
    for module in (
        *(models, routes, replicas, discovery, keys, history, versions, configurations, snapshot),
        *(skew, live, tries, contracts, metadata),
        *(batching, serving_configurations, benches),
        *(pools, hints),
    ):
        api.include_router(module.router, dependencies=_GUARDED, responses=_REFUSED)
    api.include_router(uploads.router, dependencies=_PUBLISHING, responses=_REFUSED)
    return tuple(api.routes)


def _features_api(features: Sequence[FeatureWeb]) -> tuple[BaseRoute, ...]:
    """What the features of the workbench add to it."""
    api = APIRouter()
    for feature in features:
        for router in feature.api:
            api.include_router(router, dependencies=_GUARDED, responses=_REFUSED)
        for router in feature.publishing:
            api.include_router(router, dependencies=_PUBLISHING, responses=_REFUSED)
    return tuple(api.routes)


async def _explain(request: Request, error: Exception) -> Response:
    assert isinstance(error, ServegateError)
    if (told := request.app.state.refusal(request, error)) is not None:
        answer: Response = told
        return answer
    body = {
        "error": str(error),
        "code": error.code,
        "what": error.what,
        "why": error.why,
        "try_this": error.try_this,
    }
    headers = {"servegate-error": error.code}
    if isinstance(error, Unauthenticated):
        headers["www-authenticate"] = 'Bearer realm="servegate"'
    if isinstance(error, WrongOffset):
        headers["upload-offset"] = str(error.offset)
    text = json.dumps(body)  # ASCII: what callers send comes back even when it is no valid text
    return Response(text, http_status(error), headers, media_type="application/json")


async def _nowhere(request: Request, error: Exception) -> Response:
    """The framework's own refusals, in the same shape as ours; what it wraps of ours, as it was."""
    assert isinstance(error, HTTPException)
    if isinstance(error.__cause__, ServegateError):
        return await _explain(request, error.__cause__)
    kind = MethodNotAllowed if error.status_code == 405 else NotHere
    return await _explain(request, kind(str(error.detail), try_this="see GET /openapi.json"))


def _is_unread(request: Request, error: RequestValidationError) -> bool:
    """Whether a body came that nobody took for JSON, because of its content type."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    is_json = kind == "application/json" or kind.endswith("+json")
    of_whole = any(fault["loc"] == ("body",) for fault in error.errors())
    return of_whole and not is_json and isinstance(error.body, str | bytes) and bool(error.body)


async def _malformed(request: Request, error: Exception) -> Response:
    """FastAPI's list of validation errors as one sentence, in the shape of every other error."""
    assert isinstance(error, RequestValidationError)
    if _is_unread(request, error):
        return await _explain(
            request,
            Invalid(
                "the body is not JSON",
                why=f"the content type is {request.headers.get('content-type') or 'missing'}",
                try_this="send the header content-type: application/json",
            ),
        )
    faults = "; ".join(
        f"{'.'.join(str(part) for part in fault['loc'])}: {fault['msg']}"
        for fault in error.errors()
    )
    return await _explain(
        request, Invalid("the request is not valid", why=faults, try_this="GET /openapi.json")
    )
