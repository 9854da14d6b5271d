"""Publishing with the real reader of model files and a real Triton in quarantine."""

import logging
from pathlib import Path

import numpy as np
import pytest
from builders import write_model
from control.publishing import Scene, play
from triton.onnx_models import config, node, onnx_file, tensor

from serve.control.artifacts.storage import ArtifactStorage
from serve.control.decisions import Decisions
from serve.control.placement import pinned_parts
from serve.control.reconciliation.contracts import Contracts
from serve.core.versions import VersionState
from serve.model_files.reader import read_model
from serve.tensors.contracts import Case, write_contract
from serve.triton.installation import Installation, MachineFacts
from serve.triton.quarantine import Quarantine

pytestmark = [pytest.mark.triton, pytest.mark.slow]
CONFIG = config("x FP32 [2]", "y FP32 [2]")
ENSEMBLE = """
platform: "ensemble"
max_batch_size: 8
input { name: "a" data_type: TYPE_FP32 dims: 2 }
output { name: "d" data_type: TYPE_FP32 dims: 2 }
ensemble_scheduling {
  step { model_name: "m" model_version: 1
    input_map { key: "x" value: "a" } output_map { key: "y" value: "b" } }
  step { model_name: "m" model_version: 2
    input_map { key: "x" value: "b" } output_map { key: "y" value: "c" } }
  step { model_name: "plain" model_version: -1
    input_map { key: "x" value: "c" } output_map { key: "y" value: "d" } }
}
"""
ONE = np.array([[1, 2]], np.float32)


def onnx(operator: str) -> bytes:
    x, y = tensor("x", "FP32", "n", 2), tensor("y", "FP32", "n", 2)
    return onnx_file([x], [y], node(operator, "x", "y"))


def contract(taken: str, given: str, expected: np.ndarray) -> dict[str, bytes]:
    return dict(write_contract([Case({taken: ONE}, {given: expected.astype(np.float32)})]))


def scene(folder: Path) -> Scene:
    quarantine = Quarantine(
        Installation.find(MachineFacts.here()),
        state=folder / "quarantine",
        logger=logging.Logger("servegate.quarantine"),
    )
    storage = ArtifactStorage.of(str(folder / "storage"))
    judge = Contracts(storage, decisions=Decisions).judge
    return Scene(folder, quarantine=quarantine, read_model=read_model, judge=judge)


def test_versions_and_an_ensemble_of_them_pass_a_real_quarantine(tmp_path: Path) -> None:
    one = scene(tmp_path)

    async def run() -> None:
        write_model(one.plane.repository, "plain", 1, config=CONFIG)
        (one.plane.repository / "plain" / "1" / "model.onnx").write_bytes(onnx("Neg"))
        await one.plane.inventory.scan()
        negative = {"1/model.onnx": onnx("Neg")} | contract("x", "y", -ONE)
        first = await one.publish("m", negative)  # its configuration is generated
        assert first.is_published and first.memory is not None, first.reason
        second = await one.publish("m", {"1/model.onnx": onnx("Exp")})
        assert second.is_published and second.physical == first.physical, second.reason
        answers = contract("a", "d", -np.exp(-ONE))
        ensemble = {"config.pbtxt": ENSEMBLE.encode(), "1/empty": b""}
        outer = await one.publish("e", ensemble | answers)
        assert outer.is_published, outer.reason
        assert pinned_parts(outer) == (("m", 1), ("m", 2), ("plain", 1))
        wrong = await one.publish("e", ensemble | contract("a", "d", ONE))
        assert wrong.state is VersionState.FAILED and "output 'd'" in wrong.reason, wrong.reason
        assert not (one.plane.repository / "plain" / "1" / "__pycache__").exists()

    play(one, run)


def test_a_file_that_is_no_model_fails_before_any_triton_sees_it(tmp_path: Path) -> None:
    one = scene(tmp_path)

    async def run() -> None:
        version = await one.publish("m", {"config.pbtxt": CONFIG.encode(), "1/model.onnx": b"no"})
        assert version.state is VersionState.FAILED and "model.onnx" in version.reason
        assert str(tmp_path) not in version.reason

    play(one, run)
