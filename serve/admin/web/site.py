"""The site: the routers of all pages, and how errors look there."""

from collections.abc import Sequence
from urllib.parse import quote

from fastapi import APIRouter, Request, Response
from starlette.types import Scope

from serve.admin.api.context import by, caller, control_of
from serve.admin.api.features import FeatureWeb
from serve.admin.web import (
    batching,
    live,
    login,
    models,
    reference,
    runs,
    static_files,
    traffic,
    try_page,
    uploads,
    versions,
)
from serve.admin.web.page_templates import HEADERS, Visit, add_templates, go, page
from serve.core.errors import NotHere, ServegateError, Unauthenticated
from serve.wire.status import http_status

_NOT_PAGES = ("/api/", "/internal/", "/static/", "/openapi.json", "/livez", "/readyz", "/metrics")


def routers(features: Sequence[FeatureWeb] = ()) -> tuple[APIRouter, ...]:
    """Of every page."""
    static_files.files()
    add_templates(one.templates for one in features if one.templates)
    return (
        *(login.router, models.router, versions.router, batching.router, traffic.router),
        *(uploads.router, reference.router, try_page.router, runs.router),
        *(live.router, static_files.router),
        *(router for feature in features for router in feature.pages),
    )


def is_page(scope: Scope) -> bool:
    """Whether a person asks, with a browser, for a page or a part of one."""
    return not scope["path"].startswith(_NOT_PAGES) and any(
        (name == b"accept" and b"text/html" in value) or name == b"hx-request"
        for name, value in scope["headers"]
    )


def refusal(request: Request, error: ServegateError) -> Response | None:
    """An error as a page, or as the part of one that tells problems; None is for programs."""
    if not is_page(request.scope):
        return None
    is_fragment = request.headers.get("hx-request") == "true"
    if isinstance(error, Unauthenticated) and request.method == "GET":
        path = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        login_page = f"/login?next={quote(path, safe='')}"
        if not is_fragment:
            return go(login_page)
        return Response(status_code=401, headers={**HEADERS, "hx-redirect": "/login"})
    if isinstance(error, NotHere) and not is_fragment:
        error = NotHere("this page does not exist")
    template = "problem.html" if is_fragment else "error.html"
    return page(_visit_of(request), template, status=http_status(error), error=error)


def _visit_of(request: Request) -> Visit | None:
    """Who sees an error; None for one who is not logged in, and must not see the menu."""
    try:
        key = caller(request, request.headers.get("authorization", ""))
    except ServegateError:
        return None
    return Visit(request, control_of(request), by(key), key)
