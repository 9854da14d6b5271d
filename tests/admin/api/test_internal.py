"""What our own processes tell the control plane: who is there, and who waits for a pool."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import httpx2
import pytest
from admin.api.admin_scene import SECRET, beside_app, send
from builders import replica
from fastapi import FastAPI

from serve.admin.api.membership import membership_router
from serve.admin.api.waiting_models import waking_router
from serve.core.replicas import Replica

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
    return send(app, "PUT", "/internal/replicas", body=body, **headers)


def test_the_list_is_taken_as_a_whole_and_those_that_still_have_calls_are_told() -> None:
    membership = Membership()
    body: dict[str, Any] = {"replicas": [A, "g=gpu-1:1:2:3@a100"], "starting": {"a100": 2}}
    body |= {"leaving": ["b"], "within": 9}
    answer = put(body, membership)
    assert (answer.status_code, answer.json()) == (200, {"leaving": {"b": 1.0}})
    members = [replica("a"), Replica("g", "gpu-1", 1, 2, 3, "a100")]
    assert membership.told == [(members, {"a100": 2}, ["b"], 9.0)]


def test_a_list_that_cannot_be_is_refused_whole_and_none_is_taken_without_the_secret() -> None:
    membership = Membership()
    assert put({"replicas": [A]}, membership, headers={}).status_code == 404
    for wrong in ([A, A], [A, "127.0.0.1:1:2:3"], [A, "b=127.0.0.1:1"], None):
        answer = put({"replicas": wrong}, membership)
        assert answer.headers["servegate-error"] == "invalid", wrong
    assert membership.told == []


# --- who waits ------------------------------------------------------------------------------------


@pytest.fixture
def woken() -> list[list[str]]:
    return []


@pytest.fixture
def app(woken: list[list[str]]) -> FastAPI:
    def wake(models: Iterable[str]) -> None:
        woken.append(sorted(models))

    return beside_app(waking_router(wake))


def tell(app: FastAPI, body: object, **headers: str) -> httpx2.Response:
    return send(app, "POST", "/internal/waking", body=body, **headers)


def test_the_models_that_are_waited_for_are_passed_on(app, woken) -> None:
    answer = tell(app, {"models": ["m", "n", "m"]}, **KNOWN)
    assert (answer.status_code, answer.content) == (204, b"")
    assert woken == [["m", "n"]]


def test_only_who_knows_the_shared_secret_may_tell(app, woken) -> None:
    for headers in ({}, {"authorization": "Bearer other"}):
        assert tell(app, {"models": ["m"]}, **headers).status_code == 404
    assert woken == []


def test_what_names_no_models_is_refused(app, woken) -> None:
    for names in ([], "m", [""], None):
        assert tell(app, {"models": names}, **KNOWN).status_code == 422
    for body in ({}, {"models": ["m"], "more": 1}, []):
        assert tell(app, body, **KNOWN).status_code == 422
    assert woken == []
