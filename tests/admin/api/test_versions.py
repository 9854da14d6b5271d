"""Published versions over the admin API: shown, fetched, tagged, retired, restored, collected."""

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, TypeVar

import httpx2
import pytest
from admin.api.admin_scene import application, assert_error, parts_of, play, send
from control.publishing import Scene, files, sha256

from serve.control.publication.publications import PublicationRequest
from serve.core.errors import TrialFailed
from serve.core.versions import VersionState

T = TypeVar("T")
ONE = "/api/models/m/versions/1"


class Api:
    """A scene of publications with the admin application over it."""

    def __init__(self, folder: Path) -> None:
        self.scene = Scene(folder)
        asyncio.run(self.scene.begin())
        self.app = application(self.scene.plane, **parts_of(self.scene))

    def publish(self, *contents: bytes, ask: PublicationRequest | None = None) -> None:
        """Publish versions of model `m`."""
        for content in contents:
            self.run(self.scene.publish("m", files(content), ask))

    def hold(self, *numbers: int) -> None:
        """Replica `a` holds these versions of `m`."""
        self.scene.plane.fleet.saw("a", {"m": numbers})
        self.run(self.scene.plane.publisher.refresh())

    def run(self, work: Awaitable[T]) -> T:
        async def wait() -> T:
            return await work

        return asyncio.run(wait())

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> httpx2.Response:
        return send(self.app, method, path, body=body, **headers)

    def purge(self, path: str) -> httpx2.Response:
        """Retire a version, and remove its files."""
        return play(self.app, lambda one: one.delete(path, params={"purge": "true"}))


@pytest.fixture
def api(tmp_path: Path) -> Api:
    return Api(tmp_path)


def test_a_version_is_shown_with_its_record_and_its_files(api: Api) -> None:
    ask = PublicationRequest(
        labels=("new",), live=True, source="a notebook", tags={"ticket": "ML-7"}
    )
    api.publish(b"one", ask=ask)
    answer = api.ask("GET", ONE)
    page = answer.json()
    assert answer.status_code == 200, answer.text
    assert answer.headers["etag"] == api.scene.version().etag
    assert (page["model"], page["version"], page["recorded"]) == ("m", 1, "published")
    assert (page["state"], page["replicas"]) == ("loading", [])
    assert (page["labels"], page["live"], page["named_by"]) == (["new"], True, [])
    assert page["tags"] == {"ticket": "ML-7"}
    assert (page["provenance"]["author"], page["provenance"]["source"]) == ("ada", "a notebook")
    assert page["files"][0] == {"path": "1/model.onnx", "size": 3, "sha256": sha256(b"one")}
    assert set(page["times"]) == {"uploaded", "checked", "published"}
    assert page["signature"]["inputs"][0]["name"] == "x"


def test_a_push_that_failed_or_is_on_its_way_leaves_a_healthy_model_as_it_is(api: Api) -> None:
    def states() -> tuple[str, list[str], list[str]]:
        model = api.ask("GET", "/api/models/m").json()
        return model["state"], [one["state"] for one in model["versions"]], model["problems"]

    why = "it was still loading after 300 s"
    api.scene.quarantine.fails = TrialFailed(why)
    api.publish(b"zero")
    assert states() == ("failed", ["failed"], [f"version 1: {why}"])
    page = api.ask("GET", ONE).json()
    assert (page["state"], page["reason"]) == ("failed", why)

    api.scene.quarantine.fails = None
    api.publish(b"one")
    api.hold(2)
    assert states() == ("ready", ["failed", "ready"], [])
    api.run(api.scene.push("m", files(b"two")))
    assert states() == ("ready", ["failed", "ready", "uploaded"], [])
    page = api.ask("GET", "/api/models/m/versions/3").json()
    assert (page["state"], page["recorded"], page["files"]) == ("uploaded", "uploaded", [])
    answer = api.ask("DELETE", ONE)
    assert (answer.status_code, answer.json()["state"]) == (200, "removed"), "nothing to restore"
    assert [one["version"] for one in api.ask("GET", "/api/models/m").json()["versions"]] == [2, 3]


def test_what_never_was_is_not_found(api: Api) -> None:
    assert_error(api.ask("GET", ONE), 404, "unknown_model")
    api.publish(b"one")
    assert_error(api.ask("GET", "/api/models/m/versions/2"), 404, "unknown_version")
    assert_error(api.ask("GET", ONE + "/files/1/other"), 404, "not_found")
    assert_error(api.ask("GET", ONE + "/files/%2e%2e/1/model.onnx"), 404, "not_found")
    assert api.ask("GET", "/api/models/m/versions/x").status_code == 422


def test_a_file_is_fetched_as_it_was_published(api: Api) -> None:
    content = bytes(range(256)) * 1000
    api.publish(content)
    answer = api.ask("GET", ONE + "/files/1/model.onnx")
    assert (answer.status_code, answer.content) == (200, content)
    assert answer.headers["content-length"] == "256000"
    assert answer.headers["etag"] == f'"{sha256(content)}"'
    config = api.ask("GET", ONE + "/files/config.pbtxt")
    assert config.text == api.scene.version().config


def test_tags_are_set_with_a_precondition(api: Api) -> None:
    api.publish(b"one")
    state = api.ask("GET", ONE).headers["etag"]
    answer = api.ask("PATCH", ONE, {"tags": {"a": "1"}}, if_match=state, servegate_author="bob")
    assert (answer.status_code, answer.json()["tags"]) == (200, {"a": "1"})
    assert answer.headers["etag"] != state
    stale = api.ask("PATCH", ONE, {"tags": {"a": "2"}}, if_match=state)
    assert_error(stale, 412, "precondition_failed")
    assert_error(api.ask("PATCH", ONE, {"state": "failed"}), 422, "invalid")
    assert_error(api.ask("PATCH", ONE, {"labels": ["7"]}), 422, "invalid")
    revision = api.run(api.scene.revisions("version", "m:1"))[-1]
    assert revision["author"] == "bob"
    kept = [api.ask("PATCH", ONE, {"keep": keep}).json()["keep"] for keep in (True, False)]
    assert kept == [True, False]


def test_a_version_is_retired_restored_and_purged_unless_it_is_in_use(api: Api) -> None:
    api.publish(b"one", b"two", ask=PublicationRequest(labels=("new",)))
    api.hold(1, 2)
    page = api.ask("GET", ONE).json()
    assert (page["state"], page["replicas"]) == ("ready", ["a"])
    in_use = api.ask("DELETE", "/api/models/m/versions/2")
    assert "label 'new'" in assert_error(in_use, 409, "in_use")["why"]
    retired = api.ask("DELETE", ONE, servegate_reason="old")
    assert (retired.status_code, retired.json()["state"]) == (200, "retired")
    assert retired.json()["reason"] == "old" and retired.json()["files"]
    assert api.ask("POST", ONE + "/restore").json()["recorded"] == "published"
    purged = api.purge(ONE)
    assert (purged.status_code, purged.json()["state"]) == (200, "removed")
    assert_error(api.ask("POST", ONE + "/restore"), 409, "conflict")
    assert_error(api.ask("GET", ONE + "/files/1/model.onnx"), 404, "not_found")


def test_garbage_is_told_before_it_is_collected(api: Api) -> None:
    api.publish(b"one", b"two")
    assert api.ask("DELETE", ONE).status_code == 200
    api.scene.wall.now = 4e9
    told = api.ask("POST", "/api/gc", {"keep": 1, "dry_run": True}).json()
    assert told["dry_run"] and told["bytes"] == 3
    assert [(item["kind"], item["name"]) for item in told["items"]] == [
        ("version", "m version 1"),
        ("blob", sha256(b"one")),
    ]
    assert api.scene.version().state is VersionState.RETIRED
    done = api.ask("POST", "/api/gc", {"keep": 1}).json()
    assert (done["items"], done["dry_run"]) == (told["items"], False)
    assert api.scene.version().state is VersionState.REMOVED
    assert api.ask("POST", "/api/gc", {}).json()["items"] == []
    assert_error(api.ask("POST", "/api/gc", {"keep": -1}), 422, "invalid")
