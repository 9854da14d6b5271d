"""Benches over the admin API."""

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import httpx2
from builders import ControlPlane
from control.batching.test_benches import FIELDS, Scene
from fastapi import FastAPI

from .admin_scene import application, assert_error

OPEN = "/api/models/m/versions/1/benches"


def admin(scene: Scene, folder: Path) -> FastAPI:
    return application(ControlPlane(folder), benches=scene.benches)


def play(scene: Scene, folder: Path, *asked: tuple[str, str, Any]) -> list[httpx2.Response]:
    """The answers; `{id}` in a path stands for the bench that was opened last."""

    async def main() -> list[httpx2.Response]:
        running = asyncio.create_task(scene.benches.run())
        transport = httpx2.ASGITransport(app=admin(scene, folder), raise_app_exceptions=False)
        answers: list[httpx2.Response] = []
        identity = ""
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            for method, path, body in asked:
                answer = await client.request(method, path.format(id=identity), json=body)
                if answer.status_code == 201:
                    identity = answer.json()["id"]
                answers.append(answer)
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        return answers

    return asyncio.run(main())


def test_a_bench_is_opened_kept_changed_and_closed(tmp_path: Path) -> None:
    other = {"max_batch_size": 8}
    answers = play(
        Scene(),
        tmp_path,
        ("POST", OPEN, {"fields": FIELDS}),
        ("GET", "/api/benches/{id}", None),
        ("PUT", "/api/benches/{id}", {"fields": other}),
        ("DELETE", "/api/benches/{id}", None),
        ("GET", "/api/benches/{id}", None),
    )
    assert [one.status_code for one in answers] == [201, 200, 200, 204, 404]
    page = answers[0].json()
    assert page.keys() == {
        *("id", "model", "version", "name", "http", "grpc", "metrics", "replica", "fields"),
        "expires_in",
    }
    assert (page["fields"], answers[2].json()["fields"]) == (FIELDS, other)


def test_a_second_one_is_refused(tmp_path: Path) -> None:
    answers = play(Scene(), tmp_path, ("POST", OPEN, {}), ("POST", OPEN, {"replica": "a"}))
    assert answers[1].status_code == 409
    assert "another bench is open" in answers[1].json()["what"]


def test_what_the_body_may_not_say_is_refused(tmp_path: Path) -> None:
    (answer,) = play(Scene(), tmp_path, ("POST", OPEN, {"config": {}}))
    assert_error(answer, 422, "invalid")
