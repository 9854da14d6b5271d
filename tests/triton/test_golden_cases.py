"""Golden cases against a real Triton: right, wrong, refused, of sequences, and out of reach."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from serve.control.artifacts.storage import ArtifactStorage
from serve.control.decisions import Decisions
from serve.control.reconciliation.contracts import Contracts
from serve.control.versions import PublishedVersion
from serve.core.errors import DeadlineExceeded, TritonFailed, Unavailable
from serve.core.replicas import Replica
from serve.core.versions import Provenance, VersionState
from serve.tensors.contracts import Case, Contract, Tolerance
from serve.triton.config import parse
from serve.triton.direct_prediction import predict
from serve.triton.installation import Installation, MachineFacts
from serve.triton.quarantine import Quarantine, QuarantineOrder, QuarantineTrial

from .onnx_models import Model, config, identity
from .sequence_models import SUMS

pytestmark = pytest.mark.triton

PATIENCE = 60.0
ONE = np.ones((1, 2), np.float32)
CONFIG = config("x FP32 [2]", "y FP32 [2]", "instance_group { kind: KIND_CPU count: 2 }")
SLOW = """
import time
import triton_python_backend_utils as pb

class TritonPythonModel:
    def execute(self, requests):
        time.sleep(600)
"""


def version(name: str = "m", text: str = CONFIG) -> PublishedVersion:
    provenance = Provenance("somebody", 0.0)
    return PublishedVersion(
        name, 1, VersionState.CHECKED, "", provenance, physical=name, config=text
    )


def contracts(folder: Path) -> Contracts:
    return Contracts(ArtifactStorage.of(str(folder / "storage")), decisions=Decisions)


def contract(x: Any, y: Any, output: str = "y", **more: Any) -> Contract:
    return Contract((Case({"x": x}, {output: y}, **more),))


def with_trial(
    folder: Path, name: str, text: str, body: Callable[[QuarantineTrial], Awaitable[None]]
) -> Any:
    @asynccontextmanager
    async def bounded() -> AsyncIterator[QuarantineTrial]:
        quarantine = Quarantine(
            Installation.find(MachineFacts.here()),
            state=folder / "state",
            logger=logging.Logger("servegate.quarantine"),
        )
        async with asyncio.timeout(PATIENCE):
            orders = [QuarantineOrder(name, parse(text).for_load([1]))]
            async with quarantine.trial(folder / "models", orders) as trial:
                yield trial

    async def main() -> None:
        async with bounded() as trial:
            await body(trial)

    asyncio.run(main())


def test_a_graph_is_judged_by_its_answers(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    Model({1: identity("BF16", "n", 2)}, None).write(tmp_path / "models" / "m")
    text = config("x BF16 [2]", "y BF16 [2]")

    async def body(trial: QuarantineTrial) -> None:
        asked = contracts(tmp_path)
        as_bf16 = {"datatypes": {"x": "BF16"}}
        assert await asked.judge(trial.replica, version(), contract(ONE, ONE, **as_bf16)) == ""
        why = await asked.judge(trial.replica, version(), contract(ONE, 2 * ONE, **as_bf16))
        assert why == "golden case 0: output 'y'[0,0] is 1, expected 2 (off by 1, allowed 0.0021)"
        why = await asked.judge(trial.replica, version(), contract(ONE, ONE, output="z"))
        assert why.startswith("golden case 0: ")
        wrong = ONE.astype(np.int64)
        why = await asked.judge(trial.replica, version(), contract(wrong, ONE, **as_bf16))
        assert why.startswith("golden case 0: tensor 'x' is a numpy array of int64")
        why = await asked.judge(trial.replica, version(), contract(np.ones((1, 3)), ONE))
        assert "m" in why
        await asked.warm(trial.replica, version(text=text))

    with_trial(tmp_path, "m", text, body)


@pytest.mark.slow
def test_a_sequence_model_is_asked_one_sequence_for_each_case(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    SUMS.write(tmp_path / "models")
    text = (tmp_path / "models" / SUMS.name / "config.pbtxt").read_text()
    x = np.array([[3]], np.float32)

    async def body(trial: QuarantineTrial) -> None:
        case = Case({"x": x}, {"sum": x}, tolerance=Tolerance(atol=0.0))
        asked = contracts(tmp_path)
        sums = version(SUMS.name, text)
        assert await asked.judge(trial.replica, sums, Contract((case, case))) == ""
        with pytest.raises(TritonFailed, match="non-zero or non-empty correlation ID"):
            await predict(trial.replica, SUMS.name, 1, {"x": x}, timeout=PATIENCE)

    with_trial(tmp_path, SUMS.name, text, body)


@pytest.mark.slow
def test_a_version_that_is_unknown_late_or_out_of_reach_is_told_apart(tmp_path: Path) -> None:
    text = CONFIG.replace("onnxruntime", "python")
    folder = tmp_path / "models" / "m" / "1"
    folder.mkdir(parents=True)
    (folder / "model.py").write_text(SLOW)

    async def body(trial: QuarantineTrial) -> None:
        with pytest.raises(TritonFailed, match="unknown model"):
            await predict(trial.replica, "n", 1, {"x": ONE}, timeout=PATIENCE)
        with pytest.raises(DeadlineExceeded, match=r"quarantine gave no answer within 0\.1 s"):
            await predict(trial.replica, "m", 1, {"x": ONE}, timeout=0.1)
        nobody = Replica("b", "127.0.0.1", 1, 1, 1)
        with pytest.raises(Unavailable, match="the request to replica b failed"):
            await predict(nobody, "m", 1, {"x": ONE}, timeout=PATIENCE)

    with_trial(tmp_path, "m", text, body)
