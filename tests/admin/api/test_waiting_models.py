"""Workers tell the control plane who waits for a pool that has been scaled to zero."""

from collections.abc import Iterable

import httpx2
import pytest
from admin.api.admin_scene import SECRET, beside_app, send
from fastapi import FastAPI

from serve.admin.api.waiting_models import waking_router

WORKER = {"authorization": f"Bearer {SECRET}"}


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
    answer = tell(app, {"models": ["m", "n", "m"]}, **WORKER)
    assert (answer.status_code, answer.content) == (204, b"")
    assert woken == [["m", "n"]]


def test_only_who_knows_the_shared_secret_may_tell(app, woken) -> None:
    for headers in ({}, {"authorization": "Bearer other"}):
        assert tell(app, {"models": ["m"]}, **headers).status_code == 404
    assert woken == []


def test_what_names_no_models_is_refused(app, woken) -> None:
    for names in ([], "m", [""], None):
        assert tell(app, {"models": names}, **WORKER).status_code == 422
    for body in ({}, {"models": ["m"], "more": 1}, []):
        assert tell(app, body, **WORKER).status_code == 422
    assert woken == []
