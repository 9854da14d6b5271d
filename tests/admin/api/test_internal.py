"""What our own processes ask and tell over HTTP; nobody else sees these paths."""

import asyncio
import functools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from admin.api.admin_scene import (
    SECRET,
    Client,
    application,
    assert_error,
    beside_app,
    client_of,
    control_of,
    internal_api,
    play,
    send,
)
from builders import ControlPlane, replica, until, write_model
from control.delivering_scene import MODEL, Shelf
from fastapi import FastAPI

from serve.admin.api import disagreements
from serve.admin.api.application import create
from serve.admin.api.membership import membership_router
from serve.admin.api.waiting_models import waking_router
from serve.control.deliveries.agents import AgentDelivery
from serve.control.models import By
from serve.core.access import Role
from serve.core.errors import NotFound
from serve.core.replicas import Replica
from serve.core.snapshot import Snapshot
from serve.core.versions import VersionFile
from serve.tensors.mirrored import MOST_INPUTS

KNOWN = {"authorization": f"Bearer {SECRET}"}
MEMBER = "a=127.0.0.1:8000:8001:8002@default"


class Membership:
    """Remembers what it was told; replica `b` never loses its last call."""

    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []

    async def become(self, replicas: object, starting: object, **when: object) -> dict[str, float]:
        self.told.append((replicas, starting, when["leaving"], when["within"]))
        return {"b": 1.0}


def put(body: Any, membership: Membership) -> httpx2.Response:
    app = beside_app(membership_router(membership))  # type: ignore[arg-type]
    return send(app, "PUT", "/internal/replicas", body=body, **KNOWN)


def test_the_list_is_taken_as_a_whole_and_those_that_still_have_calls_are_told() -> None:
    membership = Membership()
    body: dict[str, Any] = {"replicas": [MEMBER, "g=gpu-1:1:2:3@a100"], "starting": {"a100": 2}}
    body |= {"leaving": ["b"], "within": 9}
    answer = put(body, membership)
    assert (answer.status_code, answer.json()) == (200, {"leaving": {"b": 1.0}})
    members = [replica("a"), Replica("g", "gpu-1", 1, 2, 3, "a100")]
    assert membership.told == [(members, {"a100": 2}, ["b"], 9.0)]


def test_a_list_that_cannot_be_is_refused_whole() -> None:
    membership = Membership()
    for wrong in ([MEMBER, MEMBER], [MEMBER, "127.0.0.1:1:2:3"], [MEMBER, "b=127.0.0.1:1"], None):
        answer = put({"replicas": wrong}, membership)
        assert answer.headers["servegate-error"] == "invalid", wrong
    assert membership.told == []


# --- who waits ------------------------------------------------------------------------------------


def test_the_models_that_are_waited_for_are_passed_on_and_what_names_none_is_refused() -> None:
    woken: list[list[str]] = []
    app = beside_app(waking_router(lambda models: woken.append(sorted(models))))
    bodies: list[Any] = [{"models": names} for names in ([], "m", [""], None)]
    for body in (*bodies, {}, {"models": ["m"], "more": 1}, []):
        assert send(app, "POST", "/internal/waking", body=body, **KNOWN).status_code == 422
    answer = send(app, "POST", "/internal/waking", body={"models": ["m", "n", "m"]}, **KNOWN)
    assert (answer.status_code, answer.content) == (204, b"")
    assert woken == [["m", "n"]]


# --- calls to which a mirror's candidate responds differently -------------------------------------


def test_only_workers_may_give_calls_to_be_kept_and_none_that_is_too_large(tmp_path: Path) -> None:
    kept: list[tuple[object, ...]] = []

    class KeepingDesk:
        async def keep_disagreement(self, *given: object) -> None:
            kept.append(given)

    control = control_of(ControlPlane(tmp_path), tries=KeepingDesk())
    app = create(control, hosts=["localhost"], beside=[disagreements.router])

    def give(body: bytes, headers: dict[str, str] = KNOWN, **query: str) -> int:
        path, query = "/internal/disagreements", {"model": "m", "a": "1", "b": "2"} | query

        async def work(client: Client) -> httpx2.Response:
            return await client.post(path, content=body, headers=headers, params=query)

        return play(app, work).status_code

    assert give(b"inputs", {}) == 404
    assert give(b"inputs", a="x") == 422
    assert give(bytes(MOST_INPUTS + 1)) == 413
    assert kept == []
    assert give(b"inputs") == 204
    assert kept == [("m", 1, 2, b"inputs")]


# --- workers wait for the snapshot ---------------------------------------------------------------


PATH = "/internal/snapshot"


class SnapshotScene:
    """A control plane with one model on one replica, and its application."""

    def __init__(self, folder: Path) -> None:
        self.plane = ControlPlane(folder)
        write_model(self.plane.repository, "m", 1)
        asyncio.run(self.plane.begin(a={"m": (1,)}))
        self.app = application(self.plane)

    async def get(
        self, path: str, headers: dict[str, str] | None = None, **query: str
    ) -> httpx2.Response:
        async with client_of(self.app) as client:
            return await client.get(path, headers=headers or {}, params=query)


def test_a_worker_that_knows_the_secret_gets_the_snapshot(tmp_path: Path) -> None:
    scene = SnapshotScene(tmp_path)
    answer = asyncio.run(scene.get(PATH, KNOWN, worker="worker-0", after="0"))
    assert answer.status_code == 200
    assert Snapshot.from_json(answer.json()) == scene.plane.publisher.snapshot
    for query in ({}, {"worker": "w", "after": "x"}, {"worker": "w", "after": "-1"}):
        answer = asyncio.run(scene.get(PATH, KNOWN, **query))
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid")


def test_a_worker_waits_for_the_next_generation(tmp_path: Path) -> None:
    scene = SnapshotScene(tmp_path)
    publisher = scene.plane.publisher
    before = publisher.snapshot.generation

    async def scenario() -> int:
        waiting = asyncio.create_task(scene.get(PATH, KNOWN, worker="w", after=str(before)))
        await until(lambda: any(worker.polls for worker in publisher.workers))
        scene.plane.fleet.saw("b", {"m": (1,)})
        await publisher.refresh()
        return int((await waiting).json()["generation"])

    assert asyncio.run(scenario()) == before + 1


def test_the_next_snapshot_has_what_other_answers_have_said(tmp_path: Path) -> None:
    scene = SnapshotScene(tmp_path)
    store, publisher = scene.plane.store, scene.plane.publisher

    async def scenario() -> list[str]:
        written = asyncio.Event()

        async def next_generation(least: int) -> int:
            await written.wait()
            return least

        store.next_generation = next_generation  # type: ignore[method-assign]
        scene.plane.fleet.saw("b", {"m": (1,)})
        publishing = asyncio.create_task(publisher.refresh())
        asking = asyncio.create_task(scene.get("/api/snapshot"))
        for _ in range(1000):  # far more turns than an answer takes that waits for nothing
            await asyncio.sleep(0)
        written.set()
        await publishing
        shown = (await asking).json()["snapshot"]
        return list(shown["models"]["m"]["targets"]["1"]["replicas"])

    assert asyncio.run(scenario()) == ["a", "b"]


def test_keys_travel_to_workers_whole_and_to_people_without_their_digests(tmp_path: Path) -> None:
    scene = SnapshotScene(tmp_path)
    made = asyncio.run(scene.plane.keys.create(Role.PREDICTOR, ["m*"], None, "", By("ada")))
    asyncio.run(scene.plane.publisher.poll("worker-0", 1, 0))
    workers = asyncio.run(scene.get(PATH, KNOWN, worker="w", after="0"))
    people = asyncio.run(scene.get("/api/snapshot", KNOWN))
    assert {"name": "worker-0", "generation": 1} in people.json()["workers"]
    assert people.json()["generation"] == scene.plane.publisher.snapshot.generation
    assert dict(Snapshot.from_json(workers.json()).keys) == {made.key.id: made.key}
    shown = {"role": "predictor", "models": ["m*"], "expires": None}
    assert people.json()["snapshot"]["keys"] == {made.key.id: shown}
    assert people.json()["snapshot"]["guarded"] is True
    assert made.key.digest not in people.text


def test_a_worker_whose_connection_has_gone_is_not_waited_for(tmp_path: Path) -> None:
    scene = SnapshotScene(tmp_path)
    publisher = scene.plane.publisher
    query = f"worker=w&after={publisher.snapshot.generation}"
    headers = [(b"host", b"localhost"), (b"authorization", f"Bearer {SECRET}".encode())]
    scope: dict[str, Any] = {"type": "http", "method": "GET", "path": PATH, "headers": headers}
    scope |= {"raw_path": PATH.encode(), "query_string": query.encode()}

    async def scenario() -> None:
        gone = asyncio.Event()
        messages = [{"type": "http.request", "body": b"", "more_body": False}]

        async def receive() -> dict[str, Any]:
            if messages:
                return messages.pop()
            await gone.wait()
            return {"type": "http.disconnect"}

        async def ignore(message: object) -> None:
            """Nobody is there to hear it."""

        polling = asyncio.create_task(scene.app(scope, receive, ignore))
        await until(lambda: len(publisher.workers) == 1)
        gone.set()
        await polling
        await until(lambda: publisher.workers == ())

    asyncio.run(scenario())


# --- agents ask for pages and blobs, and report --------------------------------------------------


WEIGHTS = MODEL["model.onnx"]


class SyncScene:
    """One version is wanted; its blobs are on a shelf."""

    def __init__(self, folder: Path) -> None:
        self.shelf = Shelf(folder / "shelf")
        self.agents = AgentDelivery(self.shelf)
        self.version = self.shelf.publish(beside={"model_card.json": b"{}"})
        self.run = asyncio.Runner().run
        self.run(self.agents.deliver([self.version], ()))
        self.app = internal_api(self.agents, self)

    async def stream(self, sha256: str, start: int = 0) -> AsyncIterator[bytes]:
        try:
            data = self.shelf.blob(sha256).read_bytes()[start:]
        except FileNotFoundError:
            raise NotFound("the storage has no such blob") from None
        yield data[:3]
        yield data[3:]

    def file(self, path: str) -> VersionFile:
        files = self.shelf.manifests["digits", 1].files
        return next(file for file in files if file.path == path)

    def ask(self, method: str, path: str, headers: Any = KNOWN, **more: Any) -> httpx2.Response:
        async def send() -> httpx2.Response:
            async with client_of(self.app) as client:
                return await client.request(method, path, headers=headers, **more)

        return self.run(send())

    def blob(self, path: str, **headers: str) -> httpx2.Response:
        where = f"/internal/blobs/{self.file(path).sha256}"
        return self.ask("GET", where, headers={**KNOWN, **headers})


@pytest.fixture
def syncing(tmp_path: Path) -> SyncScene:
    return SyncScene(tmp_path)


def test_a_report_or_a_poll_that_is_none_is_refused(syncing: SyncScene) -> None:
    page = {"replica": "a", "page": "p", "slots": []}
    for change in ({"replica": ""}, {"slots": [["m", 0]]}, {"problems": [{"slot": ["m", 1]}]}):
        answer = syncing.ask("POST", "/internal/delivered", json=page | change)
        assert_error(answer, 422, "invalid")
    assert_error(syncing.ask("GET", "/internal/wanted"), 422, "invalid")


def test_a_blob_comes_whole_or_from_where_a_transfer_ended(syncing: SyncScene) -> None:
    whole, rest = syncing.blob("1/model.onnx"), syncing.blob("1/model.onnx", range="bytes=5-")
    assert (whole.status_code, whole.content) == (200, WEIGHTS)
    assert whole.headers["content-length"] == str(len(WEIGHTS))
    assert (rest.status_code, rest.content) == (206, WEIGHTS[5:])
    assert rest.headers["content-range"] == f"bytes 5-{len(WEIGHTS) - 1}/{len(WEIGHTS)}"
    beyond = syncing.blob("1/model.onnx", range=f"bytes={len(WEIGHTS)}-")
    assert beyond.status_code == 416
    assert beyond.headers["content-range"] == f"bytes */{len(WEIGHTS)}"
    for other in ("bytes=0-1", "bytes=-4", "lines=3-", "bytes=x-"):
        answer = syncing.blob("1/model.onnx", range=other)
        assert (answer.status_code, answer.content) == (200, WEIGHTS), other


def test_documents_and_blobs_that_are_not_there_are_not_given_out(syncing: SyncScene) -> None:
    assert_error(syncing.blob("model_card.json"), 404, "not_found")
    assert_error(syncing.ask("GET", f"/internal/blobs/{'0' * 64}"), 404, "not_found")
    syncing.shelf.blob(syncing.file("1/model.onnx").sha256).unlink()
    assert_error(syncing.blob("1/model.onnx"), 404, "not_found")


# --- only who knows the secret -------------------------------------------------------------------


def test_without_the_secret_there_is_nothing_here(syncing: SyncScene, tmp_path: Path) -> None:
    scene, membership, woken = SnapshotScene(tmp_path), Membership(), []
    routers = membership_router(membership), waking_router(woken.append)  # type: ignore[arg-type]
    asked: list[tuple[FastAPI, str, str, Any]] = [
        (beside_app(*routers), "PUT", "/internal/replicas", {"replicas": [MEMBER]}),
        (beside_app(*routers), "POST", "/internal/waking", {"models": ["m"]}),
        (syncing.app, "GET", "/internal/wanted?replica=a", None),
        (syncing.app, "POST", "/internal/delivered", None),
        (syncing.app, "GET", "/internal/blobs/abc", None),
        (scene.app, "GET", f"{PATH}?worker=w&after=0", None),
        (scene.app, "GET", PATH, None),
    ]
    wrong = ("", SECRET, "Bearer", "Bearer wrong", f"Bearer {SECRET}2", f"bearer {SECRET} ")
    for app, method, path, body in asked:
        for headers in ({}, *({"authorization": text} for text in wrong)):
            asking = {"method": method, "url": path, "json": body, "headers": headers}
            answer = play(app, functools.partial(Client.request, **asking))
            assert answer.status_code == 404, asking
            assert "digits" not in answer.text and "generation" not in answer.text
    assert (membership.told, woken, scene.plane.publisher.workers) == ([], [], ())
