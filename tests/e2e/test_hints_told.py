"""One hint, told in every way by a whole gateway with a real Triton, and after a restart."""

import asyncio
import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import harness
import pytest
from listeners.keda.stubs import ScaledObject
from ports import free_ports

pytestmark = [pytest.mark.triton, pytest.mark.slow]

SEVEN = (harness.ROOT / "examples/digits/seven.json").read_text()
LEAST = 3  # more than there are, so that the number is nobody's default
HELD = "restarted"


class Told:
    """A gateway, and all that it tells of pool `default`."""

    def __init__(self, up: harness.Up, keda_port: int) -> None:
        self.up = up
        self.address = f"127.0.0.1:{keda_port}"

    def keda(self) -> int | grpc.StatusCode:
        """The metric, or with which status it is refused."""

        async def ask() -> int | grpc.StatusCode:
            async with grpc.aio.insecure_channel(self.address) as channel:
                try:
                    ((_, whole, number),) = await ScaledObject(channel, pool="default").metrics()
                except grpc.aio.AioRpcError as error:
                    return error.code()
                assert whole == number
                return whole

        return asyncio.run(ask())

    def codes(self) -> set[str]:
        """Why the hint is as it is."""
        return {one["code"] for one in self.up.get("/api/hints/default")["reasons"]}

    def gauge(self) -> int | None:
        """What Prometheus is told."""
        pattern = r'^servegate_desired_replicas\{[^}]*pool="default"[^}]*\} (\S+)$'
        found = re.search(pattern, self.up.metrics(), re.M)
        return int(float(found[1])) if found else None

    def command(self) -> int:
        """What `servegate hints show` says."""
        done = harness.servegate("hints", "show", "default", "--json", "--admin-url", self.up.admin)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["desired"]

    def is_there(self) -> bool:
        """Whether there is a hint, and somebody who tells it."""
        try:
            status, page = harness.request(f"{self.up.admin}/api/hints")
        except OSError:
            return False
        return status == 200 and bool(page["hints"])

    def in_one_round(self) -> dict[str, Any]:
        """Every way, asked between two rounds."""

        def asked() -> dict[str, Any] | None:
            before = self.up.get("/api/hints")
            told = {
                "list": [one["desired"] for one in before["hints"]],
                "hint": self.up.get("/api/hints/default")["desired"],
                "number": self.up.get("/api/hints/default/desired"),
                "prometheus": self.gauge(),
                "keda": self.keda(),
                "command": self.command(),
            }
            return told if self.up.get("/api/hints")["number"] == before["number"] else None

        return harness.until(asked)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    """A gateway that follows what it sees by now; its pool is to have three replicas at least."""
    (port,) = free_ports(1)
    state = tmp_path_factory.mktemp("hints")
    with harness.up(state, "--replicas", "1", "--workers", "1", "--keda-port", str(port)) as up:
        up.put("/api/pools/default", {"least": LEAST, "most": 8})
        one = Told(up, port)
        harness.until(lambda: one.is_there() and HELD not in one.codes(), patience=180)
        yield one


def test_every_way_tells_the_same_number(told: Told) -> None:
    assert told.in_one_round() == {
        "list": [LEAST],
        "hint": LEAST,
        "number": {"desired": LEAST},
        "prometheus": LEAST,
        "keda": LEAST,
        "command": LEAST,
    }


def test_a_control_plane_that_was_killed_holds_and_keda_keeps_what_it_has(told: Told) -> None:
    killed = told.up.children()["control"]
    os.kill(killed, signal.SIGKILL)
    harness.until(lambda: told.up.children().get("control") not in (None, killed))
    first = told.keda()  # which waits until the port is there again
    harness.until(told.is_there)
    assert told.keda() is grpc.StatusCode.UNAVAILABLE
    assert isinstance(first, grpc.StatusCode)
    assert HELD in told.codes()
    status, answer = harness.request(f"{told.up.admin}/api/hints/default/desired")
    assert (status, answer["code"]) == (503, "unavailable")
    assert told.up.get("/api/hints/default")["desired"] == LEAST


def test_the_call_that_wakes_a_pool_is_told_to_keda_before_it_is_answered(
    tmp_path: Path,
) -> None:
    (port,) = free_ports(1)

    async def woken(up: harness.Up) -> tuple[bool, bool, bool, int]:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            scaled = ScaledObject(channel, pool="default")
            stream = scaled.open("StreamIsActive")
            await stream.initial_metadata()
            hearing = asyncio.create_task(stream.read())
            calls = f"http://{up.http}/v2/models/digits/infer"
            was_told = hearing.done()
            calling = asyncio.create_task(
                asyncio.to_thread(harness.request, calls, "POST", json.loads(SEVEN))
            )
            is_active = (await hearing).result
            return was_told, is_active, calling.done(), (await calling)[0]

    flags = ("--autoscale", "0..1", "--workers", "1", "--keda-port", str(port))
    with harness.up(tmp_path / "state", *flags) as up:
        assert asyncio.run(woken(up)) == (False, True, False, 200)
