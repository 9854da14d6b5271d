"""API keys over the admin API. The key itself is in one answer: the one that makes it."""

from fastapi import APIRouter, Response

from serve.admin.api import schemas
from serve.admin.api.context import ByWhom, InControl
from serve.admin.api.models import Wait, done
from serve.core.errors import Invalid

router = APIRouter(tags=["keys"])


@router.get("/api/keys", summary="List all API keys")
async def list_keys(control: InControl) -> list[schemas.KeyView]:
    """Returns all keys, including revoked ones. The keys themselves cannot be shown again."""
    return [schemas.KeyView(**schemas.key(status)) for status in control.keys.all()]


@router.post("/api/keys", status_code=201, summary="Create an API key")
async def create_key(
    body: schemas.KeyBody,
    control: InControl,
    who: ByWhom,
    response: Response,
    wait: Wait = 5.0,
) -> schemas.KeyMade:
    """The response contains the key once. As soon as one key exists, calls without a key are
    refused.
    """
    made = await control.keys.create(
        body.role, body.models, expiry(body, control.wall()), body.note, who
    )
    response.headers["cache-control"] = "no-store"
    where = await done(control, made.written, wait, response)
    return schemas.KeyMade(id=made.key.id, key=made.words, **where.model_dump())


@router.delete(
    "/api/keys/{id}", summary="Revoke an API key", responses={404: {"model": schemas.ErrorBody}}
)
async def revoke_key(
    id: str, control: InControl, who: ByWhom, response: Response, wait: Wait = 5.0
) -> schemas.Done:
    """When the generation is in force, every worker refuses the key."""
    return await done(control, await control.keys.revoke(id, who), wait, response)


def expiry(body: schemas.KeyBody, now: float) -> float | None:
    """When the key ends, in seconds of the epoch; None for never."""
    if body.expires is not None and body.expires_in is not None:
        raise Invalid("the key has two expiry times", why="'expires' and 'expires_in' are both set")
    if body.expires_in is not None:
        return now + body.expires_in
    return None if body.expires is None else body.expires.timestamp()
