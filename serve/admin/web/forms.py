"""Forms with files, as browsers send them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import Request
from starlette.datastructures import FormData
from starlette.exceptions import HTTPException

from serve.admin.api.bounds import LARGEST_TRY
from serve.core.errors import Invalid

_LARGEST_TEXT = LARGEST_TRY  # bytes of a field: bodies are bounded before
_MOST = 1000  # fields, and as many files


@asynccontextmanager
async def form_of(request: Request) -> AsyncIterator[FormData]:
    """The fields and files of a form; `Invalid` for what is none."""
    try:
        form = await request.form(max_files=_MOST, max_fields=_MOST, max_part_size=_LARGEST_TEXT)
    except HTTPException as error:
        raise Invalid("the form cannot be read", why=str(error.detail)) from error
    try:
        yield form
    finally:
        await form.close()
