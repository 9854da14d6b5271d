"""A plan built and asked on a real GPU. Not collected by itself: it needs one, and TensorRT.

pip install tensorrt-cu12==10.13.2.6        # or another version from 10 on
python -m pytest tests/workbench/conversion/plans/check_gpu.py
"""

import asyncio
from pathlib import Path

import pytest

from serve.workbench.conversion.limits import default_limits
from serve.workbench.conversion.plans.added_flavours import add_plan
from serve.workbench.conversion.plans.arguments import Options
from serve.workbench.conversion.plans.facts import Hardware
from serve.workbench.conversion.plans.onsite import first_device
from serve.workbench.conversion.plans.preparation import WantedPlan, build_here
from serve.workbench.conversion.plans.profiles import parse_profile
from serve.workbench.conversion.request import Precision

from .kit_scene import write_entry

PROFILE = parse_profile("x=1x3:8x3:8x3")
CHOICES = (
    Options((PROFILE,)),
    Options((PROFILE,), tf32=True, version_compatible=True),
    Options((PROFILE,), hardware=Hardware.AMPERE, workspace=1 << 30),
)


@pytest.mark.parametrize("options", CHOICES)
def test_a_plan_is_built_answers_the_golden_cases_and_becomes_a_flavour(
    tmp_path: Path, options: Options
) -> None:
    entry = write_entry(tmp_path / "twice")
    wanted = WantedPlan(entry / "1" / "model.onnx", options, Precision.FP32, entry / "contract")
    built = asyncio.run(
        build_here(wanted, tmp_path / "work", limits=default_limits(), on_event=print)
    )
    facts = built.facts
    assert (facts.compute_capability, facts.device) == first_device()
    assert facts.layers.get("fp32")
    assert add_plan(entry, 1, built.file, facts).file == facts.file
