"""The metrics port of one machine: all sources in one text, what processes use, and probes."""

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from app.scripted import Scripted, answer
from builders import until
from loops import in_loop
from prometheus_client.parser import text_string_to_metric_families

from serve.app.internal_http import InternalConnection
from serve.app.membership import calls_in_flight
from serve.app.metrics import Scrape, Usage, answers, families, serving_metrics
from serve.app.paths import SNAPSHOT_FILE, worker_socket
from serve.app.ports import listener
from serve.app.probes import LIVE, READY, Probes
from serve.app.worker import ProxyWorker
from serve.core.errors import Unavailable
from serve.core.snapshot import Snapshot
from serve.settings import Settings

TEXT = "# TYPE calls counter\ncalls_total 2\n# TYPE g gauge\ng 1\n"


def source() -> Scripted:
    return Scripted(then=answer(TEXT.encode()))


def samples(text: bytes) -> dict[tuple[str, str], float]:
    return {
        (sample.name, sample.labels.get("source", "")): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


@in_loop
async def test_workers_and_others_are_added_up_beside_what_they_use(tmp_path: Path) -> None:
    workers = {f"worker-{number}": tmp_path / f"{number}.sock" for number in (0, 1)}
    for path in workers.values():
        await source().listen(path)
    control = await source().listen()
    scrape = Scrape(
        workers, {"control": control}, lambda: {"supervisor": os.getpid()}, own=TEXT.encode
    )
    found = samples(await scrape.text())
    assert found["calls_total", ""] == 8
    everybody = {"worker-0", "worker-1", "control", "supervisor"}
    assert {who for name, who in found if name == "g"} == everybody
    used = {who for name, who in found if name == "servegate_process_cpu_seconds_total"}
    assert used == {"worker-0", "worker-1", "supervisor"}


@in_loop
async def test_a_worker_that_hangs_keeps_its_counts_and_shows_what_it_uses(tmp_path: Path) -> None:
    path = tmp_path / "0.sock"
    await Scripted(answer(TEXT.encode())).listen(path)  # the second question is held
    scrape = Scrape({"worker-0": path}, {}, dict, patience=0.05)
    before, after = samples(await scrape.text()), samples(await scrape.text())
    assert before["calls_total", ""] == after["calls_total", ""] == 2
    assert ("g", "worker-0") in before and ("g", "worker-0") not in after
    assert ("servegate_process_resident_bytes", "worker-0") in after


@in_loop
async def test_scrapes_at_the_same_time_agree(tmp_path: Path) -> None:
    path = tmp_path / "0.sock"
    await source().listen(path)
    scrape = Scrape({"worker-0": path}, {}, dict)
    texts = await asyncio.gather(*(scrape.text() for _ in range(5)))
    assert {samples(text)["calls_total", ""] for text in texts} == {2}


# --- what a process uses, as the kernel tells it --------------------------------------------------


def test_the_usage_of_this_process_is_what_python_says_of_it() -> None:
    before = time.process_time()
    usage = Usage.of(os.getpid())
    assert usage is not None
    assert abs(usage.cpu_seconds - before) < 0.2
    assert 5 << 20 < usage.resident < 5 << 30
    assert usage.proportional is not None and 0 < usage.proportional <= usage.resident * 1.1
    assert usage.open_files >= 3
    assert time.time() - 24 * 3600 < usage.started <= time.time() + 1
    with open(os.devnull):  # noqa: PTH123
        after = Usage.of(os.getpid())
    assert after is not None and after.open_files == usage.open_files + 1


def test_every_number_is_kept_apart_by_its_source() -> None:
    mine = os.getpid()
    found = families({"worker-0": mine, "worker-1": mine})
    for family in found:
        assert [sample.labels for sample in family.samples] == [
            {"source": "worker-0"},
            {"source": "worker-1"},
        ]
    assert [family.name for family in found if family.type == "counter"] == [
        "servegate_process_cpu_seconds"
    ]


def test_a_process_that_is_gone_uses_nothing_and_is_left_out() -> None:
    process = subprocess.Popen((sys.executable, "-c", ""))
    process.wait()
    assert Usage.of(process.pid) is None
    assert not any(family.samples for family in families({"worker-0": process.pid}))


# --- calls in flight by replica, as the control plane reads them ----------------------------------

TOLD = """
# HELP servegate_calls_in_flight Calls in flight
servegate_calls_in_flight{source="worker-0"} 3.0
servegate_calls_in_flight{source="worker-1"} 1.0
servegate_replica_calls_in_flight{pool="default",replica="a",source="worker-0"} 2.0
servegate_replica_calls_in_flight{pool="",replica="b",source="worker-0"} 1.0
servegate_replica_calls_in_flight{pool="default",replica="b",source="worker-1"} 1.0
"""


class Gateway:
    """Tells this text, or nothing."""

    def __init__(self, text: str | None) -> None:
        self._text = text

    async def metrics(self) -> str:
        if self._text is None:
            raise Unavailable("the gateway does not answer")
        return self._text


@in_loop
async def test_all_workers_count_also_for_a_replica_that_some_of_them_know_no_more() -> None:
    assert await calls_in_flight(Gateway(TOLD)) == {"a": 2.0, "b": 2.0}


@in_loop
async def test_where_no_worker_tells_nothing_is_known() -> None:
    for text in (None, "", "# no worker has answered\n", "<html>"):
        assert await calls_in_flight(Gateway(text)) is None, text


# --- probes ---------------------------------------------------------------------------------------

OK = (200, "ok")


def unready(why: str) -> bytes:
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
