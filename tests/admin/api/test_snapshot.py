"""The snapshot over HTTP: workers, who know the secret, wait for it; nobody else sees the path."""

import asyncio
from pathlib import Path
from typing import Any

import httpx2
from admin.api.admin_scene import SECRET, application, client_of
from builders import ControlPlane, until, write_model

from serve.control.models import By
from serve.core.access import Role
from serve.core.snapshot import Snapshot

KNOWN = {"authorization": f"Bearer {SECRET}"}
PATH = "/internal/snapshot"


class Scene:
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
    scene = Scene(tmp_path)
    answer = asyncio.run(scene.get(PATH, KNOWN, worker="worker-0", after="0"))
    assert answer.status_code == 200
    assert Snapshot.from_json(answer.json()) == scene.plane.publisher.snapshot
    for query in ({}, {"worker": "w", "after": "x"}, {"worker": "w", "after": "-1"}):
        answer = asyncio.run(scene.get(PATH, KNOWN, **query))
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid")


def test_without_the_secret_there_is_nothing_here(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    shown = ("", SECRET, "Bearer", "Bearer wrong", f"Bearer {SECRET}2", f"bearer {SECRET} ")
    for headers in ({}, *({"authorization": text} for text in shown)):
        for query in ({"worker": "w", "after": "0"}, {}):
            answer = asyncio.run(scene.get(PATH, headers, **query))
            assert answer.status_code == 404
            assert b"generation" not in answer.content
    assert scene.plane.publisher.workers == ()


def test_a_worker_waits_for_the_next_generation(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    publisher = scene.plane.publisher
    before = publisher.snapshot.generation

    async def scenario() -> int:
        waiting = asyncio.create_task(scene.get(PATH, KNOWN, worker="w", after=str(before)))
        await until(lambda: any(worker.polls for worker in publisher.workers))
        scene.plane.fleet.saw("b", {"m": (1,)})
        await publisher.refresh()
        return int((await waiting).json()["generation"])

    assert asyncio.run(scenario()) == before + 1


def test_what_other_answers_have_said_is_in_the_snapshot_that_is_asked_for_next(
    tmp_path: Path,
) -> None:
    scene = Scene(tmp_path)
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
    scene = Scene(tmp_path)
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


class Connection:
    """One worker's connection to the application: a poll that waits until it is closed."""

    def __init__(self, scene: Scene, generation: int) -> None:
        self._closed = asyncio.Event()
        self._begun = False
        scope: dict[str, Any] = {
            "type": "http",
            "method": "GET",
            "path": PATH,
            "raw_path": PATH.encode(),
            "query_string": f"worker=w&after={generation}".encode(),
            "headers": [(b"host", b"localhost"), (b"authorization", f"Bearer {SECRET}".encode())],
        }
        self.task = asyncio.create_task(scene.app(scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        if not self._begun:
            self._begun = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._closed.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: object) -> None:
        pass

    async def close(self) -> None:
        self._closed.set()
        await self.task


def test_a_worker_whose_connection_has_gone_is_not_waited_for(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    publisher = scene.plane.publisher

    async def scenario() -> None:
        connection = Connection(scene, publisher.snapshot.generation)
        await until(lambda: len(publisher.workers) == 1)
        await connection.close()
        await until(lambda: publisher.workers == ())

    asyncio.run(scenario())
