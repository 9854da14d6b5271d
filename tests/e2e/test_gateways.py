"""Two real data planes behind one name, as the control plane sees them; and what their probes say.

They serve the snapshot on their disks, in front of one model server. Of the control plane those
parts are here that read: hints, Live, and the one that lets replicas go.
"""

import asyncio
import contextlib
import json
import os
import signal
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Collection, Coroutine, Iterator
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import harness
import pytest
from builders import replica, snapshot, target, view
from model_server import ModelServer
from ports import free_ports

from serve.app.membership import calls_in_flight
from serve.app.paths import SNAPSHOT_FILE
from serve.control.fleet import Fleet
from serve.control.gateway import GatewayAddress, GatewayClient
from serve.control.live.sources import Sources
from serve.control.scaling.arrivals import ModelArrivals

ADDRESSES = ("127.0.0.1", "127.0.0.2")
BODY = {"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}]}


class Proxy:
    """One `servegate proxy` at an address of its own, on the ports that all have."""

    def __init__(self, folder: Path, address: str, ports: list[int]) -> None:
        self.address, (self.http, _, self.metrics) = address, ports
        flags = ("--http-port", "--grpc-port", "--metrics-port")
        named = [
            word for flag, port in zip(flags, ports, strict=True) for word in (flag, str(port))
        ]
        self.program = harness.Program(
            *("proxy", "--host", address, "--state", str(folder), *named),
            *("--control", "http://127.0.0.1:9"),
            env={"SERVEGATE_DRAIN_TIMEOUT": "20"},
        )

    def call(self) -> int:
        """One call; its status."""
        url = f"http://{self.address}:{self.http}/v2/models/m/infer"
        return harness.request(url, "POST", BODY)[0]

    def ask(self, path: str) -> tuple[int, str]:
        """Status and text on the metrics port; 0 while nobody listens there."""
        url = f"http://{self.address}:{self.metrics}{path}"
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def wait(self, path: str, status: int) -> str:
        """Until it answers so; what it says."""
        harness.until(lambda: self.ask(path)[0] == status, 30.0, f"{path} {status}")
        return self.ask(path)[1]


class Scene:
    """Proxies behind a name, the model server, and who asks them as a control plane."""

    def __init__(self, proxies: tuple[Proxy, ...], model: ModelServer) -> None:
        self.proxies, self.model = proxies, model
        self.url = f"http://gateways.test:{proxies[0].metrics}/metrics"

    def play(self, story: Callable[[GatewayClient], Coroutine[Any, Any, Any]]) -> Any:
        """With a gateway as the control plane has it."""

        async def found(host: str) -> Collection[str]:
            return ADDRESSES

        async def run() -> Any:
            place = GatewayAddress("http://127.0.0.1:1", "127.0.0.1:1", self.url)
            gateway = GatewayClient(place, key=lambda: "", trust=None, resolve=found)
            try:
                return await story(gateway)
            finally:
                await gateway.close()

        return asyncio.run(run())

    @contextlib.contextmanager
    def held(self, proxy: Proxy) -> Iterator[list[int]]:
        """A call that is in flight there inside the block; then its status."""
        status: list[int] = []
        count = len(self.model.calls)
        self.model.holds.clear()
        call = threading.Thread(target=lambda: status.append(proxy.call()))
        call.start()
        try:
            harness.until(lambda: len(self.model.calls) > count, what="the call arrives")
            yield status
        finally:
            self.model.holds.set()
            call.join(20)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    ports, place = free_ports(3), tmp_path_factory.mktemp("gateways")
    with ModelServer() as model:
        port = int(model.address.rpartition(":")[2])
        replicas = MappingProxyType({"a": replica("a", http=port)})
        known = replace(snapshot(view(target(1, "a"))), replicas=replicas)
        proxies = []
        for address in ADDRESSES:
            folder = place / address
            folder.mkdir()
            (folder / SNAPSHOT_FILE).write_text(json.dumps(known.to_json()))
            proxies.append(Proxy(folder, address, ports))
        try:
            for proxy in proxies:
                proxy.wait("/readyz", 200)
            yield Scene(tuple(proxies), model)
        finally:
            model.holds.set()
            for proxy in proxies:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(proxy.program.process.pid, signal.SIGCONT)
                proxy.program.stop(within=30)


@pytest.mark.slow
def test_hints_and_live_see_the_calls_of_both(scene: Scene) -> None:
    async def story(gateway: GatewayClient) -> None:
        arrivals, fleet = ModelArrivals(), Fleet((replica("a"),), clock=time.monotonic)

        async def readings(one: Any) -> None:
            return None

        live = Sources(
            *(gateway, fleet, readings),
            snapshot=lambda: snapshot(view(target(1, "a"))),
            clock=time.monotonic,
            wall=time.time,
        )
        arrivals.tell(await gateway.metrics(), 0.0)
        await live.sample()
        for proxy in scene.proxies:
            for _ in range(10):
                assert await asyncio.to_thread(proxy.call) == 200
        arrivals.tell(await gateway.metrics(), 5.0)
        sample = (await live.sample()).to_json()
        assert arrivals.of("m").recent == 4.0  # 20 in 5 s
        assert round(sample["gateway"]["calls"] * sample["period"]) == 20
        assert sample["gateway"]["memory"] > 2e7

    scene.play(story)


def test_a_replica_is_let_go_only_when_both_say_that_nobody_calls_it(scene: Scene) -> None:
    _, second = scene.proxies

    async def story(gateway: GatewayClient) -> None:
        assert await calls_in_flight(gateway) == {"a": 0.0}
        with scene.held(second):
            assert await calls_in_flight(gateway) == {"a": 1.0}
            os.kill(second.program.process.pid, signal.SIGSTOP)
            assert await calls_in_flight(gateway) is None
            os.kill(second.program.process.pid, signal.SIGCONT)
            assert await calls_in_flight(gateway) == {"a": 1.0}
        async with asyncio.timeout(10):
            while await calls_in_flight(gateway) != {"a": 0.0}:
                continue

    scene.play(story)


def test_one_that_is_stopped_is_unready_at_once_and_tells_its_numbers_until_its_last_call(
    scene: Scene,
) -> None:
    _, second = scene.proxies
    with scene.held(second) as status:
        second.program.process.send_signal(signal.SIGTERM)
        assert second.wait("/readyz", 503).startswith("draining: ")
        assert second.ask("/livez") == (200, "ok\n")
        assert scene.play(calls_in_flight) == {"a": 1.0}
        assert second.program.process.poll() is None
    assert status == [200]
    assert second.program.process.wait(20) == 0
    assert second.ask("/livez") == (0, "")


def test_without_a_snapshot_it_lives_and_is_not_ready(tmp_path: Path) -> None:
    proxy = Proxy(tmp_path / "state", "127.0.0.1", free_ports(3))
    try:
        assert proxy.wait("/livez", 200) == "ok\n"
        harness.until(lambda: "no snapshot" in proxy.ask("/readyz")[1])
        assert proxy.ask("/readyz") == (503, "worker-0 has no snapshot yet\n")
    finally:
        assert proxy.program.stop() == 0
