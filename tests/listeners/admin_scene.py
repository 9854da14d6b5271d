"""The admin API over a control plane in memory, for the tests of what it answers."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import httpx2
from builders import ControlPlane, replica, write_model
from fastapi import FastAPI
from trying_desk import Desk

from serve.control.artifacts.folder import FolderObjects
from serve.control.discovering import Discovering
from serve.control.evaluating.datasets import Datasets
from serve.control.evaluating.evaluations import Evaluations
from serve.control.load_reports import LoadReports
from serve.control.management import Management
from serve.control.reconciling.keepers import Keepers
from serve.core.replicas import Replica
from serve.listeners.admin.application import create
from serve.listeners.admin.context import Control
from serve.triton.metrics import Readings

T = TypeVar("T")
Client = httpx2.AsyncClient
SECRET = "the-shared-secret"
NO_WAIT = {"wait": 0}


async def unread(one: Replica) -> Readings | None:
    """No replica tells its metrics."""


def plane(folder: Path) -> ControlPlane:
    """Model `m`: versions 1 and 2 are ready on `a`, version 3 is loading."""
    made = ControlPlane(folder, replicas=[replica("a"), replica("b")])
    model = write_model(made.repository, "m", 1, 2, 3)
    (model / "model_card.json").write_text('{"summary": "a model"}')
    return asyncio.run(made.begin(a={"m": (1, 2)}))


def for_people(folder: Path, one: ControlPlane) -> dict[str, Any]:
    """The parts that call a gateway for people: tries have a scripted one, evaluations none."""
    nothing = cast(Any, None)
    objects = FolderObjects(folder / "kept")
    datasets = Datasets(objects=objects, scratch=folder / "scratch", wall=one.wall)
    return {
        "tries": Desk(one, folder).desk,
        "datasets": datasets,
        "evaluations": Evaluations(
            objects=objects,
            datasets=datasets,
            gateway=nothing,
            models=one.models,
            wall=one.wall,
            new_id=lambda: "e1",
        ),
        "overviews": nothing,
        "configuring": nothing,
        "benches": nothing,
        "live": nothing,
        "pools": one.pools,
    }


def application(
    one: ControlPlane,
    *,
    readings: Callable[[Replica], Awaitable[Readings | None]] = unread,
    needs_key: Callable[[bool], bool] = lambda guarded: guarded,
    discovering: Discovering | None = None,
) -> FastAPI:
    """The admin application of a control plane."""
    management = Management(
        one.store,
        one.inventory,
        one.fleet,
        one.publisher,
        Keepers(),
        decisions=lambda: one.decisions,
        reload=one.reload,
    )
    nothing = cast(Any, None)  # what no test here asks for
    folder = one.repository.parent
    control = Control(
        storage=nothing,
        uploads=nothing,
        publications=nothing,
        retention=nothing,
        conversions=nothing,
        history=nothing,
        load_reports=LoadReports(FolderObjects(folder / "storage"), wall=one.wall),
        **for_people(folder, one),
        models=one.models,
        fleet=one.fleet,
        publisher=one.publisher,
        management=management,
        keys=one.keys,
        readings=readings,
        metrics=lambda: b"# metrics\n",
        clock=one.clock,
        secret=SECRET,
        needs_key=needs_key,
        wall=one.wall,
        discovering=discovering,
    )
    return create(control, hosts=["localhost", "[::1]"])


def play(app: FastAPI, scenario: Callable[[Client], Awaitable[T]], *, host: str = "") -> T:
    """What somebody does with a client of the application."""

    async def run() -> T:
        transport = httpx2.ASGITransport(app=app, raise_app_exceptions=False)
        base = f"http://{host or 'localhost:8080'}"
        async with Client(transport=transport, base_url=base) as client:
            return await scenario(client)

    return asyncio.run(run())


def send(
    app: FastAPI, method: str, path: str, *, body: Any = None, **headers: str
) -> httpx2.Response:
    """One request, which waits for no worker."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return play(
        app, lambda client: client.request(method, path, json=body, headers=named, params=NO_WAIT)
    )


def assert_error(answer: httpx2.Response, status: int, code: str) -> dict[str, str]:
    """Every error has this status, this code, and the same five parts."""
    assert answer.status_code == status, answer.text
    body: dict[str, str] = answer.json()
    assert set(body) == {"error", "code", "what", "why", "try_this"}
    assert (body["code"], answer.headers["servegate-error"]) == (code, code)
    return body
