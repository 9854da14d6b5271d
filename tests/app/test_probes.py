"""Probes of a data plane: alive as long as it can be, ready only when every worker serves."""

import asyncio
import json
import os
import socket
from pathlib import Path

import pytest
from app.scripted import Scripted, answer
from builders import until
from loops import in_loop

from serve.app.internal_http import InternalConnection
from serve.app.metrics import Scrape, answers, serving_metrics
from serve.app.paths import SNAPSHOT_FILE, worker_socket
from serve.app.ports import listener
from serve.app.probes import LIVE, READY, Probes
from serve.app.worker import ProxyWorker
from serve.core.snapshot import Snapshot
from serve.settings import Settings

OK = (200, "ok")


def unready(why: str) -> bytes:
    """What a worker says at its Unix socket that lacks something."""
    return answer(why.encode(), "503 Service Unavailable")


@in_loop
async def test_a_data_plane_is_ready_when_every_worker_serves_a_snapshot(tmp_path: Path) -> None:
    first, second = Scripted(then=answer()), Scripted(then=unready("has no snapshot yet"))
    paths = {"worker-0": tmp_path / "0.sock", "worker-1": tmp_path / "1.sock"}
    for worker, path in zip((first, second), paths.values(), strict=True):
        await worker.listen(path)
    probes = Probes(paths, runs=lambda: True)
    assert await probes.answer(READY) == (503, "worker-1 has no snapshot yet")
    first.then = unready("is draining")
    said = "worker-0 is draining; worker-1 has no snapshot yet"
    assert await probes.answer(READY) == (503, said)
    first.then = second.then = answer()
    assert await probes.answer(READY) == OK
    assert set(first.asked) == {"GET /readyz"}
    probes.drain()
    status, why = await probes.answer(READY) or (0, "")
    assert (status, why.split(":")[0]) == (503, "draining")
    assert await probes.answer(LIVE) == OK
    assert repr(probes) == "<Probes of ['worker-0', 'worker-1'] draining>"


@in_loop
async def test_a_worker_that_hangs_or_is_not_there_makes_it_unready_and_not_dead(
    tmp_path: Path,
) -> None:
    mute, absent = tmp_path / "mute.sock", tmp_path / "absent.sock"
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(mute))
        one.listen()
        paths = {"worker-0": mute, "worker-1": absent}
        probes = Probes(paths, runs=lambda: True, patience=0.05)
        said = "worker-0 does not respond; worker-1 does not respond"
        assert await probes.answer(READY) == (503, said)
        assert await probes.answer(LIVE) == OK


def test_it_lives_while_the_parent_of_the_workers_runs_or_while_it_drains() -> None:
    runs = [True]
    probes = Probes({}, runs=lambda: runs[0])
    assert asyncio.run(probes.answer(LIVE)) == OK
    runs[0] = False
    why = "the parent process of the workers ended and is restarting"
    assert asyncio.run(probes.answer(LIVE)) == (503, why)
    probes.drain()
    assert asyncio.run(probes.answer(LIVE)) == OK


@in_loop
async def test_the_metrics_port_serves_metrics_and_probes_and_nothing_else() -> None:
    port = listener("127.0.0.1", 0)
    probes = Probes({}, runs=lambda: True)
    url = f"http://127.0.0.1:{port.getsockname()[1]}"
    scrape = Scrape({}, {}, lambda: {"supervisor": os.getpid()})
    async with serving_metrics(port, scrape, probes), InternalConnection(url) as line:
        while not await answers(url, LIVE):
            pass  # the server is being started
        assert (await line.get("/")).status == 404
        text = (await line.get("/metrics")).body.decode()
        assert 'servegate_process_open_files{source="supervisor"}' in text
        assert (await line.get(READY)).body == b"ok\n"
        probes.drain()
        said = await line.get(READY)
        assert said.status == 503 and said.body.startswith(b"draining: ")
        assert (await line.get(LIVE)).status == 200
    port.close()
    assert not await answers(url, LIVE)


@pytest.mark.parametrize("saved, said", [(False, "worker-0 has no snapshot yet"), (True, "ok")])
@in_loop
async def test_a_real_worker_says_what_it_lacks(tmp_path: Path, saved: bool, said: str) -> None:
    if saved:
        (tmp_path / SNAPSHOT_FILE).write_text(json.dumps(Snapshot(1).to_json()))
    given = Settings(state=str(tmp_path), http_port=0, grpc_port=0, control="http://127.0.0.1:9")
    path, stop = worker_socket(given, 0), asyncio.Event()
    running = asyncio.create_task(ProxyWorker(given, 0, secret="-").run(stop))
    await until(path.exists)
    while not await answers(path):  # noqa: ASYNC110
        await asyncio.sleep(0)  # it is being started, and needs its turn
    probes = Probes({"worker-0": path}, runs=lambda: True)
    assert await probes.answer(READY) == (200 if saved else 503, said)
    stop.set()
    await running
    assert await probes.answer(READY) == (503, "worker-0 does not respond")
