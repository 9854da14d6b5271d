"""Hints of a whole gateway with one real Triton, and after a restart."""

import asyncio
import json
import os
import re
import signal
from collections.abc import Iterator

import grpc
import grpc.aio
import harness
import pytest
from admin.keda.stubs import ScaledObject
from ports import free_ports

pytestmark = [pytest.mark.triton, pytest.mark.slow]

LEAST = 3  # more than there are, so that the number is no default
HELD = "restarted"


class Hinting:
    def __init__(self, up: harness.Up, keda_port: int) -> None:
        self.up = up
        self.address = f"127.0.0.1:{keda_port}"

    def call(self, rows: int) -> None:
        tensor = {"name": "x", "datatype": "FP32", "shape": [rows, 8, 8, 1]}
        tensor["data"] = [0.0] * 64 * rows
        url = f"http://{self.up.http}/v2/models/digits/versions/2/infer"
        status, answer = harness.request(url, "POST", {"inputs": [tensor]})
        assert status == 200, answer

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
        pattern = r'^servegate_desired_replicas\{[^}]*pool="default"[^}]*\} (\S+)$'
        found = re.search(pattern, self.up.metrics(), re.M)
        return int(float(found[1])) if found else None

    def command(self) -> int:
        done = harness.servegate("hints", "show", "default", "--json", "--admin-url", self.up.admin)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["desired"]

    def is_there(self) -> bool:
        try:
            status, page = harness.request(f"{self.up.admin}/api/hints")
        except OSError:
            return False
        return status == 200 and bool(page["hints"])


@pytest.fixture(scope="module")
def hinting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hinting]:
    (port,) = free_ports(1)
    flags = ("--replicas", "1", "--workers", "1", "--keda-port", str(port))
    with harness.up(tmp_path_factory.mktemp("hints"), *flags) as up:
        yield Hinting(up, port)


def test_a_capacity_is_learned_from_calls_and_the_next_round_says_so(hinting: Hinting) -> None:
    def learned() -> bool:
        for rows in (1, 1, 3, 8):
            hinting.call(rows)
        hints = hinting.up.get("/api/hints")["hints"]
        return any(model["capacity"] for hint in hints for model in hint["models"])

    harness.until(learned, what="a capacity")
    hint = hinting.up.get("/api/hints/default")
    assert (hint["ready"], hint["starting"], hint["desired"]) == (1, 0, 1)
    assert hint["models"][0]["holding"] == 1
    assert hint["models"][0]["lately"] > 0
    number = hinting.up.get("/api/hints")["number"]
    assert hinting.up.get(f"/api/hints?after={number}")["number"] > number
    text = hinting.up.metrics()
    for name in ("ready_replicas", "hint_reason", "model_calls_in_flight"):
        assert f"servegate_{name}{{" in text


def test_every_way_reports_the_same_number(hinting: Hinting) -> None:
    hinting.up.put("/api/pools/default", {"least": LEAST, "most": 8})
    harness.until(lambda: hinting.is_there() and HELD not in hinting.codes(), patience=180)
    harness.until(lambda: hinting.gauge() == LEAST, what="a round with the new bounds")
    assert [one["desired"] for one in hinting.up.get("/api/hints")["hints"]] == [LEAST]
    assert hinting.up.get("/api/hints/default")["desired"] == LEAST
    assert hinting.up.get("/api/hints/default/desired") == {"desired": LEAST}
    assert (hinting.keda(), hinting.command()) == (LEAST, LEAST)


def test_a_control_plane_that_was_killed_holds_and_keda_keeps_what_it_has(hinting: Hinting) -> None:
    killed = hinting.up.children()["control"]
    os.kill(killed, signal.SIGKILL)
    harness.until(lambda: hinting.up.children().get("control") not in (None, killed))
    first = hinting.keda()  # which waits until the port is there again
    harness.until(hinting.is_there)
    assert hinting.keda() is grpc.StatusCode.UNAVAILABLE
    assert isinstance(first, grpc.StatusCode)
    assert HELD in hinting.codes()
    status, answer = harness.request(f"{hinting.up.admin}/api/hints/default/desired")
    assert (status, answer["code"]) == (503, "unavailable")
    assert hinting.up.get("/api/hints/default")["desired"] == LEAST
