"""Workers give calls to which a mirror's candidate responds differently; they become runs.

It wants the workers' shared secret, and is no part of the API for people.
"""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request

from serve.admin.api.context import InControl, worker_only
from serve.core.errors import BodyTooLarge
from serve.tensors.mirrored import MOST_INPUTS

router = APIRouter(include_in_schema=False, dependencies=[Depends(worker_only)])


@router.post("/internal/disagreements", status_code=204)
async def keep_disagreement(
    request: Request,
    control: InControl,
    model: Annotated[str, Query(max_length=300)],
    a: Annotated[int, Query(gt=0)],
    b: Annotated[int, Query(gt=0)],
) -> None:
    """The body is an NPZ file with the inputs; `a` served the caller, and `b` is the candidate."""
    data = bytearray()
    async for piece in request.stream():
        data += piece
        if len(data) > MOST_INPUTS:
            raise BodyTooLarge(MOST_INPUTS)
    await control.tries.keep_disagreement(model, a, b, bytes(data))
