"""The pages over a control plane in memory: the admin scene, with the site beside it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from admin.api.admin_scene import application, plane, play
from fastapi import FastAPI

from serve.admin.web import site

PERSON = {"accept": "text/html,application/xhtml+xml"}
HTMX = {"accept": "*/*", "hx-request": "true"}


def site_over(folder: Path, *, needs_key: Callable[[bool], bool] = lambda guarded: guarded) -> Any:
    """The application with its pages, over model `m` of `admin_scene.plane`."""
    return with_pages(application(plane(folder), needs_key=needs_key))


def with_pages(app: FastAPI) -> FastAPI:
    """An admin application, and the pages."""
    for router in site.routers(app.state.control.features):
        app.include_router(router)
    app.state.refusal = site.refusal
    return app


def got(app: FastAPI, path: str, method: str = "GET", **more: Any) -> Any:
    """One request of a browser, and its answer; nothing is followed."""
    headers = PERSON | more.pop("headers", {})
    return play(app, lambda client: client.request(method, path, headers=headers, **more))
