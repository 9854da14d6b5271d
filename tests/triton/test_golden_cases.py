"""Golden cases against a real Triton: right, wrong, refused, of sequences, and out of reach."""

import logging
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from loops import in_loop

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

from .client_models import SLOW
from .onnx_models import Model, config, identity
from .sequence_models import SUMS

pytestmark = pytest.mark.triton

PATIENCE = 60.0
ONE = np.ones((1, 2), np.float32)
CONFIG = config("x FP32 [2]", "y FP32 [2]", "instance_group { kind: KIND_CPU count: 2 }")


def version(name: str = "m", text: str = CONFIG) -> PublishedVersion:
    provenance = Provenance("somebody", 0.0)
    return PublishedVersion(
        name, 1, VersionState.CHECKED, "", provenance, physical=name, config=text
    )


def contracts(folder: Path) -> Contracts:
    return Contracts(ArtifactStorage.of(str(folder / "storage")), decisions=Decisions)


def contract(x: Any, y: Any, output: str = "y", **more: Any) -> Contract:
    return Contract((Case({"x": x}, {output: y}, **more),))


def trial(folder: Path, name: str, text: str) -> AbstractAsyncContextManager[QuarantineTrial]:
    quarantine = Quarantine(
        Installation.find(MachineFacts.here()),
        state=folder / "state",
        logger=logging.Logger("servegate.quarantine"),
    )
    orders = [QuarantineOrder(name, parse(text).for_load([1]))]
    return quarantine.trial(folder / "models", orders)


@in_loop
async def test_a_graph_is_judged_by_its_answers(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    Model({1: identity("BF16", "n", 2)}, None).write(tmp_path / "models" / "m")
    text = config("x BF16 [2]", "y BF16 [2]")
    asked, as_bf16 = contracts(tmp_path), {"datatypes": {"x": "BF16"}}
    async with trial(tmp_path, "m", text) as loaded:
        for given, begin in (
            (contract(ONE, ONE, **as_bf16), ""),
            (
                contract(ONE, 2 * ONE, **as_bf16),
                "golden case 0: output 'y'[0,0] is 1, expected 2 (off by 1, allowed 0.0021)",
            ),
            (contract(ONE, ONE, output="z"), "golden case 0: "),
            (
                contract(ONE.astype(np.int64), ONE, **as_bf16),
                "golden case 0: tensor 'x' is a numpy array of int64",
            ),
            (contract(np.ones((1, 3)), ONE), "golden case 0: "),
        ):
            why = await asked.judge(loaded.replica, version(), given)
            assert why.startswith(begin) and bool(why) == bool(begin), why
        await asked.warm(loaded.replica, version(text=text))


@pytest.mark.slow
@in_loop
async def test_a_sequence_model_is_asked_one_sequence_for_each_case(tmp_path: Path) -> None:
    SUMS.write(tmp_path / "models")
    x = np.array([[3]], np.float32)
    case = Case({"x": x}, {"sum": x}, tolerance=Tolerance(atol=0.0))
    async with trial(tmp_path, SUMS.name, SUMS.config) as loaded:
        sums, twice = version(SUMS.name, SUMS.config), Contract((case, case))
        assert await contracts(tmp_path).judge(loaded.replica, sums, twice) == ""
        with pytest.raises(TritonFailed, match="non-zero or non-empty correlation ID"):
            await predict(loaded.replica, SUMS.name, 1, {"x": x}, timeout=PATIENCE)


@pytest.mark.slow
@in_loop
async def test_a_version_that_is_unknown_late_or_out_of_reach_is_told_apart(tmp_path: Path) -> None:
    SLOW.write(tmp_path / "models")
    later = {"x": np.array([60.0], np.float32)}
    async with trial(tmp_path, SLOW.name, SLOW.config) as loaded:
        with pytest.raises(TritonFailed, match="unknown model"):
            await predict(loaded.replica, "n", 1, later, timeout=PATIENCE)
        with pytest.raises(DeadlineExceeded, match=r"quarantine gave no answer within 0\.1 s"):
            await predict(loaded.replica, SLOW.name, 1, later, timeout=0.1)
        nobody = Replica("b", "127.0.0.1", 1, 1, 1)
        with pytest.raises(Unavailable, match="the request to replica b failed"):
            await predict(nobody, SLOW.name, 1, later, timeout=PATIENCE)
