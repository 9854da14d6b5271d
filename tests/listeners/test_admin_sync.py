"""What agents ask over HTTP: pages, reports and blobs, for those who know the secret."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from control.delivering_scene import MODEL, Shelf
from listeners.sync_scene import SECRET, internal_api

from serve.control.delivering.agents import AgentDelivery, Page
from serve.core.errors import NotFound
from serve.core.versions import File

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

    def file(self, path: str) -> File:
        files = self.shelf.manifests["digits", 1].files
        return next(file for file in files if file.path == path)

    def ask(self, method: str, path: str, headers: Any = KNOWN, **more: Any) -> httpx2.Response:
        async def send() -> httpx2.Response:
            transport = httpx2.ASGITransport(app=self.app)
            async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as one:
                return await one.request(method, path, headers=headers, **more)

        return self.run(send())

    def blob(self, path: str, **headers: str) -> httpx2.Response:
        where = f"/internal/blobs/{self.file(path).sha256}"
        return self.ask("GET", where, headers={**KNOWN, **headers})


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer wrong"}])
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/internal/wanted?replica=a"),
        ("POST", "/internal/delivered"),
        ("GET", "/internal/blobs/abc"),
    ],
)
def test_without_the_secret_there_is_nothing_here(
    scene: Scene, method: str, path: str, headers: dict[str, str]
) -> None:
    answer = scene.ask(method, path, headers)
    assert answer.status_code == 404 and "digits" not in answer.text


def test_an_agent_gets_the_page_and_reports_on_it(scene: Scene) -> None:
    page = Page.from_json(scene.ask("GET", "/internal/wanted?replica=gpu-1").json())
    assert [piece.slot for piece in page.pieces] == [("digits", 1)]
    report = {"replica": "gpu-1", "page": page.name, "slots": [["digits", 1]]}
    assert scene.ask("POST", "/internal/delivered", json=report).json() == {"believed": True}
    assert scene.agents.has("gpu-1", scene.version)


def test_a_report_tells_problems_in_words(scene: Scene) -> None:
    page = scene.ask("GET", "/internal/wanted?replica=gpu-1").json()["name"]
    problems = [{"slot": ["digits", 1], "why": "the disk is full"}]
    report = {"replica": "gpu-1", "page": page, "slots": [], "problems": problems}
    scene.ask("POST", "/internal/delivered", json=report)
    assert scene.agents.problem("gpu-1", scene.version) == "the disk is full"


def test_a_report_on_another_page_is_not_believed(scene: Scene) -> None:
    report = {"replica": "gpu-1", "page": "0123-4567", "slots": [["digits", 1]]}
    assert scene.ask("POST", "/internal/delivered", json=report).json() == {"believed": False}
    assert not scene.agents.has("gpu-1", scene.version)


@pytest.mark.parametrize(
    "report",
    [
        {},
        {"replica": "", "page": "p", "slots": []},
        {"replica": "a", "page": "p", "slots": [["m", 0]]},
        {"replica": "a", "page": "p", "slots": [["m"]]},
        {"replica": "a", "page": "p", "slots": [], "problems": [{"slot": ["m", 1]}]},
    ],
)
def test_a_report_that_is_none_is_refused(scene: Scene, report: Any) -> None:
    assert_error(scene.ask("POST", "/internal/delivered", json=report), 422, "invalid")


def test_a_poll_without_a_name_is_refused(scene: Scene) -> None:
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


def test_a_transfer_cannot_go_on_behind_the_end(scene: Scene) -> None:
    answer = scene.blob("1/model.onnx", range=f"bytes={len(WEIGHTS)}-")
    assert answer.status_code == 416
    assert answer.headers["content-range"] == f"bytes */{len(WEIGHTS)}"


@pytest.mark.parametrize("range", ["bytes=0-1", "bytes=-4", "lines=3-", "bytes=x-"])
def test_ranges_that_no_agent_asks_for_mean_the_whole_blob(scene: Scene, range: str) -> None:
    answer = scene.blob("1/model.onnx", range=range)
    assert (answer.status_code, answer.content) == (200, WEIGHTS)


def test_documents_and_unknown_blobs_are_not_given_out(scene: Scene) -> None:
    assert_error(scene.blob("model_card.json"), 404, "not_found")
    assert_error(scene.ask("GET", f"/internal/blobs/{'0' * 64}"), 404, "not_found")


def test_a_blob_that_has_gone_is_said_before_the_answer_begins(scene: Scene) -> None:
    scene.shelf.blob(scene.file("1/model.onnx").sha256).unlink()
    assert_error(scene.blob("1/model.onnx"), 404, "not_found")
