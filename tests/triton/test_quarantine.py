"""Real trials: what a version can do wrong in quarantine, what is said of it, and what is left.

Where times are measured, a quarantine takes no step back: it is a bench.
"""

import asyncio
import hashlib
import json
import logging
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
import pytest
from living import ends
from loops import in_each_loop, in_loop

from serve.core.errors import TrialFailed, TritonDidNotStart, TritonFailed, Unavailable
from serve.processes import Ledger
from serve.processes.table import carries, rows
from serve.triton.config import parse
from serve.triton.direct_prediction import predict
from serve.triton.installation import Installation, MachineFacts
from serve.triton.quarantine import LEDGER_FILE, Quarantine, QuarantineOrder, TrialLimits

from .onnx_models import Model, config, identity

pytestmark = [pytest.mark.triton, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
PATIENCE = 60.0  # seconds; a bound for what takes two
CONFIG = config("x FP32 [2]", "y FP32 [2]")
PYTHON = CONFIG.replace("onnxruntime", "python")
ONE = np.ones((1, 2), np.float32)
CODE = """
import ctypes, os, signal, time
import triton_python_backend_utils as pb

class TritonPythonModel:
    def initialize(self, args):
        {initialize}

    def execute(self, requests):
        {execute}
        return [
            pb.InferenceResponse([pb.Tensor("y", pb.get_input_tensor_by_name(r, "x").as_numpy())])
            for r in requests
        ]
"""
ALLOCATE = "self.held = [bytearray(os.urandom(1) * (32 << 20)) for _ in range(64)]"
LARGE = {"memory": 300 << 20}
SLEEP = "time.sleep(600)"
BUSY = "import re, threading; threading.Timer(0.1, re.match, ('(a+)+$', 'a' * 60 + 'b')).start()"


def order(name: str = "m", text: str = CONFIG) -> QuarantineOrder:
    return QuarantineOrder(name, parse(text).for_load([1]))


def onnx(folder: Path, content: bytes = identity("FP32", "n", 2)) -> Path:
    (folder / "models").mkdir(exist_ok=True)
    Model({1: content}, CONFIG).write(folder / "models" / "m")
    return folder / "models"


def python(folder: Path, initialize: str = "pass", execute: str = "pass") -> Path:
    version = folder / "models" / "m" / "1"
    version.mkdir(parents=True)
    (version / "model.py").write_text(CODE.format(initialize=initialize, execute=execute))
    (version.parent / "config.pbtxt").write_text(PYTHON)
    return folder / "models"


def quarantine(folder: Path, **more: Any) -> Quarantine:
    return Quarantine(
        Installation.find(MachineFacts.here()),
        state=folder / "state",
        logger=logging.Logger("servegate.quarantine"),
        **more,
    )


def oom_score(pid: int) -> int:
    return int(Path(f"/proc/{pid}/oom_score_adj").read_text())


def started(folder: Path) -> Any:
    """The ledger's entry of the Triton that runs."""
    (entry,) = Ledger(folder / "state" / LEDGER_FILE).entries
    return entry


PF_EXITING = 0x4  # of the kernel's include/linux/sched.h


def is_dying(pid: int) -> bool:
    """It was killed, or is ending; a process of low priority needs a moment for that."""
    try:
        flags = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[6])
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return True
    pending = [int(line.split()[1], 16) for line in lines if line.startswith(("SigPnd", "ShdPnd"))]
    return bool(flags & PF_EXITING or any(one >> (signal.SIGKILL - 1) & 1 for one in pending))


def left_behind(folder: Path) -> list[object]:
    """Processes of this quarantine that nobody has killed, and its shared memory."""
    repository = f"--model-repository={folder / 'models'}".encode()
    found: list[object] = []
    for one in rows():
        try:
            line = Path(f"/proc/{one.pid}/cmdline").read_bytes()
        except OSError:
            continue
        is_ours = repository in line or (b"stub" in line and bytes(folder) in line)
        if is_ours and not is_dying(one.pid):
            found.append(one)
    mark = hashlib.sha256(bytes(folder / "state")).hexdigest()[:8]
    return found + list(Path("/dev/shm").glob(f"servegate-{mark}-quarantine-*"))


async def ask(replica: Any) -> dict[str, Any]:
    return dict(await predict(replica, "m", 1, {"x": 3 * ONE}, timeout=PATIENCE))


@in_each_loop
async def test_a_sound_version_answers_and_nothing_is_left(tmp_path: Path) -> None:
    environ = os.environ | {"SERVEGATE_SECRET": "s3cr3t", "AWS_SECRET_ACCESS_KEY": "s3cr3t"}
    async with quarantine(tmp_path, environ=environ).trial(onnx(tmp_path), [order()]) as trial:
        assert (await ask(trial.replica))["y"].tolist() == [[3, 3]]
        assert 10 << 20 < trial.memory < 400 << 20
        entry = started(tmp_path)
        family = [one.pid for one in rows() if one.session == entry.pid]
        assert len(family) == 2
        for pid in family:
            assert oom_score(pid) == 1000
            assert os.getpriority(os.PRIO_PROCESS, pid) == 10
            assert not carries(pid, "SERVEGATE_SECRET=s3cr3t")
            assert not carries(pid, "AWS_SECRET_ACCESS_KEY=s3cr3t")
    assert left_behind(tmp_path) == []


@in_loop
async def test_trials_take_turns(tmp_path: Path) -> None:
    repository, at_once, most = python(tmp_path), 0, 0
    one = quarantine(tmp_path)

    async def attempt() -> None:
        nonlocal at_once, most
        async with one.trial(repository, [order(text=PYTHON)]) as trial:
            at_once += 1
            most = max(most, at_once)
            await ask(trial.replica)
            at_once -= 1

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(attempt())
        tasks.create_task(attempt())
    assert most == 1


# --- what a version can do wrong ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fault:
    """What a version does when it is loaded or asked, and what is said of it, as a pattern."""

    said: str
    initialize: str = "pass"
    execute: str = ""
    limits: Mapping[str, Any] = field(default_factory=dict)


FAULTS = {
    "hangs while it is loaded": Fault(
        "it was still loading after 1 s", SLEEP, limits={"loading": 1.0}
    ),
    "takes too much memory while it is loaded": Fault(
        "it used more than 300 MiB of memory while loading", ALLOCATE, limits=LARGE
    ),
    "takes too much memory when it is asked": Fault(
        "it used more than 300 MiB of memory after it was loaded",
        execute=f"{ALLOCATE}; {SLEEP}",
        limits=LARGE,
    ),
    "names the paths of this machine": Fault(
        ".*OSError: 1/model.py .*", "raise OSError(f'{__file__} {ctypes.__file__} {os.getcwd()}')"
    ),
    "crashes the server while it is loaded": Fault(
        r"its Triton died while loading: (killed by signal 11 \(SIGSEGV\); the end of its log: "
        "|exit status ).*",
        f"print('farewell', flush=True); os.kill(os.getppid(), signal.SIGSEGV); {SLEEP}",
    ),
    "crashes the server when it is asked": Fault(
        r"its Triton died after it was loaded: killed by signal 9 \(SIGKILL\).*",
        execute="os.kill(os.getppid(), signal.SIGKILL)",
    ),
    "crashes its stub while it is loaded": Fault("it did not load: .*m.*", "os.abort()"),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
@in_loop
async def test_what_a_version_does_wrong_is_said_and_nothing_is_left(
    tmp_path: Path, fault: Fault
) -> None:
    one = quarantine(tmp_path, limits=TrialLimits(**fault.limits))
    repository = python(tmp_path, fault.initialize, fault.execute or "pass")
    with pytest.raises(TrialFailed) as caught:
        async with one.trial(repository, [order(text=PYTHON)]) as trial:
            assert fault.execute, "it was loaded"
            await ask(trial.replica)
    said = str(caught.value)
    assert re.fullmatch(fault.said, said, re.DOTALL), said
    assert str(tmp_path) not in said
    assert left_behind(tmp_path) == []
    assert Ledger(tmp_path / "state" / LEDGER_FILE).entries == ()


@in_loop
async def test_a_corrupt_file_is_refused_with_tritons_sentence(tmp_path: Path) -> None:
    with pytest.raises(TrialFailed) as caught:
        await loaded(tmp_path, onnx(tmp_path, b"no onnx"), order())
    assert caught.value.what == "it did not load"
    why = caught.value.why
    assert why.startswith("load failed for model 'm': version 1 is at UNAVAILABLE state: ")
    assert "cannot load 'model.onnx': Protobuf parsing failed" in why


@in_loop
async def test_a_part_that_does_not_load_is_named(tmp_path: Path) -> None:
    with pytest.raises(TrialFailed) as caught:
        await loaded(tmp_path, onnx(tmp_path), QuarantineOrder("part", ""), order())
    assert caught.value.what == "'part', which it needs, did not load"


async def loaded(folder: Path, repository: Path, *orders: QuarantineOrder) -> None:
    async with quarantine(folder).trial(repository, orders):
        raise AssertionError("it was loaded")


@in_loop
async def test_a_server_that_crashes_while_loading_has_a_second_chance(tmp_path: Path) -> None:
    first = tmp_path / "first"
    repository = python(
        tmp_path,
        f"""if not os.path.exists({str(first)!r}):
            open({str(first)!r}, "x").close()
            os.kill(os.getppid(), signal.SIGKILL)
            time.sleep(600)""",
    )
    async with quarantine(tmp_path).trial(repository, [order(text=PYTHON)]) as trial:
        await ask(trial.replica)
    assert first.exists()
    assert left_behind(tmp_path) == []


@in_loop
async def test_a_stub_that_crashes_when_it_is_asked_is_an_error_of_that_call(
    tmp_path: Path,
) -> None:
    repository = python(tmp_path, execute="ctypes.string_at(0)")
    async with quarantine(tmp_path).trial(repository, [order(text=PYTHON)]) as trial:
        with pytest.raises((TritonFailed, Unavailable)):
            await ask(trial.replica)
    assert left_behind(tmp_path) == []


# --- other ends -----------------------------------------------------------------------------------


@in_loop
async def test_an_error_of_the_caller_passes_and_the_triton_ends(tmp_path: Path) -> None:
    with pytest.raises(TrialFailed, match="its answers are wrong"):
        async with quarantine(tmp_path).trial(python(tmp_path), [order(text=PYTHON)]):
            raise TrialFailed("its answers are wrong")
    assert left_behind(tmp_path) == []


@in_loop
async def test_a_trial_that_is_cancelled_leaves_nothing(tmp_path: Path) -> None:
    ready = asyncio.Event()

    async def attempt() -> None:
        async with quarantine(tmp_path).trial(python(tmp_path), [order(text=PYTHON)]):
            ready.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(attempt())
    await ready.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert left_behind(tmp_path) == []


@in_loop
async def test_a_triton_that_does_not_start_is_no_fault_of_the_version(tmp_path: Path) -> None:
    strange = quarantine(tmp_path, extra_args=("--no-such-flag",))
    with pytest.raises(TritonDidNotStart, match="no-such-flag"):
        async with strange.trial(onnx(tmp_path), [order()]):
            raise AssertionError("it was loaded")


@in_loop
async def test_a_bench_takes_no_step_back_loads_again_and_tells_its_death(tmp_path: Path) -> None:
    bench = quarantine(tmp_path, name="bench", steps_back=False)
    with pytest.raises(TrialFailed, match="its Triton died after it was loaded"):
        async with bench.trial(onnx(tmp_path), [order()]) as trial:
            entry = started(tmp_path)
            mine = os.getpriority(os.PRIO_PROCESS, 0)
            assert os.getpriority(os.PRIO_PROCESS, entry.pid) == mine
            assert (entry.name, trial.replica.name) == ("bench", "bench")
            await trial.again([order(text=CONFIG + "dynamic_batching { }")])
            url = f"{trial.replica.http_url}/v2/models/m/config"
            page = json.loads(await asyncio.to_thread(lambda: urlopen(url).read()))
            assert "dynamic_batching" in page
            with pytest.raises(TrialFailed, match="it did not load"):
                await trial.again([order(text=CONFIG.replace("onnxruntime", "none"))])
            await trial.again([order()])
            os.kill(entry.pid, signal.SIGKILL)
            await trial.is_over()  # while nobody asks
    assert left_behind(tmp_path) == []


PARENT = """
import asyncio, logging, sys
from pathlib import Path
from serve.triton.config import parse
from serve.triton.installation import Installation, MachineFacts
from serve.triton.quarantine import Quarantine, QuarantineOrder

async def main(folder):
    quarantine = Quarantine(
        Installation.find(MachineFacts.here()),
        state=folder / "state",
        logger=logging.getLogger("servegate.quarantine"),
    )
    text = (folder / "models" / "m" / "config.pbtxt").read_text()
    order = QuarantineOrder("m", parse(text).for_load([1]))
    async with quarantine.trial(folder / "models", [order]):
        print("loaded", flush=True)
        await asyncio.Event().wait()

asyncio.run(main(Path(sys.argv[1])))
"""


def test_a_killed_parent_leaves_nothing_to_the_next_quarantine(tmp_path: Path) -> None:
    python(tmp_path, BUSY)
    argv = (sys.executable, "-c", PARENT, str(tmp_path))
    with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "loaded\n"
        entry = started(tmp_path)
        (stub,) = (r.pid for r in rows() if r.session == entry.pid and r.pid != entry.pid)
        parent.send_signal(signal.SIGKILL)
    assert ends(entry.pid, PATIENCE)  # at once, by the kernel; the busy stub lives on
    assert len(left_behind(tmp_path)) == 2  # and its shared memory
    quarantine(tmp_path)
    assert ends(stub, PATIENCE)
    assert left_behind(tmp_path) == []
