"""Golden cases against a real Triton: right, wrong, refused, of sequences, and out of reach."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from serve.control.artifacts.storage import Storage
from serve.control.decisions import Decisions
from serve.control.reconciling.contracts import Contracts
from serve.control.versions import Version
from serve.core.errors import DeadlineExceeded, TritonFailed, Unavailable
from serve.core.replicas import Replica
from serve.core.versions import Provenance, State
from serve.tensors.contracts import Case, Contract, Tolerance
from serve.triton.config import parse
from serve.triton.installation import Facts, Installation
from serve.triton.predicting import predict
from serve.triton.quarantine import Order, Quarantine

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


def version(name: str = "m", text: str = CONFIG) -> Version:
    provenance = Provenance("somebody", 0.0)
    return Version(name, 1, State.CHECKED, "", provenance, physical=name, config=text)


def contract(x: Any, y: Any, output: str = "y", **more: Any) -> Contract:
    return Contract((Case({"x": x}, {output: y}, **more),))


def test_versions_are_judged_by_their_answers_in_one_triton(tmp_path: Path) -> None:
    repository = tmp_path / "models"
    repository.mkdir()
    Model({1: identity("BF16", "n", 2)}, None).write(repository / "m")
    SUMS.write(repository)
    (repository / "slow" / "1").mkdir(parents=True)
    (repository / "slow" / "1" / "model.py").write_text(SLOW)
    texts = {
        "m": config("x BF16 [2]", "y BF16 [2]"),
        SUMS.name: (repository / SUMS.name / "config.pbtxt").read_text(),
        "slow": CONFIG.replace("onnxruntime", "python"),
    }

    async def main() -> None:
        quarantine = Quarantine(
            Installation.find(Facts.here()),
            state=tmp_path / "state",
            logger=logging.Logger("servegate.quarantine"),
        )
        orders = [Order(name, parse(text).for_load([1])) for name, text in texts.items()]
        contracts = Contracts(Storage.of(str(tmp_path / "storage")), decisions=Decisions)
        async with asyncio.timeout(PATIENCE), quarantine.trial(repository, orders) as trial:
            await judge_a_graph(contracts, trial.replica, texts["m"])
            await judge_a_sequence(contracts, trial.replica, texts[SUMS.name])
            await fail_to_predict(trial.replica)

    asyncio.run(main())


async def judge_a_graph(contracts: Contracts, replica: Replica, text: str) -> None:
    as_bf16 = {"datatypes": {"x": "BF16"}}
    assert await contracts.judge(replica, version(), contract(ONE, ONE, **as_bf16)) == ""
    for case, why in (
        (
            contract(ONE, 2 * ONE, **as_bf16),
            "output 'y'[0,0] is 1, expected 2 (off by 1, allowed 0.0021)",
        ),
        (contract(ONE, ONE, output="z"), ""),
        (
            contract(ONE.astype(np.int64), ONE, **as_bf16),
            "tensor 'x' is a numpy array of int64",
        ),
        (contract(np.ones((1, 3)), ONE), ""),
    ):
        said = await contracts.judge(replica, version(), case)
        assert said.startswith(f"golden case 0: {why}"), case
    await contracts.warm(replica, version(text=text))


async def judge_a_sequence(contracts: Contracts, replica: Replica, text: str) -> None:
    """Each case is one sequence."""
    x = np.array([[3]], np.float32)
    case = Case({"x": x}, {"sum": x}, tolerance=Tolerance(atol=0.0))
    assert await contracts.judge(replica, version(SUMS.name, text), Contract((case, case))) == ""
    with pytest.raises(TritonFailed, match="non-zero or non-empty correlation ID"):
        await predict(replica, SUMS.name, 1, {"x": x}, timeout=PATIENCE)


async def fail_to_predict(replica: Replica) -> None:
    with pytest.raises(TritonFailed, match="unknown model"):
        await predict(replica, "n", 1, {"x": ONE}, timeout=PATIENCE)
    with pytest.raises(DeadlineExceeded, match=r"quarantine gave no answer within 0\.1 s"):
        await predict(replica, "slow", 1, {"x": ONE}, timeout=0.1)
    nobody = Replica("b", "127.0.0.1", 1, 1, 1)
    with pytest.raises(Unavailable, match="asking replica b failed"):
        await predict(nobody, "m", 1, {"x": ONE}, timeout=PATIENCE)
