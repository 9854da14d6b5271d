"""The whole list of replicas, as whoever starts Tritons tells it: for those who know the secret."""

import asyncio
from collections.abc import Collection, Mapping
from typing import Any

import httpx2
from builders import replica
from listeners.sync_scene import SECRET, beside_app

from serve.core.replicas import Replica
from serve.listeners.admin.membership import membership_router

KNOWN = {"authorization": f"Bearer {SECRET}"}
A = "a=127.0.0.1:8000:8001:8002@default"


class Membership:
    """Remembers what it was told; replica `b` never loses its last call."""

    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []

    async def become(
        self,
        replicas: Collection[Replica],
        starting: Mapping[str, int],
        *,
        leaving: Collection[str],
        within: float,
    ) -> Mapping[str, float | None]:
        self.told.append((replicas, starting, leaving, within))
        return {"b": 1.0}


def put(body: Any, membership: Membership, headers: Any = KNOWN) -> httpx2.Response:
    app = beside_app(membership_router(membership))  # type: ignore[arg-type]

    async def send() -> httpx2.Response:
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as one:
            return await one.put("/internal/replicas", headers=headers, json=body)

    return asyncio.run(send())


def test_the_list_is_taken_as_a_whole_and_those_that_still_have_calls_are_told() -> None:
    membership = Membership()
    body = {
        "replicas": [A, "g=gpu-1:1:2:3@a100"],
        "starting": {"a100": 2},
        "leaving": ["b"],
        "within": 9,
    }
    answer = put(body, membership)
    assert (answer.status_code, answer.json()) == (200, {"leaving": {"b": 1.0}})
    members = [replica("a"), Replica("g", "gpu-1", 1, 2, 3, "a100")]
    assert membership.told == [(members, {"a100": 2}, ["b"], 9.0)]


def test_who_does_not_know_the_secret_finds_nothing() -> None:
    membership = Membership()
    answer = put({"replicas": [A]}, membership, headers={})
    assert (answer.status_code, membership.told) == (404, [])


def test_a_list_that_cannot_be_is_refused_whole() -> None:
    membership = Membership()
    for wrong in ([A, A], [A, "127.0.0.1:1:2:3"], [A, "b=127.0.0.1:1"], None):
        answer = put({"replicas": wrong}, membership)
        assert answer.headers["servegate-error"] == "invalid", wrong
    assert membership.told == []
