"""The metrics of one machine: all sources in one text, with what their processes use."""

import asyncio
import os
from pathlib import Path

from app.scripted import Scripted, answer
from loops import in_loop
from prometheus_client.parser import text_string_to_metric_families

from serve.app.internal_http import InternalConnection
from serve.app.metrics import Scrape, answers, serving_metrics
from serve.app.ports import listener
from serve.app.probes import Probes

TEXT = "# TYPE calls counter\ncalls_total 2\n# TYPE g gauge\ng 1\n"


def source() -> Scripted:
    """A process that always gives the same metrics."""
    return Scripted(then=answer(TEXT.encode()))


def samples(text: bytes) -> dict[tuple[str, str], float]:
    """By name and source."""
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


@in_loop
async def test_only_the_path_of_the_metrics_serves_them() -> None:
    port = listener("127.0.0.1", 0)
    url = f"http://127.0.0.1:{port.getsockname()[1]}"
    scrape = Scrape({}, {}, lambda: {"supervisor": os.getpid()})
    async with serving_metrics(port, scrape, Probes({}, runs=lambda: True)):
        while not await answers(url, "/metrics"):
            pass  # the server is being started
        async with InternalConnection(url) as line:
            assert (await line.get("/")).status == 404
            found = samples((await line.get("/metrics")).body)
        assert ("servegate_process_open_files", "supervisor") in found
    port.close()
    assert not await answers(url, "/metrics")
