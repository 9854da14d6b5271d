"""The replicas there are, as told by whoever starts and stops Tritons beside the control plane.

It wants the workers' shared secret, and is no part of the API for people.
"""

from typing import Annotated

from fastapi import APIRouter, Depends
from pydantic import BaseModel, ConfigDict, Field

from serve.admin.api.context import worker_only
from serve.control.membership import Membership
from serve.core.errors import Invalid
from serve.core.replicas import Replica

Pool = Annotated[str, Field(min_length=1, max_length=300)]


class MemberList(BaseModel):
    """The whole list, as it shall be; and how many more start now, by pool.

    `leaving`: names of those that were on it and are waited for, `within` so many seconds.
    """

    model_config = ConfigDict(extra="forbid")

    replicas: Annotated[list[Annotated[str, Field(max_length=1000)]], Field(max_length=10_000)]
    starting: dict[Pool, Annotated[int, Field(ge=0, le=10_000)]] = {}
    leaving: Annotated[list[Annotated[str, Field(max_length=300)]], Field(max_length=10_000)] = []
    within: Annotated[float, Field(ge=0, le=60)] = 5.0


class Leaving(BaseModel):
    """Those that still have calls, and how many; null where that is not known."""

    leaving: dict[str, float | None]


def membership_router(membership: Membership) -> APIRouter:
    """The route of one control plane."""
    router = APIRouter(include_in_schema=False, dependencies=[Depends(worker_only)])

    @router.put("/internal/replicas")
    async def set_replicas(members: MemberList) -> Leaving:
        """Answers when those not on the list get no calls any more, and none is left there.

        One that the answer names is not done yet: ask again before it is stopped.
        """
        replicas = [Replica.named(text) for text in members.replicas]
        if len({one.name for one in replicas}) < len(replicas):
            raise Invalid("two replicas have the same name", why=", ".join(members.replicas))
        left = await membership.become(
            replicas, members.starting, leaving=members.leaving, within=members.within
        )
        return Leaving(leaving=dict(left))

    return router
