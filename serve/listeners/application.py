"""The application behind the data port: whatever is no predict call comes here.

A FastAPI application, so that further protocols over HTTP are routers beside Triton's own. Triton's
paths are matched by their raw bytes, which no router does: they are mounted as a whole.
"""

import logging

from fastapi import APIRouter, FastAPI, Request, Response
from starlette.types import ASGIApp

from serve.core.errors import ServegateError
from serve.wire.status import http_error

_log = logging.getLogger("servegate.application")


def application(kserve_v2: ASGIApp, *routers: APIRouter) -> FastAPI:
    """FastAPI with KServe v2 below the other protocols' routers.

    An error of ours that nobody expected has our shape, too.
    """
    app = FastAPI(
        title="Servegate data plane",
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )

    @app.exception_handler(Exception)
    async def unexpected(request: Request, error: Exception) -> Response:
        _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
        reply = http_error(ServegateError("the gateway failed", why="see its log"))
        headers = {name.decode(): value.decode() for name, value in reply.headers}
        return Response(reply.body, reply.status, headers)

    for router in routers:
        app.include_router(router)
    app.mount("", kserve_v2)
    return app
