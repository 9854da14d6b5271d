"""The way to a plan from this side: what TensorRT cannot take, and a plan that is built here.

Each is a child process under limits, see `child.py`: TensorRT and ONNX never enter this one. The
build sees the GPU, and nothing else more than a conversion does.
"""

import json
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from serve.processes import Program
from serve.workbench.conversion.child_watch import follow
from serve.workbench.conversion.events import OnEvent
from serve.workbench.conversion.faults import failed
from serve.workbench.conversion.limits import ConversionLimits, surroundings
from serve.workbench.conversion.plans.arguments import Options
from serve.workbench.conversion.plans.facts import PlanFacts
from serve.workbench.conversion.plans.kits import Built
from serve.workbench.conversion.request import Precision

_TASK, _RESULT, _PLAN = "task.json", "result.json", "model.plan"
_PATHS = ("onnx", "plan", "contract", "timing_cache")
_HIDDEN = "CUDA_VISIBLE_DEVICES"
_OF_THE_GPU = (_HIDDEN, "CUDA_DEVICE_ORDER", "CUDA_MODULE_LOADING", "NVIDIA_VISIBLE_DEVICES")


@dataclass(frozen=True, slots=True)
class WantedPlan:
    """A plan to be built here. `contract`: the folder of the golden cases, or None for none."""

    onnx: Path
    options: Options
    precision: Precision
    contract: Path | None = None
    image: str = ""


def can_build_here() -> bool:
    """Whether TensorRT is installed; not whether there is a GPU for it."""
    return find_spec("tensorrt") is not None


async def preflight(
    onnx: Path, work: Path, *, limits: ConversionLimits, on_event: OnEvent
) -> Precision:
    """What a file computes in; `trt_unsupported` names the first node that TensorRT cannot take.

    `work` is a folder for this call; it is removed.
    """
    task = {"task": "preflight", "onnx": str(onnx)}
    found = await _run(task, work, limits, on_event)
    shutil.rmtree(work, ignore_errors=True)
    compute = found["contents"]["compute"]
    kinds = [each for each in (Precision.INT8, Precision.FP16) if compute.get(str(each))]
    return kinds[0] if kinds else Precision.FP32


async def build_here(
    wanted: WantedPlan, work: Path, *, limits: ConversionLimits, on_event: OnEvent
) -> Built:
    """A plan whose golden answers are right, in `work`. Raises the fault otherwise.

    `trt_missing`, `trt_unsupported`, `trt_profile`, `trt_build_failed`, `precision_missing`,
    `numbers_differ`, and what breaks a limit.
    """
    if not can_build_here():
        raise failed("trt_missing")
    task = {
        "task": "build",
        "onnx": str(wanted.onnx),
        "plan": str(work / _PLAN),
        "precision": str(wanted.precision),
        "contract": str(wanted.contract or ""),
        "image": wanted.image,
        **wanted.options.to_json(),
    }
    page = await _run(task, work, limits, on_event)
    return Built(work / _PLAN, PlanFacts.from_json(page))


async def _run(
    task: Mapping[str, Any], work: Path, limits: ConversionLimits, on_event: OnEvent
) -> dict[str, Any]:
    """The result of one child; the folder is gone when there is none."""
    program = _program(task, work)
    try:
        await follow(program, limits=limits, on_event=on_event)
        page: dict[str, Any] = json.loads((work / _RESULT).read_bytes())
        return page
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise


def _program(task: Mapping[str, Any], work: Path) -> Program:
    """The child in its folder, with its task; paths of the task are made absolute."""
    work.mkdir(parents=True, exist_ok=True)
    paths = {name: str(Path(task[name]).resolve()) for name in _PATHS if task.get(name)}
    (work / _TASK).write_text(json.dumps({**task, **paths}))
    env = surroundings(work.resolve())
    if task["task"] == "build":
        env.pop(_HIDDEN)
        env |= {name: os.environ[name] for name in _OF_THE_GPU if name in os.environ}
    module = "serve.workbench.conversion.plans.child"
    words = (sys.executable, "-P", "-m", module, str(work.resolve() / _TASK))
    return Program("servegate-planner", words, env, cwd=work, grace=0.0)
