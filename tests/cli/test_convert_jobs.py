"""`servegate convert ls | show | cancel | retry` against an admin API with jobs at work."""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
import uvicorn
from admin.api.admin_scene import converting
from builders import until
from cli.commands import Done, servegate
from workbench.conversion.queue.converting import HANGS, Jobbing

from serve.workbench.conversion.queue.job import Job, JobState

T = TypeVar("T")


class Gateway:
    """A gateway in a thread: conversions, the pipeline, and the admin API."""

    def __init__(self, folder: Path) -> None:
        self.one = Jobbing(folder)
        app = converting(self.one)
        config = uvicorn.Config(app, port=0, log_level="error", timeout_graceful_shutdown=1)
        self.server = uvicorn.Server(config)
        self.loop: asyncio.AbstractEventLoop | None = None
        self.thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.servers[0].sockets[0].getsockname()[1]}"

    def run(self, *words: object) -> Done:
        return servegate("convert", *words, "--admin-url", self.url)

    def do(self, work: Callable[[], Awaitable[T]]) -> T:
        """Something in the gateway's own loop."""

        async def done() -> T:
            return await work()

        assert self.loop is not None
        return asyncio.run_coroutine_threadsafe(done(), self.loop).result(30)

    def ended(self, script: bytes) -> Job:
        """A job that has ended."""

        async def work() -> Job:
            return await self.one.until(await self.one.ask(script))

        return self.do(work)

    def running(self) -> Job:
        """A job that runs until somebody ends it."""

        async def work() -> Job:
            job = await self.one.until(await self.one.ask(HANGS), JobState.RUNNING)
            await until(lambda: self.one.jobs.progress(job.id).stage == "convert")
            return job

        return self.do(work)

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        await self.one.scene.begin()
        async with self.one.working():
            await self.server.serve()


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    made = Gateway(tmp_path)
    made.thread.start()
    asyncio.run(until(lambda: made.server.started))
    yield made
    made.server.should_exit = True
    made.thread.join()


def test_jobs_that_have_ended_are_listed_shown_and_followed(gateway: Gateway) -> None:
    good = gateway.ended(b"stage open\n")
    failed = gateway.ended(b"stage convert\nfail out_of_memory\n")
    refused = gateway.ended(b"refuse numbers_differ\n")
    done = gateway.run("ls")
    head, *rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert (done.returncode, head[:4]) == (0, ["id", "model", "state", "version"])
    assert {row[0]: (row[2], row[3]) for row in rows} == {
        good.id: ("done", "1"),
        failed.id: ("failed", ""),
        refused.id: ("refused", ""),
    }
    assert len(json.loads(gateway.run("ls", "--json").stdout)) == 3

    done = gateway.run("show", failed.id)
    assert done.returncode == 0
    for said in (
        f"{failed.id}: failed, model m",
        "operator: Op n",
        "try: use a larger --conversion-memory of servegate up",
        "code: out_of_memory",
        "it is doing convert in model.onnx",
    ):
        assert said in done.stdout
    done = gateway.run("show", refused.id)
    assert f"report: {gateway.url}/api/conversions/{refused.id}/report.html" in done.stdout

    done = gateway.run("show", good.id, "--follow")
    assert (done.returncode, "version 1 of m is published" in done.stderr) == (0, True)
    for job, status, code in ((refused, 7, "numbers_differ"), (failed, 1, "out_of_memory")):
        done = gateway.run("show", job.id, "--follow", "--json")
        last = done.events[-1]
        assert (done.returncode, last["type"], last["ok"]) == (status, "result", False)
        assert last["code"] == code
        assert "failed" not in [each["type"] for each in done.events]
    done = gateway.run("cancel", good.id)
    assert (done.returncode, "it is done" in done.stderr) == (5, True)
    for verb in ("show", "cancel", "retry"):
        done = gateway.run(verb, "nobody")
        assert (done.returncode, "unknown_conversion" in done.stderr) == (3, True), done.stderr


def test_following_tells_what_a_job_does_until_it_has_ended(gateway: Gateway) -> None:
    job = gateway.running()
    told: list[Done] = []
    watching = threading.Thread(
        target=lambda: told.append(gateway.run("show", job.id, "--follow", "--json"))
    )
    watching.start()
    gateway.do(lambda: until(lambda: bool(gateway.server.server_state.tasks)))
    gateway.do(lambda: gateway.one.conversions.cancel(job.id, gateway.one.by))
    watching.join(20)
    assert told[0].returncode == 5
    states = [event["state"] for event in told[0].events if event["type"] == "state"]
    assert states == ["queued", "running", "cancelled"]


def test_a_job_is_cancelled_and_asked_for_again(gateway: Gateway) -> None:
    job = gateway.running()
    done = gateway.run("cancel", job.id, "--reason", "too slow")
    assert (done.returncode, done.stderr) == (0, f"conversion {job.id} of m is cancelled\n")
    rows = gateway.do(lambda: gateway.one.revisions(job))
    assert rows[-1]["reason"] == "too slow"
    done = gateway.run("retry", job.id)
    assert (done.returncode, done.stderr) == (0, f"conversion {job.id} of m is queued\n")
    assert gateway.run("cancel", job.id).returncode == 0
