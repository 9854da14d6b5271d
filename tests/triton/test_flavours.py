"""Flavoured configurations: merged, guarded, and recognised in what a Triton tells."""

from typing import Any

import pytest

from serve.core.errors import Invalid
from serve.core.flavours import BASE, Flavour, VersionFlavours
from serve.triton.config import parse
from serve.triton.flavoured import configured, recognised, refused_overrides
from serve.triton.foreign_code import code_in

from .lint_cases import GOOD, trt

TEXT = GOOD.replace("backend", "platform").replace('"onnxruntime"', '"onnxruntime_onnx"') + (
    'parameters { key: "intra_op_thread_count" value { string_value: "2" } }\n'
    "optimization { graph { level: 1 } input_pinned_memory { enable: true } }\n"
    "instance_group { kind: KIND_CPU count: 3 }\n"
)
PLATFORM = parse(TEXT)
PLAN = Flavour("plan", file="model.p.plan", backend="tensorrt", config={"instance_group": None})
CACHED = Flavour("onnx+trt", config=trt(trt_engine_cache_enable="1"))


def message(flavour: Flavour, **more: Any) -> Any:
    return configured(PLATFORM, flavour, **more).message


def test_a_flavour_names_its_backend_and_file_in_place_of_the_platform() -> None:
    found = message(PLAN)
    assert (found.backend, found.platform) == ("tensorrt", "")
    assert found.default_model_filename == "model.p.plan"
    assert found.input == PLATFORM.message.input
    assert found.max_batch_size == PLATFORM.message.max_batch_size
    assert configured(PLATFORM, Flavour(BASE)) is PLATFORM


def test_objects_are_merged_lists_are_replaced_and_null_removes() -> None:
    config = {
        "optimization": {"graph": {"level": 2}},
        "instance_group": [{"kind": "KIND_GPU"}],
        "parameters": {"intra_op_thread_count": None, "x": {"string_value": "1"}},
    }
    found = message(Flavour("f", config=config))
    assert found.optimization.graph.level == 2
    assert found.optimization.input_pinned_memory.enable
    assert [(one.kind, one.count) for one in found.instance_group] == [(1, 0)]
    assert list(found.parameters) == ["x"]
    assert not message(PLAN).instance_group


def test_engines_are_kept_only_where_the_operator_has_a_folder_for_them() -> None:
    kept = {"trt_engine_cache_enable": "1", "trt_engine_cache_path": "/engines"}
    for folder, parameters in (("", {}), ("/engines", kept)):
        found = message(CACHED, engine_cache=folder).optimization.execution_accelerators
        assert dict(found.gpu_execution_accelerator[0].parameters) == parameters


def test_what_may_not_differ_between_flavours_is_named() -> None:
    for config, place in (
        ({"input": []}, "config.input"),
        ({"instanceGroup": []}, "config.instanceGroup"),
        (trt(trt_engine_cache_path="/tmp"), "'trt_engine_cache_path'"),
        (trt(trt_ep_context_file_path="x"), "'trt_ep_context_file_path'"),
        (trt(precision_mode="FP16"), "'precision_mode'"),
    ):
        (found,) = refused_overrides(Flavour("f", config=config))
        assert place in found, config


def test_a_field_that_triton_does_not_have_is_invalid() -> None:
    with pytest.raises(Invalid, match="'f' cannot be configured"):
        configured(PLATFORM, Flavour("f", config={"optimization": {"speed": 9}}))


def test_shapes_of_profiles_are_no_paths_whatever_the_inputs_are_called() -> None:
    shapes = Flavour("f", config=trt(trt_profile_min_shapes="scope/x:1x3"))
    assert code_in(configured(PLATFORM, shapes), ()) == ""
    path = Flavour("f", config=trt(trt_engine_cache_path="engines"))
    assert "contains a path" in code_in(configured(PLATFORM, path), ())


def test_what_runs_is_recognised_in_the_configuration_that_triton_tells() -> None:
    for flavour in (PLAN, CACHED, Flavour(BASE)):
        told = parse("optimization { output_pinned_memory { enable: true } } response_cache { }")
        told.message.MergeFrom(configured(PLATFORM, flavour, "/engines").message)
        found = recognised(VersionFlavours((PLAN, CACHED)), PLATFORM, told)
        assert found in (flavour, Flavour(flavour.name)), flavour
