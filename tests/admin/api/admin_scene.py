"""The admin API over a control plane in memory, for the tests of what it answers."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import MISSING, fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import httpx2
from builders import ControlPlane, replica, write_model
from control.publishing import Scene as PublishingScene
from evaluating_scene import Scene as EvaluatingScene
from fastapi import APIRouter, FastAPI
from trying_desk import Desk
from workbench.conversion.queue.converting import Jobbing

from serve.admin.api.application import create
from serve.admin.api.context import AdminContext
from serve.admin.api.sync import Blobs, sync_router
from serve.control.artifacts.folder import FolderObjects
from serve.control.deliveries.agents import AgentDelivery
from serve.control.history import History
from serve.control.management import ManagementCommands
from serve.control.reconciliation.keepers import Keepers
from serve.control.restoration import RestoreCommands
from serve.core.replicas import Replica
from serve.triton.metrics import ReplicaScrape
from serve.workbench.conversion import feature as conversion
from serve.workbench.conversion.queue.conversions import Conversions
from serve.workbench.evaluation import feature as evaluation
from serve.workbench.evaluation.datasets import Datasets
from serve.workbench.evaluation.evaluations import Evaluations
from serve.workbench.loadtest import feature as loadtest
from serve.workbench.loadtest.stored_reports import LoadReports

T = TypeVar("T")
Client = httpx2.AsyncClient
SECRET = "the-shared-secret"
NO_WAIT = {"wait": 0}


async def unread(one: Replica) -> ReplicaScrape | None:
    """No replica tells its metrics."""


def plane(folder: Path) -> ControlPlane:
    """Model `m`: versions 1 and 2 are ready on `a`, version 3 is loading."""
    made = ControlPlane(folder, replicas=[replica("a"), replica("b")])
    model = write_model(made.repository, "m", 1, 2, 3)
    (model / "model_card.json").write_text('{"summary": "a model"}')
    return asyncio.run(made.begin(a={"m": (1, 2)}))


def control_of(one: ControlPlane, **parts: Any) -> AdminContext:
    """A control plane's parts for the admin API; what it does not have is None unless named."""
    absent = {row.name: None for row in fields(AdminContext) if row.default is MISSING}
    usual = {name: getattr(one, name) for name in ("models", "fleet", "publisher", "keys", "pools")}
    usual |= {"management": management_of(one), "history": history_of(one)}
    usual |= {"readings": unread, "metrics": lambda: b"# metrics\n", "secret": SECRET}
    usual |= {"clock": one.clock, "wall": one.wall, "needs_key": lambda guarded: guarded}
    return AdminContext(**(absent | usual | parts))


def management_of(one: ControlPlane) -> ManagementCommands:
    return ManagementCommands(
        *(one.store, one.inventory, one.fleet, one.publisher, Keepers()),
        decisions=lambda: one.decisions,
        reload=one.reload,
    )


def history_of(one: ControlPlane) -> History:
    """The history with its ways back."""
    restoring = RestoreCommands(
        one.models,
        management_of(one),
        decisions=lambda: one.decisions,
        generation=lambda: one.publisher.snapshot.generation,
        allowing=one.pools,
    )
    return History(one.store, restoring.by_kind)


def for_people(folder: Path, one: ControlPlane) -> dict[str, Any]:
    """The parts that call a gateway for people: tries have a scripted one, evaluations none."""
    objects = FolderObjects(folder / "kept")
    datasets = Datasets(objects=objects, scratch=folder / "scratch", wall=one.wall)
    evaluations = Evaluations(
        objects=objects,
        datasets=datasets,
        gateway=cast(Any, None),
        models=one.models,
        wall=one.wall,
        new_id=lambda: "e1",
    )
    parts = evaluating(datasets, evaluations)
    reports = LoadReports(FolderObjects(folder / "storage"), wall=one.wall)
    return {
        "tries": Desk(one, folder).desk,
        "services": {**parts["services"], LoadReports: reports},
        "features": (*parts["features"], loadtest.web(), conversion.web()),
    }


def evaluating(datasets: Datasets, evaluations: Evaluations) -> dict[str, Any]:
    """The parts that evaluate, and nothing else of the workbench."""
    return {
        "services": {Datasets: datasets, Evaluations: evaluations},
        "features": (evaluation.web(datasets, evaluations),),
    }


def application(one: ControlPlane, **parts: Any) -> FastAPI:
    """The admin application of a control plane."""
    people = for_people(one.repository.parent, one)
    return create(control_of(one, **(people | parts)), hosts=["localhost", "127.0.0.1", "[::1]"])


def parts_of(scene: PublishingScene) -> dict[str, Any]:
    """The parts of a control plane that publishes."""
    names = ("storage", "uploads", "publications", "retention")
    return {name: getattr(scene, name) for name in names}


def converting(one: Jobbing, **changes: Any) -> FastAPI:
    """The admin application over conversions."""
    services: dict[type, Any] = {Conversions: one.conversions}
    parts = parts_of(one.scene) | {"services": services, "features": (conversion.web(),)}
    return application(one.scene.plane, **(parts | changes))


def beside_app(*routers: APIRouter) -> FastAPI:
    """The application with routers for our own processes; hardly more is there than the secret."""
    control: Any = SimpleNamespace(secret=SECRET, leads=lambda: True, features=())
    return create(control, hosts=["localhost"], beside=routers)


def internal_api(agents: AgentDelivery, blobs: Blobs) -> FastAPI:
    """What agents talk to."""
    return beside_app(sync_router(agents, blobs))


def client_of(app: FastAPI, host: str = "localhost:8080", **options: Any) -> Client:
    """A client that calls the application without a socket."""
    transport = httpx2.ASGITransport(app=app, raise_app_exceptions=False)
    return Client(transport=transport, base_url=f"http://{host}", **options)


def play(
    app: FastAPI, scenario: Callable[[Client], Awaitable[T]], *, host: str = "localhost:8080"
) -> T:
    """What somebody does with a client of the application."""

    async def run() -> T:
        async with client_of(app, host) as client:
            return await scenario(client)

    return asyncio.run(run())


def evaluated(
    folder: Path,
    scenario: Callable[[Client, EvaluatingScene], Awaitable[T]],
    *,
    dressed: Callable[[FastAPI], FastAPI] = lambda app: app,
    accept: str = "*/*",
) -> T:
    """What somebody does with the dataset `three` and its evaluations, which are worked off."""

    async def run() -> T:
        scene = await EvaluatingScene(folder).begin()
        parts = evaluating(scene.datasets, scene.evaluations)
        app = dressed(application(scene.plane, **parts, tries=Desk(scene.plane, folder).desk))
        working = asyncio.create_task(scene.evaluations.run())
        async with client_of(app, headers={"accept": accept}) as client:
            try:
                return await scenario(client, scene)
            finally:
                working.cancel()
                await asyncio.gather(working, return_exceptions=True)

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
