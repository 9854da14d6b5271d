"""The files that pages load: our own, and what comes from npm, each under a name with its digest.

    /static/<sha256, 12 digits>/style.css

So a file may be kept for ever by a browser, and a new one is asked for by its new name.
"""

import hashlib
from functools import cache
from pathlib import Path

from fastapi import APIRouter, Request, Response

from serve.core.errors import CannotStart, NotHere

FOLDER = Path(__file__).parent / "static"
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_FOR_EVER = "public, max-age=31536000, immutable"

router = APIRouter(include_in_schema=False)


@cache
def files() -> dict[str, bytes]:
    """Every file by its path below the folder."""
    found = {
        path.relative_to(FOLDER).as_posix(): path.read_bytes()
        for path in sorted(FOLDER.rglob("*"))
        if path.suffix in _TYPES
    }
    if "vendor/htmx.js" not in found:
        raise CannotStart(
            "the web UI's files from npm are missing",
            why=f"{FOLDER / 'vendor'} is created when the package is built",
            try_this="make deps, or python scripts/web/vendor.py",
        )
    return found


@cache
def digest(name: str) -> str:
    """What stands for the file's content in its URL."""
    return hashlib.sha256(files()[name]).hexdigest()[:12]


def url(name: str) -> str:
    """Where a page finds a file; `KeyError` for one that is not there."""
    return f"/static/{digest(name)}/{name}"


@router.get("/static/{version}/{name:path}")
async def fetch(version: str, name: str, request: Request) -> Response:
    """A file, for ever where the URL names its content."""
    body = files().get(name)
    if body is None:
        raise NotHere(f"there is no file '{name[:200]}'")
    headers = {
        "cache-control": _FOR_EVER if version == digest(name) else "no-cache",
        "x-content-type-options": "nosniff",
    }
    return Response(body, headers=headers, media_type=_TYPES[Path(name).suffix])
