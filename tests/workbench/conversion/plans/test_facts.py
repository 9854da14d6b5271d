"""What a plan is said to be: its name, what it needs of a machine, and its precision."""

import json
from dataclasses import replace

from refusals import refusal

from serve.core.errors import GateRefused, Invalid
from serve.core.flavours import Machine, VersionFlavours
from serve.triton.config import parse
from serve.triton.flavoured import configured, refused_overrides
from serve.workbench.conversion.plans.accelerator import accelerated
from serve.workbench.conversion.plans.facts import Hardware, PlanFacts, layers_of, require_precision
from serve.workbench.conversion.plans.profiles import parse_profile
from serve.workbench.conversion.request import Precision

PROFILE = parse_profile("x=1x8x8x1:8x8x8x1:32x8x8x1")
FACTS = PlanFacts(
    "10.13.2.6", "9.0", "NVIDIA H100", Precision.FP16, "ab" * 32, 7, profiles=(PROFILE,)
)
BASE = parse('backend: "onnxruntime" max_batch_size: 32')


def test_a_plan_runs_on_its_own_tensorrt_and_gpu_alone_unless_it_is_compatible() -> None:
    def runs(facts: PlanFacts, capability: str, tensorrt: str) -> bool:
        return not facts.needs.lacking(Machine(capability, tensorrt, gpu=True))

    assert (FACTS.name, FACTS.file) == ("plan-sm90", "model.plan-sm90.plan")
    flavour = FACTS.flavour({})
    assert (flavour.name, flavour.file, flavour.needs) == (FACTS.name, FACTS.file, FACTS.needs)
    assert runs(FACTS, "9.0", "10.13.2")
    assert not runs(FACTS, "8.0", "10.13.2") and not runs(FACTS, "9.0", "10.13.3")
    assert FACTS.needs.lacking(Machine())
    versions = replace(FACTS, version_compatible=True)
    assert runs(versions, "9.0", "10.14.1") and not runs(versions, "9.0", "11.1.0")
    wide = replace(FACTS, hardware=Hardware.AMPERE)
    assert (wide.name, wide.file) == ("plan-ampere+", "model.plan-ampere-plus.plan")
    assert runs(wide, "8.6", "10.13.2") and not runs(wide, "7.5", "10.13.2")


def test_facts_and_flavours_survive_their_files() -> None:
    facts = replace(FACTS, layers={"fp16": 3}, image="triton", hardware=Hardware.AMPERE)
    assert PlanFacts.from_json(json.loads(json.dumps(facts.to_json()))) == facts
    listed = VersionFlavours((facts.flavour({}),))
    assert VersionFlavours.parse(listed.text()) == listed


def test_facts_that_cannot_be_are_refused() -> None:
    for change in (
        {"compute_capability": "../../etc"},
        {"compute_capability": 9},
        {"tensorrt": ""},
        {"sha256": "no"},
        {"layers": 3},
        {"precision": "fp4"},
        {"another": 1},
    ):
        refusal(Invalid, PlanFacts.from_json, FACTS.to_json() | change)


def test_layers_are_counted_by_what_they_give() -> None:
    layers: list[tuple[object, dict[str, int]]] = [
        ([{"Outputs": [{"Format/Datatype": "Row major linear FP32"}]}], {"fp32": 1}),
        ([{"Outputs": [{"Format/Datatype": "Half"}]}, {"Outputs": []}], {"fp16": 1, "other": 1}),
        ([{"Outputs": [{"Datatype": "Int8", "Format": "NC/32HW32"}]}], {"int8": 1}),
        ([{"Outputs": [{"Format/Datatype": "N/A due to dynamic shapes"}]}], {}),
        (["conv1"], {}),
    ]
    for given, counts in layers:
        assert dict(layers_of(json.dumps({"Layers": given}))) == counts
    for text in ("", "[]", "{}", '{"Layers": 3}', "{", "null"):  # the inspector tells nothing
        assert not layers_of(text), text


def test_a_plan_without_a_layer_of_the_wanted_type_is_refused() -> None:
    refused = refusal(GateRefused, require_precision, Precision.FP16, {"fp32": 5})
    assert refused.code == "precision_missing"
    assert "no layer of the plan computes in fp16; its layers: 5 in fp32" in str(refused)
    require_precision(Precision.FP16, {"fp32": 5, "fp16": 1})
    require_precision(Precision.FP32, {"fp32": 5})
    require_precision(Precision.INT8, {})  # nothing is known
    assert "was not checked for fp16" in FACTS.unchecked
    assert not replace(FACTS, layers={"fp16": 1}).unchecked
    assert not replace(FACTS, precision=Precision.FP32).unchecked


def test_the_accelerated_flavour_says_shapes_and_cache_and_no_precision() -> None:
    flavour = accelerated(BASE, (PROFILE,), Precision.FP32, workspace=1 << 30)
    page = json.dumps(flavour.to_json())
    assert "precision_mode" not in page
    loaded = configured(BASE, flavour, "/cache")
    (accelerator,) = loaded.message.optimization.execution_accelerators.gpu_execution_accelerator
    assert accelerator.name == "tensorrt"
    assert dict(accelerator.parameters) == {
        "trt_engine_cache_enable": "1",
        "trt_engine_cache_path": "/cache",
        "trt_profile_min_shapes": "x:1x8x8x1",
        "trt_profile_opt_shapes": "x:8x8x8x1",
        "trt_profile_max_shapes": "x:32x8x8x1",
        "max_workspace_size_bytes": "1073741824",
    }
    assert not refused_overrides(flavour)
    assert not flavour.needs.lacking(Machine(gpu=True))


def test_the_accelerated_flavour_of_a_smaller_precision_needs_strong_types() -> None:
    needs = accelerated(BASE, (), Precision.INT8).needs
    assert needs.lacking(Machine(gpu=True, tensorrt="10.13.2"))
    assert not needs.lacking(Machine(gpu=True, tensorrt="11.1.0"))
