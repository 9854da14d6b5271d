"""Flavoured configurations: what a load call carries for one flavour of a version.

| field of config.pbtxt                                    | in a flavour                          |
|----------------------------------------------------------|---------------------------------------|
| backend (then without `platform`)                        | `backend`                             |
| default_model_filename                                   | `file`                                |
| optimization, instance_group, parameters, model_warmup,  | what `config` says: objects are       |
| dynamic_batching                                         | merged, lists replaced, null removes  |
| everything else                                          | the same: callers see no difference   |

Accelerators take only parameters that lead to no file. Where ONNX Runtime keeps the TensorRT
engines that it has built is the operator's business (`Machine.engine_cache`): a flavour only asks
for it with `trt_engine_cache_enable`, and has none on a machine without such a folder.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf import json_format
from tritonclient.grpc import model_config_pb2

from serve.core.errors import Invalid
from serve.core.flavours import BASE, Flavour, VersionFlavours
from serve.triton.config import Configuration, of_message

OVERRIDES = frozenset(
    {"optimization", "instance_group", "parameters", "model_warmup", "dynamic_batching"}
)
_PARAMETERS = {
    "tensorrt": "max_workspace_size_bytes trt_max_partition_iterations trt_min_subgraph_size "
    "trt_dla_enable trt_dla_core trt_engine_cache_enable trt_force_sequential_engine_build "
    "trt_context_memory_sharing_enable trt_layer_norm_fp32_fallback trt_detailed_build_log "
    "trt_build_heuristics_enable trt_sparsity_enable trt_builder_optimization_level "
    "trt_auxiliary_streams trt_profile_min_shapes trt_profile_max_shapes trt_profile_opt_shapes "
    "trt_cuda_graph_enable",
    "cuda": "arena_extend_strategy cudnn_conv_algo_search cudnn_conv_use_max_workspace "
    "do_copy_in_default_stream enable_cuda_graph gpu_mem_limit prefer_nhwc use_tf32",
    "openvino": "",
}
ACCELERATOR_PARAMETERS = {name: frozenset(words.split()) for name, words in _PARAMETERS.items()}
_CACHE, _CACHE_PATH = "trt_engine_cache_enable", "trt_engine_cache_path"


def configured(base: Configuration, flavour: Flavour, engine_cache: str = "") -> Configuration:
    """The configuration of a flavour; `Invalid` where the two cannot be put together."""
    if flavour.name == BASE:
        return base
    page = json_format.MessageToDict(base.message, preserving_proto_field_name=True)
    if flavour.backend:
        page.pop("platform", None)
        page["backend"] = flavour.backend
    if flavour.file:
        page["default_model_filename"] = flavour.file
    message = _message(_merged(page, flavour.config), flavour.name)
    _place_engines(message, engine_cache)
    return of_message(message)


def refused_overrides(flavour: Flavour) -> tuple[str, ...]:
    """What a flavour may not set, as places such as `config.input`; `Invalid` as `configured`."""
    found = [f"config.{name}" for name in sorted(flavour.config.keys() - OVERRIDES)]
    own = {"optimization": flavour.config.get("optimization")}
    accelerators = _message(own, flavour.name).optimization.execution_accelerators
    for each in (*accelerators.gpu_execution_accelerator, *accelerators.cpu_execution_accelerator):
        known = ACCELERATOR_PARAMETERS.get(each.name, frozenset())
        found += [
            f"the parameter '{key}' of the accelerator '{each.name}'"
            for key in sorted(each.parameters)
            if key not in known
        ]
    return tuple(found)


def recognised(flavours: VersionFlavours, base: Configuration, found: Configuration) -> Flavour:
    """Which flavour a Triton runs that tells this configuration, which it has completed.

    The first of which everything that it sets is there; else the base, also where that is not
    among the candidates.
    """
    told = json_format.MessageToDict(found.message, preserving_proto_field_name=True)
    for flavour in flavours.preferred:
        try:
            own = configured(base, flavour)
        except Invalid:
            continue
        page = json_format.MessageToDict(own.message, preserving_proto_field_name=True)
        sets = {"backend": flavour.backend, "default_model_filename": flavour.file}
        names = [name for name, value in sets.items() if value] + list(flavour.config)
        if names and all(_is_in(page.get(name), told.get(name)) for name in names):
            return flavour
    return Flavour(BASE)


def _message(page: Mapping[str, Any], name: str) -> model_config_pb2.ModelConfig:
    message = model_config_pb2.ModelConfig()
    try:
        json_format.ParseDict(page, message)
    except (json_format.ParseError, RecursionError) as error:
        raise Invalid(f"flavour '{name}' cannot be configured", why=str(error)) from error
    return message


def _merged(page: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Objects are merged, everything else is replaced; null removes."""
    both = dict(page)
    for name, value in changes.items():
        before = both.pop(name, None)
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            both[name] = _merged(before, value)
        elif value is not None:
            both[name] = value
    return both


def _place_engines(message: Any, engine_cache: str) -> None:
    """Say where engines are kept; where no place is known, none are."""
    accelerators = message.optimization.execution_accelerators.gpu_execution_accelerator
    for parameters in (each.parameters for each in accelerators):
        if _CACHE in parameters and _CACHE_PATH not in parameters:
            if engine_cache:
                parameters[_CACHE_PATH] = engine_cache
            else:
                del parameters[_CACHE]


def _is_in(wanted: Any, found: Any) -> bool:
    """Whether all that is wanted was found, perhaps among more."""
    if isinstance(wanted, Mapping):
        return isinstance(found, Mapping) and all(
            _is_in(value, found.get(name)) for name, value in wanted.items()
        )
    if isinstance(wanted, Sequence) and not isinstance(wanted, str):
        return (
            isinstance(found, Sequence)
            and len(wanted) == len(found)
            and all(_is_in(*pair) for pair in zip(wanted, found, strict=True))
        )
    return json.dumps(wanted) == json.dumps(found)
