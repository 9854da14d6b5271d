"""Rules about how a model is run: accelerators, parameters, fields that are too new."""

import re

from serve.triton.lint.subject import Findings, LintFinding, LintSubject

# Source: onnxruntime.cc of NVIDIA's onnxruntime backend; any other key fails the load.
TENSORRT_PARAMETERS = frozenset(
    {
        "precision_mode",
        "max_workspace_size_bytes",
        "trt_max_partition_iterations",
        "trt_min_subgraph_size",
        "int8_calibration_table_name",
        "int8_use_native_calibration_table",
        "trt_dla_enable",
        "trt_dla_core",
        "trt_engine_cache_enable",
        "trt_engine_cache_path",
        "trt_engine_cache_prefix",
        "trt_dump_subgraphs",
        "trt_force_sequential_engine_build",
        "trt_context_memory_sharing_enable",
        "trt_layer_norm_fp32_fallback",
        "trt_timing_cache_enable",
        "trt_timing_cache_path",
        "trt_force_timing_cache",
        "trt_detailed_build_log",
        "trt_build_heuristics_enable",
        "trt_sparsity_enable",
        "trt_builder_optimization_level",
        "trt_auxiliary_streams",
        "trt_tactic_sources",
        "trt_extra_plugin_lib_paths",
        "trt_profile_min_shapes",
        "trt_profile_max_shapes",
        "trt_profile_opt_shapes",
        "trt_cuda_graph_enable",
        "trt_dump_ep_context_model",
        "trt_ep_context_file_path",
        "trt_ep_context_embed_mode",
    }
)
_FLAG = "true, false, on, off, 1 or 0"
ORT_PARAMETERS = {  # what each must look like, in the pattern's and in plain words
    "intra_op_thread_count": (r"\d{1,9}", "a number of 0 or more"),
    "inter_op_thread_count": (r"\d{1,9}", "a number of 0 or more"),
    "execution_mode": (r"[01]", "0 or 1"),
    "enable_mem_arena": (r"(?i:true|on|1|false|off|0)", _FLAG),
    "enable_mem_pattern": (r"(?i:true|on|1|false|off|0)", _FLAG),
    "memory.enable_memory_arena_shrinkage": (
        r"(cpu|gpu):\d+(;(cpu|gpu):\d+)*",
        "a list of devices such as cpu:0;gpu:0",
    ),
}


def accelerator_unknown(subject: LintSubject) -> Findings:
    """The onnxruntime backend does not support this execution accelerator.

    The backend refuses to load the model: `unknown Execution Accelerator 'x' is requested`.
    """
    known = {"gpu": ("tensorrt", "cuda"), "cpu": ("openvino",)}
    accelerators = subject.message.optimization.execution_accelerators
    for place, names in known.items():
        for each in getattr(accelerators, f"{place}_execution_accelerator"):
            if subject.backend == "onnxruntime" and each.name not in names:
                yield LintFinding(
                    f"{place}_execution_accelerator",
                    f"the onnxruntime backend has no accelerator '{each.name}'",
                    f"use one of {', '.join(names)}",
                )


def accelerator_parameter(subject: LintSubject) -> Findings:
    """The TensorRT accelerator does not have this parameter.

    The onnxruntime backend refuses to load the model: `unknown parameter 'x' is provided for
    TensorRT`.
    """
    for parameters in _tensorrt(subject):
        for key in sorted(parameters):
            if key not in TENSORRT_PARAMETERS:
                yield LintFinding(
                    f"gpu_execution_accelerator 'tensorrt' parameter '{key}'",
                    "the accelerator has no such parameter",
                    "remove it, or correct the spelling",
                )


def precision_mode_removed(subject: LintSubject) -> Findings:
    """`precision_mode` is set for the TensorRT accelerator.

    TensorRT 11 (Triton 26.06) is strongly typed: it uses the precision of the model file.
    """
    for parameters in _tensorrt(subject):
        if "precision_mode" in parameters:
            yield LintFinding(
                "gpu_execution_accelerator 'tensorrt' parameter 'precision_mode'",
                "TensorRT 11 removed it and uses the precision of the model file",
                "convert the model to the precision that you want",
            )


def _tensorrt(subject: LintSubject) -> list[dict[str, str]]:
    accelerators = subject.message.optimization.execution_accelerators.gpu_execution_accelerator
    return [dict(each.parameters) for each in accelerators if each.name == "tensorrt"]


def parameter_value(subject: LintSubject) -> Findings:
    """A parameter of the onnxruntime backend has an invalid value.

    The backend refuses to load the model: `parameter 'intra_op_thread_count' has the value 'many'`.
    """
    for key, parameter in sorted(subject.message.parameters.items()):
        pattern, words = ORT_PARAMETERS.get(key, ("", ""))
        is_ours = subject.backend == "onnxruntime" and pattern
        if is_ours and not re.fullmatch(pattern, parameter.string_value):
            yield LintFinding(
                f"parameters '{key}'", f"'{parameter.string_value}' is not {words}", f"use {words}"
            )


def parameter_path(subject: LintSubject) -> Findings:
    """A parameter contains an absolute path.

    Each Triton looks up the path on its own machine, where the file may be missing or different.
    """
    for key, parameter in sorted(subject.message.parameters.items()):
        if parameter.string_value.startswith(("/", "~")):
            yield LintFinding(
                f"parameters '{key}'",
                f"'{parameter.string_value}' is a path on the machine of one Triton",
                "use $$TRITON_MODEL_DIRECTORY/… for a file of the model",
            )


def graph_level(subject: LintSubject) -> Findings:
    """The onnxruntime backend does not have this level of graph optimisation.

    Servegate's onnxruntime backend refuses to load the model.
    """
    level = subject.message.optimization.graph.level
    if subject.backend == "onnxruntime" and level not in (-1, 0, 1, 2):
        yield LintFinding(
            "optimization.graph.level",
            f"there is no level {level}",
            "use 0 (all), -1 (basic), 1 (extended) or 2 (none)",
        )


def field_new(subject: LintSubject) -> Findings:
    """A field requires Triton 2.52 or later.

    Triton 2.51: `failed to read text proto`, without details.
    """
    message = subject.message
    used = {
        "model_metrics": message.HasField("model_metrics"),
        "ensemble_scheduling.max_inflight_requests": bool(
            message.ensemble_scheduling.max_inflight_requests
        ),
    }
    for field, is_used in used.items():
        if is_used:
            yield LintFinding(field, "Triton 2.51 and older cannot read it", "remove it")
