"""The metrics of one machine: all sources in one text, with what their processes use."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from serve.app.asking import Line
from serve.app.metrics import Scrape, answers, serving_metrics
from serve.app.ports import listener
from serve.app.probes import Probes

TEXT = "# TYPE calls counter\ncalls_total 2\n# TYPE g gauge\ng 1\n"


@asynccontextmanager
async def source(text: str, path: Path | None = None) -> AsyncIterator[str]:
    """Something that always answers this; its URL if it is not on a Unix socket."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(text) + text.encode())
        writer.close()

    if path is not None:
        server = await asyncio.start_unix_server(talk, str(path))
    else:
        server = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with server:
        yield "" if path else f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def samples(text: bytes) -> dict[tuple[str, str], float]:
    """By name and source."""
    return {
        (sample.name, sample.labels.get("source", "")): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def test_workers_and_others_are_added_up_beside_what_they_use(tmp_path: Path) -> None:
    async def scene() -> None:
        workers = {f"worker-{number}": tmp_path / f"{number}.sock" for number in (0, 1)}
        async with (
            source(TEXT, workers["worker-0"]),
            source(TEXT, workers["worker-1"]),
            source(TEXT) as control,
        ):
            scrape = Scrape(
                workers,
                {"control": control},
                lambda: {"supervisor": os.getpid()},
                own=TEXT.encode,
            )
            found = samples(await scrape.text())
        assert found["calls_total", ""] == 8
        everybody = {"worker-0", "worker-1", "control", "supervisor"}
        assert {who for name, who in found if name == "g"} == everybody
        used = {who for name, who in found if name == "servegate_process_cpu_seconds_total"}
        assert used == {"worker-0", "worker-1", "supervisor"}

    asyncio.run(scene())


def test_a_worker_that_hangs_keeps_its_counts_and_shows_what_it_uses(tmp_path: Path) -> None:
    async def scene() -> None:
        path = tmp_path / "0.sock"
        scrape = Scrape({"worker-0": path}, {}, dict, patience=0.05)
        async with source(TEXT, path):
            before = samples(await scrape.text())
        path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as mute:
            mute.bind(str(path))
            mute.listen()
            after = samples(await scrape.text())
        assert before["calls_total", ""] == after["calls_total", ""] == 2
        assert ("g", "worker-0") in before and ("g", "worker-0") not in after
        assert ("servegate_process_resident_bytes", "worker-0") in after

    asyncio.run(scene())


def test_scrapes_at_the_same_time_agree(tmp_path: Path) -> None:
    async def scene() -> None:
        path = tmp_path / "0.sock"
        async with source(TEXT, path):
            scrape = Scrape({"worker-0": path}, {}, dict)
            texts = await asyncio.gather(*(scrape.text() for _ in range(5)))
        assert {samples(text)["calls_total", ""] for text in texts} == {2}

    asyncio.run(scene())


def test_only_the_path_of_the_metrics_serves_them() -> None:
    async def scene() -> None:
        port = listener("127.0.0.1", 0)
        url = f"http://127.0.0.1:{port.getsockname()[1]}"
        scrape = Scrape({}, {}, lambda: {"supervisor": os.getpid()})
        async with serving_metrics(port, scrape, Probes({}, runs=lambda: True)):
            while not await answers(url, "/metrics"):
                pass  # the server is being started
            async with Line(url) as line:
                assert (await line.get("/")).status == 404
                found = samples((await line.get("/metrics")).body)
            assert ("servegate_process_open_files", "supervisor") in found
        port.close()
        assert not await answers(url, "/metrics")

    asyncio.run(asyncio.wait_for(scene(), 10))
