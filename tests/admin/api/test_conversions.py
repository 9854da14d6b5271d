"""Conversions over the admin API: asked for, watched, cancelled, read."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from admin.api.admin_scene import Client, assert_error, converting, play
from admin.api.test_uploads import PIECE
from control.storage_scene import digest
from workbench.conversion.queue.converting import GOOD, HANGS, Jobbing

T = TypeVar("T")
PATH = "/api/conversions"


class Api:
    """The application over a scene of conversions."""

    def __init__(self, folder: Path) -> None:
        self.one = Jobbing(folder)

    def play(self, scenario: Callable[[Client], Awaitable[T]], **changes: Any) -> T:
        """What somebody does while conversions and the pipeline are at work."""

        async def run(client: Client) -> T:
            await self.one.scene.begin()
            async with self.one.working():
                return await scenario(client)

        return play(converting(self.one, **changes), run)

    async def send(self, client: Client, script: bytes = GOOD) -> str:
        """Upload a scripted source over the API; gives the upload's id."""
        file = {"path": "model.onnx", "size": len(script), "sha256": digest(script)}
        body = {"model": "m", "files": [file], "kind": "source"}
        begun = (await client.post("/api/uploads", json=body)).json()
        assert begun["existing"] is None
        if begun["missing"]:
            path = f"/api/uploads/{begun['id']}/blobs/{digest(script)}"
            sent = await client.patch(path, content=script, headers=PIECE)
            assert sent.status_code == 204, sent.text
        return str(begun["id"])

    async def begin(self, client: Client, script: bytes = GOOD, **more: Any) -> str:
        """Upload and ask; gives the job's id."""
        upload = await self.send(client, script)
        body = {"upload": upload, "model": "m", **more}
        answer = await client.post(PATH, json=body, headers={"servegate-author": "ada"})
        assert answer.status_code == 202, answer.text
        assert answer.json()["state"] == "queued"
        return str(answer.json()["id"])

    async def until(self, client: Client, identity: str, *states: str) -> dict[str, Any]:
        """Poll the events until the job is in one of these states, or has ended."""
        after = 0
        while True:
            answer = await client.get(f"{PATH}/{identity}/events", params={"after": after})
            assert answer.status_code == 200, answer.text
            page = answer.json()
            if page["state"] in (states or ("done", "failed", "refused", "cancelled")):
                return (await client.get(f"{PATH}/{identity}")).json()
            after = page["after"]


@pytest.fixture
def api(tmp_path: Path) -> Api:
    return Api(tmp_path)


def test_a_source_is_uploaded_and_converted_and_becomes_a_version(api: Api) -> None:
    async def scenario(client: Client) -> dict[str, Any]:
        asked = {"precision": "fp16", "tolerances": {"": {"atol": 0.01}}, "seed": 3}
        identity = await api.begin(client, labels=["new"], request=asked)
        return await api.until(client, identity)

    page = api.play(scenario)
    assert (page["state"], page["version"], page["author"]) == ("done", 1, "ada")
    assert (page["fault"], page["has_report"], page["starts"]) == (None, True, 1)
    assert page["request"]["tolerances"] == {"": {"atol": 0.01, "rtol": None, "top1": None}}
    assert (page["request"]["precision"], page["request"]["seed"]) == ("fp16", 3)
    assert "source" not in page["request"]
    assert [event["state"] for event in page["events"] if event["type"] == "state"] == [
        *("queued", "running", "publishing", "publishing", "done")
    ]
    [(request, _)] = api.one.converter.asked
    assert (request.source, request.precision) == ("model.onnx", "fp16")


def test_a_running_job_tells_its_stage_and_is_cancelled(api: Api) -> None:
    async def scenario(client: Client) -> None:
        identity = await api.begin(client, HANGS)
        await api.until(client, identity, "running")
        path = f"{PATH}/{identity}"

        async def events(**query: float) -> Any:
            return await client.get(f"{path}/events", params=query)

        waited = (await events(after=2)).json()
        assert (waited["stage"], waited["after"]) == ("convert", 3)
        assert (await events(after=3, wait=0.01)).status_code == 204, "there is no news"

        waiting = asyncio.create_task(events(after=3, wait=20))
        bob = {"servegate-author": "bob", "servegate-reason": "too slow"}
        cancelled = await client.post(f"{path}/cancel", headers=bob)
        assert (cancelled.status_code, cancelled.json()["state"]) == (200, "cancelled")
        async with asyncio.timeout(5):
            woken = (await waiting).json()
        assert [event.get("state") for event in woken["events"]] == ["cancelled"]
        rows = await api.one.revisions(api.one.jobs.get(identity))
        assert (rows[0]["author"], rows[-1]["author"]) == ("ada", "bob")
        assert rows[-1]["reason"] == "too slow"

        again = await client.post(f"{path}/retry")
        assert (again.status_code, again.json()["state"]) == (202, "queued")
        await client.post(f"{path}/cancel")

    api.play(scenario)


def test_the_report_is_read_by_programs_and_by_people(api: Api) -> None:
    async def scenario(client: Client) -> None:
        identity = await api.begin(client, b"refuse numbers_differ\n")
        page = await api.until(client, identity)
        assert (page["state"], page["has_report"]) == ("refused", True)
        report = (await client.get(f"{PATH}/{identity}/report")).json()
        assert (report["format"], report["passed"]) == (1, False)
        read = await client.get(f"{PATH}/{identity}/report.html")
        assert read.text == "<p>model.onnx</p>"
        assert read.headers["content-type"].startswith("text/html")
        policy = read.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "script" not in policy

    api.play(scenario)


def test_jobs_are_listed_and_unknown_ones_and_missing_reports_not_found(api: Api) -> None:
    async def scenario(client: Client) -> None:
        await api.until(client, await api.begin(client, GOOD))
        api.one.scene.wall.now += 1
        identity = await api.begin(client, b"die\n")
        await api.until(client, identity)
        newer, older = (await client.get(PATH)).json()
        assert (newer["state"], older["state"], older["fault"]) == ("failed", "done", None)
        assert newer["fault"]["code"] and "events" not in newer
        assert_error(await client.get(f"{PATH}/{identity}/report"), 404, "not_found")
        for path in ("", "/events", "/report", "/report.html"):
            assert_error(await client.get(f"{PATH}/nobody{path}"), 404, "unknown_conversion")
        for path in ("/cancel", "/retry"):
            assert_error(await client.post(f"{PATH}/nobody{path}"), 404, "unknown_conversion")

    api.play(scenario)


def test_a_source_cannot_be_committed_and_a_version_not_converted(api: Api) -> None:
    async def scenario(client: Client) -> None:
        source = await api.send(client)
        answer = await client.post(f"/api/uploads/{source}/commit", json={})
        error = assert_error(answer, 422, "invalid")
        assert error["try_this"] == "POST /api/conversions"
        files = [{"path": "1/model.onnx", "size": len(GOOD), "sha256": digest(GOOD)}]
        body = {"model": "m", "files": files}
        begun = (await client.post("/api/uploads", json=body)).json()
        answer = await client.post(PATH, json={"upload": begun["id"], "model": "m"})
        assert_error(answer, 422, "invalid")
        kinds = [one["kind"] for one in (await client.get("/api/uploads")).json()]
        assert sorted(kinds) == ["source", "version"]

    api.play(scenario)


def test_an_upload_is_not_given_up_while_it_is_converted(api: Api) -> None:
    async def scenario(client: Client) -> None:
        identity = await api.begin(client, HANGS)
        upload = (await client.get(f"{PATH}/{identity}")).json()["upload"]
        error = assert_error(await client.delete(f"/api/uploads/{upload}"), 409, "in_use")
        assert error["why"] == f"used by conversion {identity}"
        await client.post(f"{PATH}/{identity}/cancel")
        assert (await client.delete(f"/api/uploads/{upload}")).status_code == 204

    api.play(scenario)


def test_what_cannot_be_asked_is_refused(api: Api) -> None:
    async def scenario(client: Client) -> None:
        upload = await api.send(client)
        for asked in (
            {"request": {"source": "/etc/passwd"}},
            {"request": {"precision": "fp8"}},
            {"request": {"samples": "../s.npz"}},
            {"request": {"golden": 100_000}},
            {"model": "../m"},
            {"else": 1},
        ):
            answer = await client.post(PATH, json={"upload": upload, "model": "m", **asked})
            assert_error(answer, 422, "invalid")

    api.play(scenario)
    assert api.one.jobs.all() == ()


def test_where_versions_cannot_be_published_nothing_is_converted(api: Api) -> None:
    async def scenario(client: Client) -> None:
        assert_error(await client.get(PATH), 403, "not_served")

    api.play(scenario, publishes=False)
