"""Logging in with an admin key, and out again."""

import re
from typing import Annotated

from fastapi import APIRouter, Form, Request, Response

from serve.admin.api.context import InControl, shown
from serve.admin.api.sessions import COOKIE, LASTS, session_of
from serve.admin.web.page_templates import HEADERS, go, page
from serve.core.errors import Forbidden, Unauthenticated

router = APIRouter(include_in_schema=False)
_LOCAL = re.compile(r"/(?![/\\])[^\x00-\x20\\]{0,2000}\Z")  # a path of ours, and no other site
_LONGEST = 300


@router.get("/login")
async def show(request: Request, control: InControl, next: str = "/") -> Response:
    """The form; straight on where no key is needed."""
    if not control.needs_key(control.models.decisions.guarded):
        return go(_path(next))
    return _form(request, next)


@router.post("/login")
async def log_in(
    request: Request,
    control: InControl,
    key: Annotated[str, Form(max_length=_LONGEST)] = "",
    next: Annotated[str, Form(max_length=4000)] = "/",
) -> Response:
    """A session for who shows an admin key or the shared secret."""
    try:
        found = shown(control, f"Bearer {key.strip()}".encode("ascii", "replace").decode())
    except (Unauthenticated, Forbidden):
        problem = "This key is not valid, or it is not an admin key."
        return _form(request, next, status=401, problem=problem)
    answer = go(_path(next))
    answer.set_cookie(
        COOKIE,
        session_of(found, secret=control.secret, now=control.wall()),
        max_age=LASTS,
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return answer


@router.post("/logout")
async def log_out() -> Response:
    """The session's cookie is gone."""
    answer = Response(status_code=303, headers={**HEADERS, "location": "/login"})
    answer.delete_cookie(COOKIE, httponly=True, samesite="strict")
    return answer


def _path(wanted: str) -> str:
    """The page to go on to; the start for everything that is not a path of ours."""
    return wanted if _LOCAL.match(wanted) else "/"


def _form(request: Request, wanted: str, *, status: int = 200, problem: str = "") -> Response:
    return page(
        None,
        "login.html",
        status=status,
        next=_path(wanted),
        problem=problem,
        admin_url=str(request.base_url).rstrip("/"),
    )
