"""A quarantine that measures: as important as everything else, and loaded again and again."""

import asyncio
import json
import os
import signal
from pathlib import Path
from urllib.request import urlopen

import pytest

from serve.core.errors import TrialFailed
from serve.processes import Ledger
from serve.triton.quarantine import LEDGER_FILE

from .test_quarantine import CONFIG, left_behind, on, onnx, order, quarantine

pytestmark = [pytest.mark.triton, pytest.mark.slow]


def test_it_takes_no_step_back_and_loads_again_with_another_configuration(tmp_path: Path) -> None:
    async def work() -> None:
        bench = quarantine(tmp_path, name="bench", steps_back=False)
        async with bench.trial(onnx(tmp_path), [order()]) as trial:
            (entry,) = Ledger(tmp_path / "state" / LEDGER_FILE).entries
            mine = os.getpriority(os.PRIO_PROCESS, 0)
            assert os.getpriority(os.PRIO_PROCESS, entry.pid) == mine
            assert (entry.name, trial.replica.name) == ("bench", "bench")
            await trial.again([order(text=CONFIG + "dynamic_batching { }")])
            url = f"http://{trial.replica.host}:{trial.replica.http_port}/v2/models/m/config"
            page = json.loads(await asyncio.to_thread(lambda: urlopen(url).read()))
            assert "dynamic_batching" in page
            with pytest.raises(TrialFailed, match="it did not load"):
                await trial.again([order(text=CONFIG.replace("onnxruntime", "none"))])

    on(asyncio.run, work())
    assert left_behind(tmp_path) == []


def test_its_death_is_told_while_nobody_asks(tmp_path: Path) -> None:
    async def work() -> None:
        bench = quarantine(tmp_path, name="bench", steps_back=False)
        async with bench.trial(onnx(tmp_path), [order()]) as trial:
            (entry,) = Ledger(tmp_path / "state" / LEDGER_FILE).entries
            os.kill(entry.pid, signal.SIGKILL)
            await trial.is_over()

    with pytest.raises(TrialFailed, match="its Triton died after it was loaded"):
        on(asyncio.run, work())
