"""PostgreSQL goes away under load and comes back; and one of two control planes dies."""

import asyncio
import json
import subprocess
import threading
import time

import harness
import pushing
import pytest
from background import Load
from database import postgres
from relay import Relay
from tritons import Control, tritons

from serve.control.decisions import ROUTE
from serve.control.storage.store import Store, StoreEdit

pytestmark = [pytest.mark.triton, pytest.mark.slow]

SECONDS = 12.0  # until the admin API gives up on a database; a busy machine included
TICK = 5.0  # one tick of the poll, a snapshot, and a busy machine
MIB = 1 << 20
SHARED = {"SERVEGATE_SECRET": "of-all-processes-of-this-gateway"}


@pytest.fixture(scope="module")
def server():
    with postgres() as running:
        yield running


@pytest.fixture(scope="module")
def up(server, tmp_path_factory):
    folder = tmp_path_factory.mktemp("outage")
    url = server.new_database()
    flags = ("--model-repo", "", "--workers", "2", "--quarantine", "off", "--database", url)
    with harness.up(folder / "state", *flags) as running:
        running.database = url
        for factor in (2.0, 3.0):
            pushing.published(running, folder / f"{factor}", "m", factor)
        yield running


def body(number, count):
    inputs = [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": pushing.ROW}]
    return "/v2/models/m/infer", json.dumps({"inputs": inputs}), f"{number}-{count}"


def route(up, version):
    """Ask for all calls to go to a version; the status, and seconds until it came."""
    begun = time.monotonic()
    split = {"split": {str(version): 100}}
    status, answer = harness.request(f"{up.admin}/api/routes/m", "PUT", split)
    return status, answer, time.monotonic() - begun


def written_elsewhere(url, version):
    """The same decision, written into the database by a process that is no control plane."""

    async def write():
        store = Store(url, clock=time.time)
        change = StoreEdit(ROUTE, "m", {"split": {str(version): 100}}, "somebody else")
        await store.apply(change)
        store.close()

    asyncio.run(write())


def test_calls_go_on_while_the_database_is_away_and_changes_are_seen_when_it_is_back(server, up):
    with Load(up.http, body, 4) as load:
        load.wait_calls(100)
        server.stop("immediate")
        status, answer, took = route(up, 2)
        assert (status, answer["code"], took < SECONDS) == (503, "unavailable", True), answer
        status, models = harness.request(f"{up.admin}/api/models")
        assert (status, [model["name"] for model in models]) == (200, ["m"])
        load.wait_calls(300)
        server.start()
        written_elsewhere(up.database, 2)
        harness.until(lambda: pushing.factor_of(up, "m") == 3.0, TICK, "it is in force")
        harness.until(lambda: route(up, 1)[0] == 200, TICK, "the admin API takes changes")
        harness.until(lambda: pushing.factor_of(up, "m") == 2.0, TICK, "that one is, too")
        load.wait_calls(100)
    assert load.failures == [], load.failures[:3]


@pytest.mark.parametrize("kind", ["progress", "committed"])
def test_a_push_that_was_running_ends_right_when_the_database_is_back(server, up, tmp_path, kind):
    """It goes while bytes arrive, or when the version has its number and is being published."""
    folder = pushing.source(tmp_path / "m", 4.0)
    with (folder / "1" / "weights.bin").open("wb") as file:
        file.truncate(64 * MIB)
    (folder / "1" / "which.txt").write_text(kind)
    command = [str(harness.BIN / "servegate"), "model", "push", str(folder), kind]
    process = subprocess.Popen(
        [*command, "--label", "candidate", "--wait", "--json", "--admin-url", up.admin],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    for line in process.stdout:
        event = json.loads(line)
        if event["type"] == kind and event.get("stage", "uploading") == "uploading":
            break
    server.stop("immediate")
    assert route(up, 1)[0] == 503
    server.start()
    out, told = process.communicate(timeout=90)
    assert process.returncode == 0, (out, told)
    result = json.loads(out.splitlines()[-1])
    assert (result["version"], pushing.factor_of(up, kind, "candidate")) == (1, 4.0)
    assert len(up.get(f"/api/models/{kind}")["versions"]) == 1


def test_of_two_control_planes_the_second_takes_over_when_the_first_is_killed(server, tmp_path):
    url, repository = server.new_database(), tmp_path / "repository"
    with tritons(tmp_path, repository) as addresses:
        shared = ("--database", url, "--triton", addresses, "--delivery-folder", str(repository))
        shared += ("--storage", str(tmp_path / "storage"), "--quarantine", "off")
        first, second = (Control(tmp_path / name, *shared) for name in ("first", "second"))
        first.start(SHARED)
        harness.until(lambda: first.readyz() == 200, what="the first leads")
        second.start(SHARED)
        service = Relay(first.port, b"\0 never said")
        threading.Thread(target=service.run, daemon=True).start()
        proxy = harness.RunningGateway(tmp_path / "proxy")
        control = f"http://127.0.0.1:{service.port}"
        program = harness.Program("proxy", *proxy.flags(), "--control", control, env=SHARED)
        try:
            for factor in (2.0, 3.0):
                pushing.published(first, tmp_path / f"{factor}", "m", factor)
            harness.until(lambda: pushing.infer(proxy, "m")[0] == 200, what="the worker serves")
            harness.until(lambda: second.readyz() == 503, what="the second stands by")
            with Load(proxy.http, body, 4) as load:
                load.wait_calls(100)
                first.program.process.kill()
                harness.until(lambda: second.readyz() == 200, 30.0, "the second leads")
                load.wait_calls(100)
                service.aim(second.port)
                harness.until(lambda: route(second, 2)[0] == 200)
                harness.until(lambda: pushing.factor_of(proxy, "m") == 3.0, 30.0, "it is in force")
                load.wait_calls(100)
            assert load.failures == [], load.failures[:3]
        finally:
            service.close()
            for one in (program, first.program, second.program):
                one.stop()
