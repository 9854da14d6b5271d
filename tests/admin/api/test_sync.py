"""What agents ask over HTTP: pages, reports and blobs, for those who know the secret."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from admin.api.admin_scene import SECRET, client_of, internal_api
from control.delivering_scene import MODEL, Shelf

from serve.control.deliveries.agents import AgentDelivery, Page
from serve.core.errors import NotFound
from serve.core.versions import VersionFile

KNOWN = {"authorization": f"Bearer {SECRET}"}
WEIGHTS = MODEL["model.onnx"]


def assert_error(answer: httpx2.Response, status: int, code: str) -> None:
    assert (answer.status_code, answer.headers["servegate-error"]) == (status, code)


class Scene:
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
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_without_the_secret_there_is_nothing_here(scene: Scene) -> None:
    for method, path in (
        ("GET", "/internal/wanted?replica=a"),
        ("POST", "/internal/delivered"),
        ("GET", "/internal/blobs/abc"),
    ):
        for headers in ({}, {"authorization": "Bearer wrong"}):
            answer = scene.ask(method, path, headers)
            assert answer.status_code == 404 and "digits" not in answer.text


def test_an_agent_gets_the_page_and_reports_on_it(scene: Scene) -> None:
    page = Page.from_json(scene.ask("GET", "/internal/wanted?replica=gpu-1").json())
    assert [piece.slot for piece in page.pieces] == [("digits", 1)]
    report: dict[str, Any] = {"replica": "gpu-1", "slots": [["digits", 1]]}
    for name, believed in (("0123-4567", False), (page.name, True)):
        answer = scene.ask("POST", "/internal/delivered", json=report | {"page": name})
        assert answer.json() == {"believed": believed}
        assert scene.agents.has("gpu-1", scene.version) is believed
    problems = [{"slot": ["digits", 1], "why": "the disk is full"}]
    report |= {"page": page.name, "slots": [], "problems": problems}
    scene.ask("POST", "/internal/delivered", json=report)
    assert scene.agents.problem("gpu-1", scene.version) == "the disk is full"


def test_a_report_or_a_poll_that_is_none_is_refused(scene: Scene) -> None:
    page = {"replica": "a", "page": "p", "slots": []}
    wrong = {"replica": ""}, {"slots": [["m", 0]]}, {"problems": [{"slot": ["m", 1]}]}
    for change in wrong:
        answer = scene.ask("POST", "/internal/delivered", json=page | change)
        assert_error(answer, 422, "invalid")
    assert_error(scene.ask("GET", "/internal/wanted"), 422, "invalid")


def test_a_control_plane_that_ends_sends_its_agents_home(scene: Scene) -> None:
    page = scene.ask("GET", "/internal/wanted?replica=gpu-1").json()["name"]
    scene.run(scene.agents.close())
    answer = scene.ask("GET", f"/internal/wanted?replica=gpu-1&have={page}")
    assert (answer.status_code, answer.content) == (204, b"")


def test_a_blob_comes_whole_or_from_where_a_transfer_ended(scene: Scene) -> None:
    whole, rest = scene.blob("1/model.onnx"), scene.blob("1/model.onnx", range="bytes=5-")
    assert (whole.status_code, whole.content) == (200, WEIGHTS)
    assert whole.headers["content-length"] == str(len(WEIGHTS))
    assert (rest.status_code, rest.content) == (206, WEIGHTS[5:])
    assert rest.headers["content-range"] == f"bytes 5-{len(WEIGHTS) - 1}/{len(WEIGHTS)}"
    beyond = scene.blob("1/model.onnx", range=f"bytes={len(WEIGHTS)}-")
    assert beyond.status_code == 416
    assert beyond.headers["content-range"] == f"bytes */{len(WEIGHTS)}"
    for other in ("bytes=0-1", "bytes=-4", "lines=3-", "bytes=x-"):
        answer = scene.blob("1/model.onnx", range=other)
        assert (answer.status_code, answer.content) == (200, WEIGHTS), other


def test_documents_and_blobs_that_are_not_there_are_not_given_out(scene: Scene) -> None:
    assert_error(scene.blob("model_card.json"), 404, "not_found")
    assert_error(scene.ask("GET", f"/internal/blobs/{'0' * 64}"), 404, "not_found")
    scene.shelf.blob(scene.file("1/model.onnx").sha256).unlink()
    assert_error(scene.blob("1/model.onnx"), 404, "not_found")
