"""Real local Tritons: their start, their restart, their end, and what is left of them."""

import asyncio
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from living import ends
from loops import in_each_loop, in_loop

from serve.core.errors import TritonDidNotStart
from serve.core.replicas import Replica
from serve.processes import Ledger, ProcessCondition, SupervisedState
from serve.processes.table import ProcessRow, carries, row, rows
from serve.triton.installation import Installation, MachineFacts
from serve.triton.launcher import Launcher

pytestmark = pytest.mark.triton

ROOT = Path(__file__).parents[2]
PATIENCE = 30.0  # seconds; a bound for what takes one or two

ECHO = """
import numpy, os, sys
import triton_python_backend_utils as pb

class TritonPythonModel:
    def initialize(self, args):
        print("numpy", numpy.__version__, "of", sys.prefix, flush=True)

    def execute(self, requests):
        values = [pb.get_input_tensor_by_name(request, "IN").as_numpy() for request in requests]
        return [pb.InferenceResponse([pb.Tensor("OUT", 2 * value)]) for value in values]
"""

HOG = """
import re, threading

class TritonPythonModel:
    def initialize(self, args):
        endless = lambda: re.match("(a+)+$", "a" * 60 + "b")  # never lets go of the interpreter
        threading.Timer(0.1, endless).start()

    def execute(self, requests):
        return []
"""

CONFIG = """
backend: "python"
max_batch_size: 8
input [{ name: "IN", data_type: TYPE_FP32, dims: [2] }]
output [{ name: "OUT", data_type: TYPE_FP32, dims: [2] }]
instance_group [{ count: 1, kind: KIND_CPU }]
"""


class Told(logging.Handler):
    """Keeps what the Tritons log and how they change, and waits for what is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []
        self.conditions: list[tuple[str, ProcessCondition]] = []
        self._changed = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def __call__(self, name: str, condition: ProcessCondition) -> None:
        self.conditions.append((name, condition))
        self._changed.set()

    async def until(self, name: str, state: SupervisedState, restarts: int) -> ProcessCondition:
        while True:
            for who, condition in self.conditions:
                if (who, condition.state, condition.restarts) == (name, state, restarts):
                    return condition
            self._changed.clear()
            await self._changed.wait()


def models(folder: Path, name: str, code: str) -> Path:
    """A model repository with one Python model."""
    version = folder / "models" / name / "1"
    version.mkdir(parents=True)
    (version / "model.py").write_text(code)
    (version.parent / "config.pbtxt").write_text(CONFIG)
    return folder / "models"


def launcher(folder: Path, told: Told, *, count: int = 1, **more: Any) -> Launcher:
    (folder / "models").mkdir(exist_ok=True)
    logger = logging.Logger("servegate.triton")
    logger.addHandler(told)
    options: dict[str, Any] = {"on_change": told, "drain": 1} | more
    return Launcher(
        count,
        [str(folder / "models")],
        state=folder / "state",
        installation=Installation.find(MachineFacts.here()),
        ledger=Ledger(folder / "state" / "children.json"),
        logger=logger,
        **options,
    )


def segments(server_id: str) -> list[str]:
    """The shared memory of one Triton."""
    return [path.name for path in Path("/dev/shm").glob(f"{server_id}-*")]


def session(leader: int) -> list[ProcessRow]:
    """The living processes of a Triton: itself and its stubs."""
    return [one for one in rows() if one.session == leader and not one.is_zombie]


async def fetch(url: str, body: Any = None) -> Any:
    def blocking() -> Any:
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(url, data, timeout=PATIENCE) as answer:
            content = answer.read()
            return json.loads(content) if content else answer.status

    return await asyncio.to_thread(blocking)


async def server_id(replica: Replica) -> str:
    return str((await fetch(f"{replica.http_url}/v2"))["name"])


def entries(folder: Path) -> list[int]:
    """The processes in the ledger."""
    return sorted(one.pid for one in Ledger(folder / "state" / "children.json").entries)


@in_each_loop
async def test_each_triton_is_ready_at_its_own_address_and_a_stop_leaves_nothing(
    tmp_path: Path,
) -> None:
    told, progress = Told(), list[str]()
    async with launcher(tmp_path, told, count=2) as local:
        await local.wait_ready(progress.append)
        assert [replica.name for replica in local.replicas] == ["local-0", "local-1"]
        assert sorted(progress) == [
            f"Triton {replica.name} answers on {replica.address}" for replica in local.replicas
        ]
        for replica in local.replicas:
            assert await fetch(f"{replica.http_url}/v2/health/ready") == 200
        pids = [now.pid or 0 for now in local.conditions.values()]
        assert entries(tmp_path) == sorted(pids)
        removing = asyncio.create_task(local.remove("local-0"))
        await asyncio.sleep(0)
    await removing
    waited = {
        vars(record)["replica"]
        for record in told.records
        if "Waiting for in-flight requests to complete" in record.getMessage()
    }
    assert waited == {"local-0", "local-1"}  # the one that was already being stopped, too
    assert [row(pid) for pid in pids] == [None, None]
    assert entries(tmp_path) == []


@pytest.mark.slow
@in_loop
async def test_a_python_model_runs_in_this_environment_and_ends_with_its_triton(
    tmp_path: Path,
) -> None:
    told = Told()
    models(tmp_path, "echo", ECHO)
    environ = os.environ | {"SERVEGATE_SECRET": "s3cr3t"}
    local = launcher(tmp_path, told, extra_args=("--load-model=echo",), environ=environ)
    async with local:
        await local.wait_ready()
        (replica,) = local.replicas
        column = {"name": "IN", "datatype": "FP32", "shape": [1, 2], "data": [1.5, -2]}
        answer = await fetch(f"{replica.http_url}/v2/models/echo/infer", {"inputs": [column]})
        assert answer["outputs"][0]["data"] == [3.0, -4.0]

        id_ = await server_id(replica)
        family = [one.pid for one in session(local.conditions["local-0"].pid or 0)]
        assert len(family) == 2
        assert len(segments(id_)) == 1
        assert not any(carries(pid, "SERVEGATE_SECRET=s3cr3t") for pid in family)
    assert all(ends(pid, PATIENCE) for pid in family)
    assert segments(id_) == []
    said = {record.getMessage(): vars(record)["replica"] for record in told.records}
    assert said[f"numpy 1.26.4 of {sys.prefix}"] == "local-0"
    assert said["successfully loaded 'echo'"] == "local-0"


@in_loop
async def test_tritons_come_and_go_beside_each_other_and_a_free_name_is_used_again(
    tmp_path: Path,
) -> None:
    async with launcher(tmp_path, Told(), count=0) as local:
        await local.wait_ready()
        assert (local.replicas, local.answering) == ((), ())
        assert (local.add(), local.add()) == ("local-0", "local-1")
        assert local.answering == ()
        await local.wait_ready()
        first, second = local.answering
        pid = local.conditions["local-0"].pid or 0
        await local.remove("local-0")
        assert row(pid) is None
        assert local.replicas == (second,)
        assert await fetch(f"{second.http_url}/v2/health/ready") == 200
        assert local.add() == "local-0"
        while len(local.answering) < 2:
            await local.news()
        assert local.answering[0].name == first.name
        assert local.failures == {}
    assert entries(tmp_path) == []


@in_loop
async def test_a_killed_triton_comes_back_at_the_same_address(tmp_path: Path) -> None:
    told = Told()
    models(tmp_path, "hog", HOG)
    async with launcher(tmp_path, told, extra_args=("--load-model=hog",)) as local:
        await local.wait_ready()
        before = local.replicas
        first = local.conditions["local-0"].pid or 0
        family = [one.pid for one in session(first)]
        (old,) = segments(await server_id(before[0]))
        clients = [
            socket.create_connection((before[0].host, port))
            for port in (before[0].http_port, before[0].grpc_port, before[0].metrics_port)
        ]
        os.kill(first, signal.SIGKILL)
        failed = await told.until("local-0", SupervisedState.BACKING_OFF, 0)
        assert (failed.reason, failed.delay) == ("killed by signal 9 (SIGKILL)", 0.2)
        assert all(ends(pid, PATIENCE) for pid in family)  # the busy stub, too

        second = await told.until("local-0", SupervisedState.RUNNING, 1)
        assert second.pid not in (None, first)
        assert local.replicas == before
        assert await fetch(f"{before[0].http_url}/v2/health/ready") == 200
        assert old not in segments(await server_id(before[0]))
        for client in clients:
            client.close()


PARENT = """
import asyncio, logging, sys
from pathlib import Path
from serve.processes import Ledger
from serve.triton.installation import Installation, MachineFacts
from serve.triton.launcher import Launcher

async def main(folder):
    local = Launcher(
        1,
        [str(folder / "models")],
        state=folder / "state",
        installation=Installation.find(MachineFacts.here()),
        ledger=Ledger(folder / "state" / "children.json"),
        logger=logging.getLogger("servegate.triton"),
        extra_args=("--load-model=hog",),
    )
    async with local:
        await local.wait_ready()
        print(local.conditions["local-0"].pid, local.replicas[0].http_port, flush=True)
        await asyncio.Event().wait()

asyncio.run(main(Path(sys.argv[1])))
"""


@pytest.mark.slow
def test_a_killed_parent_leaves_nothing_to_its_successor(tmp_path: Path) -> None:
    models(tmp_path, "hog", HOG)
    argv = (sys.executable, "-c", PARENT, str(tmp_path))
    with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid, port = (int(word) for word in parent.stdout.readline().split())
        about = urllib.request.urlopen(f"http://127.0.0.1:{port}/v2", timeout=PATIENCE)
        id_ = json.loads(about.read())["name"]
        (stub,) = (one.pid for one in session(pid) if one.pid != pid)
        parent.kill()
    assert ends(pid, PATIENCE)
    assert len(segments(id_)) == 1  # the busy stub lives on

    async def succeed() -> None:
        async with launcher(tmp_path, Told()) as local:
            assert ends(stub, PATIENCE)
            await local.wait_ready()
            assert segments(id_) == []

    asyncio.run(succeed())


@pytest.mark.slow
@in_loop
async def test_a_port_that_is_taken_at_the_first_start_is_replaced(tmp_path: Path) -> None:
    told, squatters = Told(), list[socket.socket]()
    chosen = list[Replica]()

    def squat(name: str, condition: ProcessCondition) -> None:
        if not squatters:  # before Triton's first start, after the choice of its ports
            chosen.extend(local.replicas)
            squatters.append(socket.create_server(("127.0.0.1", chosen[0].grpc_port)))
        told(name, condition)

    local = launcher(tmp_path, told, on_change=squat)
    async with local:
        await local.wait_ready()
        assert local.replicas != tuple(chosen)
        assert local.conditions["local-0"].restarts == 1
        assert await fetch(f"{local.replicas[0].http_url}/v2/health/ready") == 200
    squatters[0].close()


@in_loop
async def test_a_triton_that_does_not_start_is_told_with_its_last_words(tmp_path: Path) -> None:
    async def failure(*flags: str, within: float = PATIENCE) -> TritonDidNotStart:
        with pytest.raises(TritonDidNotStart) as caught:
            async with launcher(tmp_path, Told(), extra_args=flags) as local:
                await local.wait_ready(within=within)
        return caught.value

    binary = Installation.find(MachineFacts.here()).binary
    assert str(await failure("--no-such-flag")) == (
        "Triton local-0 did not start: exit status 1; its log ends with: "
        f"{binary}: unrecognized option '--no-such-flag'"
    )
    unread = await failure("--model-repository=/none")
    assert unread.why.startswith("it runs, but could not read its model repository; ")
    assert "Internal: failed to stat file /none" in unread.last_lines
    assert "no answer within 0.001 seconds" in str(await failure(within=0.001))
