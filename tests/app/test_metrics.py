"""The metrics of one machine: all sources in one text, what their processes use, and a reader."""

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

from app.scripted import Scripted, answer
from loops import in_loop
from prometheus_client.parser import text_string_to_metric_families

from serve.app.membership import calls_in_flight
from serve.app.metrics import Scrape, Usage, families
from serve.core.errors import Unavailable

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
