"""Flavours of an entry: their files, their list and its order."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from serve.core.errors import Invalid
from serve.core.flavours import Flavour, VersionFlavours
from serve.triton.config import parse
from serve.workbench.conversion.plans.accelerator import accelerated
from serve.workbench.conversion.plans.added_flavours import add_flavours, add_plan
from serve.workbench.conversion.plans.facts import Hardware, PlanFacts
from serve.workbench.conversion.plans.profiles import parse_profile
from serve.workbench.conversion.request import Precision

from .kit_scene import CONFIG, HEADER, write_entry

FACTS = PlanFacts("10.13.2.6", "9.0", "NVIDIA H100", Precision.FP32, "ab" * 32, 9)
BASE = parse(CONFIG)


@pytest.fixture
def entry(tmp_path: Path) -> Path:
    return write_entry(tmp_path / "twice")


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    file = tmp_path / "made.plan"
    file.write_bytes(HEADER + b"one")
    return file


def flavours(entry: Path) -> VersionFlavours:
    return VersionFlavours.parse((entry / "flavours.json").read_text())


def names(entry: Path) -> list[str]:
    return [each.name for each in flavours(entry).preferred]


def test_a_plan_lies_beside_the_onnx_file_with_its_facts(entry: Path, plan: Path) -> None:
    flavour = add_plan(entry, 1, plan, FACTS)
    assert (entry / "1" / flavour.file).read_bytes() == plan.read_bytes()
    assert flavours(entry).preferred == (flavour,)
    page = json.loads((entry / "plans.json").read_text())
    assert PlanFacts.from_json(page["plans"]["plan-sm90"]) == FACTS
    assert {each.name for each in (entry / "1").iterdir()} == {"model.onnx", flavour.file}


def test_plans_for_one_gpu_come_first_and_engines_built_late_last(entry: Path, plan: Path) -> None:
    profile = parse_profile("x=1x3:8x3:8x3")
    add_flavours(entry, [accelerated(BASE, [profile], Precision.FP32)])
    add_plan(entry, 1, plan, replace(FACTS, hardware=Hardware.AMPERE))
    add_plan(entry, 1, plan, FACTS)
    add_plan(entry, 1, plan, replace(FACTS, compute_capability="8.9"))
    assert names(entry) == ["plan-sm89", "plan-sm90", "plan-ampere+", "onnx+trt"]


def test_a_plan_of_the_same_name_takes_the_place_of_the_first(entry: Path, plan: Path) -> None:
    add_plan(entry, 1, plan, FACTS)
    plan.write_bytes(HEADER + b"two")
    add_plan(entry, 1, plan, replace(FACTS, tensorrt="11.1.0.106"))
    (only,) = flavours(entry).preferred
    assert only.needs.tensorrt == ("11.1.0.106",)
    assert (entry / "1" / only.file).read_bytes().endswith(b"two")


def test_what_others_have_listed_stays(entry: Path) -> None:
    mine = VersionFlavours((Flavour("mine", file="other.onnx"),), base=False)
    (entry / "flavours.json").write_text(mine.text())
    add_flavours(entry, [accelerated(BASE, [], Precision.FP32)])
    assert names(entry) == ["mine", "onnx+trt"]
    assert flavours(entry).base is False


def test_a_broken_list_or_a_missing_plan_changes_nothing(entry: Path, plan: Path) -> None:
    with pytest.raises(OSError):
        add_plan(entry, 1, plan.with_name("missing.plan"), FACTS)
    assert not (entry / "flavours.json").exists()
    (entry / "flavours.json").write_text("{")
    with pytest.raises(Invalid):
        add_plan(entry, 1, plan, FACTS)
    assert (entry / "flavours.json").read_text() == "{"
    assert [each.name for each in (entry / "1").iterdir()] == ["model.onnx"]
