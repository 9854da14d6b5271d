"""Building through TensorRT's API, with a TensorRT that is played: order, flags and faults."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from refusals import refusal

from serve.core.errors import ConversionFailed, GateRefused
from serve.workbench.conversion.plans.arguments import Options
from serve.workbench.conversion.plans.builder import PlanOrder, build, network_flags, proven
from serve.workbench.conversion.plans.engine import GpuMemory, PlanModel
from serve.workbench.conversion.plans.facts import Hardware, PlanFacts
from serve.workbench.conversion.plans.onsite import Failed
from serve.workbench.conversion.plans.profiles import parse_profile
from serve.workbench.conversion.request import Precision

from .kit_scene import DEVICE, HEADER, case, doubling
from .played_tensorrt import Driver, Library, Logger, OlderError, ParserError

PROFILE = parse_profile("x=1x3:8x3:8x3")


@pytest.fixture
def order(tmp_path: Path) -> PlanOrder:
    (tmp_path / "model.onnx").write_bytes(doubling())
    paths = (tmp_path / "model.onnx", tmp_path / "model.plan")
    return PlanOrder(*paths, Options((PROFILE,)), Precision.FP32, "triton")


def built(order: PlanOrder, library: Library) -> PlanFacts:
    return build(order, library, Logger(), object(), lambda: DEVICE)


def fault(order: PlanOrder, library: Library) -> ConversionFailed:
    refused = refusal(ConversionFailed, built, order, library)
    assert not order.plan.exists()
    return refused


def loaded(driver: Driver, *, plan: bytes = HEADER, on_host: str = "") -> PlanModel:
    """A plan that is run in the memory of this driver."""
    logger: Any = Logger()
    return PlanModel(Library(on_host=on_host), plan, logger, GpuMemory(lambda name: driver))


def test_a_plan_of_a_strongly_typed_network_says_what_it_is(order: PlanOrder) -> None:
    library = Library()
    facts = built(order, library)
    assert order.plan.read_bytes() == HEADER
    assert (facts.tensorrt, facts.compute_capability, facts.device) == ("10.13.2.6", *DEVICE)
    assert (facts.image, facts.size, facts.profiles) == ("triton", len(HEADER), (PROFILE,))
    assert library.flags == 1 << 1
    assert library.config.flags == set()  # in full precision
    (profile,) = library.config.profiles
    assert profile.shapes == {"x": ((1, 3), (8, 3), (8, 3))}


def test_every_option_reaches_the_builder(order: PlanOrder, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.write_bytes(b"known")
    options = Options(
        tf32=True,
        version_compatible=True,
        hardware=Hardware.AMPERE,
        workspace=1 << 30,
        timing_cache=str(cache),
    )
    library = Library()
    facts = built(replace(order, options=options), library)
    config: Any = library.config
    assert config.flags == {"TF32", "VERSION_COMPATIBLE"}
    assert config.hardware_compatibility_level == "AMPERE_PLUS"
    assert config.limits == {"WORKSPACE": 1 << 30}
    assert config.profiling_verbosity == "DETAILED"
    assert cache.read_bytes() == b"known+"
    assert (facts.tf32, facts.version_compatible, facts.hardware) == (True, True, Hardware.AMPERE)
    assert not config.profiles


def test_a_level_that_this_tensorrt_lacks_is_named(order: PlanOrder) -> None:
    options = replace(order.options, hardware=Hardware.SAME)
    told = fault(replace(order, options=options), Library())
    assert told.code == "trt_build_failed"
    assert "sameComputeCapability" in told.why


def test_a_tensorrt_without_strong_types_is_refused_and_a_later_one_needs_no_flag() -> None:
    flags = SimpleNamespace(EXPLICIT_BATCH=0)
    older = SimpleNamespace(NetworkDefinitionCreationFlag=flags, __version__="8.6.1")
    with pytest.raises(ConversionFailed, match=r"8\.6\.1 has no strongly typed networks"):
        network_flags(older)
    later = SimpleNamespace(NetworkDefinitionCreationFlag=SimpleNamespace(), __version__="12.0.1")
    assert network_flags(later) == 0


def test_what_the_parser_refuses_is_named_by_operator_and_node(order: PlanOrder) -> None:
    errors = [
        ParserError(operator="StringSplit", name="split", text="no importer"),
        ParserError(operator="", name="", text="and more"),
    ]
    told = fault(order, Library(*errors))
    assert (told.code, told.operator, told.node) == ("trt_unsupported", "StringSplit", "split")
    assert told.why == "StringSplit 'split': no importer; and more"
    assert fault(order, Library(OlderError(text="In node 3"))).why == "In node 3"


def test_a_build_that_gives_nothing_tells_what_tensorrt_said_last(order: PlanOrder) -> None:
    told = fault(order, Library(builds=False))
    assert (told.code, told.why) == ("trt_build_failed", Logger.last)


def test_a_profile_that_tensorrt_does_not_take_is_named(order: PlanOrder) -> None:
    options = Options((parse_profile("bad=1x3:8x3:8x3"),))
    told = fault(replace(order, options=options), Library())
    assert (told.code, told.why) == ("trt_profile", "bad=1x3:8x3:8x3")


def test_layers_of_another_precision_are_found_out(order: PlanOrder) -> None:
    facts = built(order, Library())
    told = loaded(Driver()).layers({"x": (8, 3)})
    assert dict(proven(facts, told).layers) == {"fp32": 1}
    refused = refusal(GateRefused, proven, replace(facts, precision=Precision.INT8), told)
    assert refused.code == "precision_missing"


@pytest.mark.parametrize(("on_host", "allocated"), [("", 2), ("x", 1), ("y", 1), ("xy", 0)])
def test_a_plan_answers_with_shapes_in_the_memory_of_the_process(
    on_host: str, allocated: int
) -> None:
    driver = Driver()
    asked = case()
    answer = loaded(driver, on_host=on_host)(asked.inputs)
    assert np.array_equal(answer["y"], asked.outputs["y"])
    assert driver.allocated == allocated and not driver.blocks


def test_a_shape_outside_of_the_profile_is_told_with_its_input() -> None:
    driver = Driver()
    with pytest.raises(ConversionFailed, match=r"rejects shape \[9, 3\] for input 'x'"):
        loaded(driver)({"x": np.zeros((9, 3), np.float32)})
    assert not driver.blocks


def test_a_plan_that_cannot_be_read_back_is_no_plan() -> None:
    assert refusal(ConversionFailed, loaded, Driver(), plan=b"").code == "trt_build_failed"


@pytest.mark.parametrize("shape", [(2, 3), (), (0, 3)])
def test_arrays_go_to_the_gpu_and_back_whatever_their_shape(shape: tuple[int, ...]) -> None:
    driver = Driver()
    memory = GpuMemory(lambda name: driver)
    array = np.full(shape, 7.5, np.float32)
    address, back = memory.put(array), np.zeros(shape, np.float32)
    memory.fetch(address, back)
    assert np.array_equal(back, array)
    memory.give_back(address)
    assert not driver.blocks


def test_an_error_of_the_driver_is_told_by_its_number() -> None:
    with pytest.raises(Failed, match="CUDA error 2"):
        GpuMemory(lambda name: Driver(2))
