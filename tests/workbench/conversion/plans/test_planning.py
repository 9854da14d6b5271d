"""The child for TensorRT: what it finds before a GPU is used, and how it ends without one."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from refusals import refusal

from serve.core.errors import ConversionFailed
from serve.workbench.conversion.limits import ConversionLimits
from serve.workbench.conversion.plans.arguments import Options
from serve.workbench.conversion.plans.preparation import (
    WantedPlan,
    build_here,
    can_build_here,
    preflight,
)
from serve.workbench.conversion.request import Precision

from .kit_scene import doubling

LIMITS = ConversionLimits(memory=1 << 30, seconds=60)


def looked_at(model: bytes, folder: Path) -> tuple[Precision, list[Mapping[str, Any]]]:
    (folder / "model.onnx").write_bytes(model)
    events: list[Mapping[str, Any]] = []
    work = folder / "work"
    try:
        found = asyncio.run(
            preflight(folder / "model.onnx", work, limits=LIMITS, on_event=events.append)
        )
    finally:
        assert not work.exists()
    return found, events


def test_a_file_that_tensorrt_can_take_is_told_by_its_precision(tmp_path: Path) -> None:
    found, events = looked_at(doubling(), tmp_path)
    assert found is Precision.FP32
    assert events[-1]["type"] == "done"


@pytest.mark.slow
def test_a_node_that_tensorrt_cannot_take_is_named(tmp_path: Path) -> None:
    refused = refusal(ConversionFailed, looked_at, doubling("BitwiseNonsense"), tmp_path)
    assert refused.code == "trt_unsupported"
    assert (refused.operator, refused.node) == ("BitwiseNonsense", "twice")


def test_a_file_that_is_broken_is_a_fault_and_no_traceback(tmp_path: Path) -> None:
    for model in (b"\xff\xff nothing", doubling()[:40], doubling("QLinearMatMul")):
        refused = refusal(ConversionFailed, looked_at, model, tmp_path)
        assert refused.code == "source_corrupt"
        assert "Traceback" not in refused.why


def test_without_tensorrt_no_plan_is_built_here(tmp_path: Path) -> None:
    """TensorRT is no part of the environment that tests run in."""
    assert not can_build_here()
    wanted = WantedPlan(tmp_path / "model.onnx", Options(), Precision.FP32)
    building = build_here(wanted, tmp_path / "work", limits=LIMITS, on_event=print)
    assert refusal(ConversionFailed, asyncio.run, building).code == "trt_missing"
    assert not (tmp_path / "work").exists()
