"""Building through TensorRT's API, with a TensorRT that is played: order, flags and faults."""

import ctypes
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from serve.core.errors import ConversionFailed, GateRefused
from serve.workbench.conversion.plans import engine
from serve.workbench.conversion.plans.arguments import Options
from serve.workbench.conversion.plans.builder import PlanOrder, build, network_flags, proven
from serve.workbench.conversion.plans.engine import PlanModel
from serve.workbench.conversion.plans.facts import Hardware, PlanFacts
from serve.workbench.conversion.plans.onsite import Failed
from serve.workbench.conversion.plans.profiles import parse_profile
from serve.workbench.conversion.request import Precision

from .kit_scene import DEVICE, HEADER, case, doubling
from .played_tensorrt import LAYERS, Library, Logger, Memory, OlderError, ParserError

PROFILE = parse_profile("x=1x3:8x3:8x3")


@pytest.fixture
def order(tmp_path: Path) -> PlanOrder:
    (tmp_path / "model.onnx").write_bytes(doubling())
    paths = (tmp_path / "model.onnx", tmp_path / "model.plan")
    return PlanOrder(*paths, Options((PROFILE,)), Precision.FP32, "triton")


def built(order: PlanOrder, library: Library) -> PlanFacts:
    return build(order, library, Logger(), object(), lambda: DEVICE)


def fault(order: PlanOrder, library: Library) -> ConversionFailed:
    with pytest.raises(ConversionFailed) as refused:
        built(order, library)
    assert not order.plan.exists()
    return refused.value


def test_a_plan_is_written_and_says_what_it_is(order: PlanOrder) -> None:
    facts = built(order, Library())
    assert order.plan.read_bytes() == HEADER
    assert (facts.tensorrt, facts.compute_capability, facts.device) == ("10.13.2.6", *DEVICE)
    assert (facts.image, facts.size, facts.profiles) == ("triton", len(HEADER), (PROFILE,))


def test_the_network_is_strongly_typed_and_computes_in_full_precision(order: PlanOrder) -> None:
    library = Library()
    built(order, library)
    assert library.flags == 1 << 1
    assert library.config.flags == set()
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
    model = PlanModel(Library(), HEADER, Logger(), Memory())  # type: ignore[arg-type]
    told = model.layers({"x": (8, 3)})
    assert dict(proven(facts, told).layers) == {"fp32": 1}
    assert LAYERS["Layers"]
    with pytest.raises(GateRefused) as refused:
        proven(replace(facts, precision=Precision.INT8), told)
    assert refused.value.code == "precision_missing"


def test_a_plan_answers_a_case_and_gives_all_memory_back() -> None:
    memory = Memory()
    model = PlanModel(Library(), HEADER, Logger(), memory)  # type: ignore[arg-type]
    asked = case()
    answer = model(asked.inputs)
    assert np.array_equal(answer["y"], asked.outputs["y"])
    assert not memory.taken


@pytest.mark.parametrize(("on_host", "taken"), [("", 2), ("x", 1), ("y", 1), ("xy", 0)])
def test_the_values_of_a_shape_lie_in_the_memory_of_the_process(on_host: str, taken: int) -> None:
    memory = Memory()
    model = PlanModel(Library(on_host=on_host), HEADER, Logger(), memory)  # type: ignore[arg-type]
    asked = case()
    assert np.array_equal(model(asked.inputs)["y"], asked.outputs["y"])
    assert memory.asked == taken and not memory.taken


def test_a_shape_outside_of_the_profile_is_told_with_its_input() -> None:
    memory = Memory()
    model = PlanModel(Library(), HEADER, Logger(), memory)  # type: ignore[arg-type]
    with pytest.raises(ConversionFailed, match=r"rejects shape \[9, 3\] for input 'x'"):
        model({"x": np.zeros((9, 3), np.float32)})
    assert not memory.taken


def test_a_plan_that_cannot_be_read_back_is_no_plan() -> None:
    with pytest.raises(ConversionFailed) as refused:
        PlanModel(Library(), b"", Logger(), Memory())  # type: ignore[arg-type]
    assert refused.value.code == "trt_build_failed"


class Driver:
    """Plays libcuda: the GPU's memory is this process's. `code` is what it answers to all."""

    def __init__(self, code: int = 0) -> None:
        self.blocks: dict[int, Any] = {}
        self._code = code

    def __getattr__(self, name: str) -> Any:
        assert name.startswith("cu")
        return lambda *words: self._code

    def cuMemAlloc_v2(self, address: Any, size: Any) -> int:
        block = ctypes.create_string_buffer(size.value)
        address._obj.value = ctypes.addressof(block)
        self.blocks[address._obj.value] = block
        return self._code

    def cuMemcpyHtoD_v2(self, there: Any, here: Any, size: Any) -> int:
        ctypes.memmove(there.value, here.value, size.value)
        return self._code

    def cuMemcpyDtoH_v2(self, here: Any, there: Any, size: Any) -> int:
        ctypes.memmove(here.value, there.value, size.value)
        return self._code

    def cuMemFree_v2(self, address: Any) -> int:
        del self.blocks[address.value]
        return self._code


@pytest.mark.parametrize("shape", [(2, 3), (), (0, 3)])
def test_arrays_go_to_the_gpu_and_back_whatever_their_shape(shape: tuple[int, ...]) -> None:
    driver = Driver()
    memory = engine.GpuMemory(lambda name: driver)
    array = np.full(shape, 7.5, np.float32)
    address, back = memory.put(array), np.zeros(shape, np.float32)
    memory.fetch(address, back)
    assert np.array_equal(back, array)
    memory.give_back(address)
    assert not driver.blocks


def test_an_error_of_the_driver_is_told_by_its_number() -> None:
    with pytest.raises(Failed, match="CUDA error 2"):
        engine.GpuMemory(lambda name: Driver(2))
