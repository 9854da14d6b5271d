"""Opens an ONNX file as its configuration says: threads, memory, graph level, execution providers.

The names are those of NVIDIA's C++ backend. CUDA and TensorRT are not yet run on a GPU.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import onnxruntime as ort
from onnx_signature import Config, LoadError  # type: ignore[import-not-found]

Provider = tuple[str, dict[str, str]]


def locate(version_directory: Path, filename: str) -> Path:
    """The ONNX file of a version; in a directory of that name it is called `model.onnx`."""
    path = version_directory / (filename or "model.onnx")
    if path.is_dir():
        path /= "model.onnx"
    if not path.is_file():
        missing = path.relative_to(version_directory.parent)
        raise LoadError(f"the model's directory has no file '{missing}'")
    return path


FLAGS = {"true": True, "on": True, "1": True, "false": False, "off": False, "0": False}
MODES = {"0": ort.ExecutionMode.ORT_SEQUENTIAL, "1": ort.ExecutionMode.ORT_PARALLEL}
LEVELS = {
    "-1": ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "0": ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
    "1": ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "2": ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
}


def one_of(allowed: Mapping[str, Any], name: str, text: str) -> Any:
    if text.lower() not in allowed:
        raise bad_value(name, text, " or ".join(allowed))
    return allowed[text.lower()]


def count(name: str, text: str) -> int:
    if not re.fullmatch(r"\d{1,9}", text):
        raise bad_value(name, text, "an integer, 0 or more")
    return int(text)


def bad_value(name: str, text: str, wanted: str) -> LoadError:
    return LoadError(f"parameter '{name}' has the value '{text}', it must be {wanted}")


OPTIONS: dict[str, tuple[str, Callable[[str, str], Any]]] = {
    "intra_op_thread_count": ("intra_op_num_threads", count),
    "inter_op_thread_count": ("inter_op_num_threads", count),
    "execution_mode": ("execution_mode", partial(one_of, MODES)),
    "enable_mem_arena": ("enable_cpu_mem_arena", partial(one_of, FLAGS)),
    "enable_mem_pattern": ("enable_mem_pattern", partial(one_of, FLAGS)),
}


def model_parameters(config: Config) -> dict[str, str]:
    return {key: value["string_value"] for key, value in config.get("parameters", {}).items()}


def session_options(config: Config) -> ort.SessionOptions:
    """Threads, memory and graph optimisation, by the C++ backend's parameters."""
    options = ort.SessionOptions()
    level = str(config.get("optimization", {}).get("graph", {}).get("level", 0))
    options.graph_optimization_level = one_of(LEVELS, "optimization.graph.level", level)
    parameters = model_parameters(config)
    for name, (attribute, read) in OPTIONS.items():
        if name in parameters:
            setattr(options, attribute, read(name, parameters[name]))
    name = "session.use_device_allocator_for_initializers"
    if name in parameters:
        options.add_session_config_entry(name, str(int(one_of(FLAGS, name, parameters[name]))))
    for library in config.get("model_operations", {}).get("op_library_filename", ()):
        options.register_custom_ops_library(library)
    return options


def run_options(config: Config) -> ort.RunOptions:
    options = ort.RunOptions()
    name = "memory.enable_memory_arena_shrinkage"
    devices = model_parameters(config).get(name)
    if devices is not None:
        if not re.fullmatch(r"(cpu|gpu):\d+(;(cpu|gpu):\d+)*", devices):
            raise bad_value(name, devices, "a list of devices such as cpu:0;gpu:0")
        options.add_run_config_entry(name, devices)
    return options


CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"
TENSORRT, OPENVINO = "TensorrtExecutionProvider", "OpenVINOExecutionProvider"
PACKAGES = {CUDA: "onnxruntime-gpu", TENSORRT: "onnxruntime-gpu", OPENVINO: "onnxruntime-openvino"}

PRECISIONS: dict[str, dict[str, str]] = {
    "fp32": {},
    "fp16": {"trt_fp16_enable": "True"},
    "bf16": {"trt_bf16_enable": "True"},
    "int8": {"trt_int8_enable": "True"},
}
RENAMED = {  # where ONNX Runtime has another name for a parameter
    "max_workspace_size_bytes": "trt_max_workspace_size",
    "int8_calibration_table_name": "trt_int8_calibration_table_name",
    "int8_use_native_calibration_table": "trt_int8_use_native_calibration_table",
}
TENSORRT_FLAG = re.compile(
    r"trt_\w+_enable|trt_(dump|force)_\w+|trt_detailed_build_log|trt_layer_norm_fp32_fallback"
    r"|int8_use_native_calibration_table"
)


def tensorrt_options(parameters: Mapping[str, str]) -> dict[str, str]:
    """ONNX Runtime's options; it knows `True` and `False`, where the C++ backend also takes 1."""
    options: dict[str, str] = {}
    for name, text in parameters.items():
        if name == "precision_mode":
            options |= one_of(PRECISIONS, name, text)
        elif name in RENAMED or name.startswith("trt_"):
            value = str(one_of(FLAGS, name, text)) if TENSORRT_FLAG.fullmatch(name) else text
            options[RENAMED.get(name, name)] = value
        else:
            raise LoadError(
                f"unknown parameter '{name}' is provided for TensorRT Execution Accelerator"
            )
    return options


Reader = Callable[[Mapping[str, str]], dict[str, str]]
GPU_ACCELERATORS: dict[str, tuple[str, Reader]] = {
    "tensorrt": (TENSORRT, tensorrt_options),
    "cuda": (CUDA, dict),  # ONNX Runtime's own names
}


def plan_providers(
    config: Config, kind: str, device: int, installed: Sequence[str]
) -> list[Provider]:
    """The providers of an instance, best first; LoadError for one that is not installed.

    `kind` is GPU, CPU, AUTO or MODEL. An instance on the CPU checks GPU accelerators, no more.
    """
    on_gpu = kind == "GPU" or (kind == "AUTO" and CUDA in installed and device >= 0)
    on_device = {"device_id": str(device)}
    asked: dict[str, tuple[str, dict[str, str]]] = {}  # provider -> who wants it, its options
    accelerators = config.get("optimization", {}).get("execution_accelerators", {})
    for accelerator in accelerators.get("gpu_execution_accelerator", ()):
        name = accelerator["name"]
        if name not in GPU_ACCELERATORS:
            raise LoadError(f"unknown Execution Accelerator '{name}' is requested")
        provider, options = GPU_ACCELERATORS[name]
        asked[provider] = (
            f"the GPU execution accelerator '{name}'",
            options(accelerator.get("parameters", {})) | on_device,
        )
    if on_gpu:
        asked.setdefault(CUDA, (f"an instance on GPU {device}", on_device))
    for accelerator in accelerators.get("cpu_execution_accelerator", ()):
        if accelerator["name"] != "openvino":
            raise LoadError(f"unknown Execution Accelerator '{accelerator['name']}' is requested")
        asked[OPENVINO] = ("the CPU execution accelerator 'openvino'", {"device_type": "CPU"})
    for provider, (who, _) in asked.items():
        if provider not in installed:
            raise LoadError(
                f"{who} needs {provider}, but the installed onnxruntime {ort.__version__} has only "
                f"{', '.join(installed)}: install {PACKAGES[provider]} instead"
            )
    usable = (TENSORRT, CUDA, OPENVINO) if on_gpu else (OPENVINO,)
    return [(name, asked[name][1]) for name in usable if name in asked] + [(CPU, {})]


def open_to_run(path: Path, config: Config, providers: list[Provider]) -> ort.InferenceSession:
    session = open_session(path, session_options(config), providers)
    idle = [name for name, _ in providers if name not in session.get_providers()]
    if idle:  # a library of CUDA or TensorRT is missing: ONNX Runtime logs it and goes on without
        raise LoadError(f"{' and '.join(idle)} cannot start, the log of Triton says why")
    return session


def open_to_read(path: Path, config: Config) -> ort.InferenceSession:
    """A session for the signature only: on the CPU, and without the time that optimising takes."""
    options = session_options(config)
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return open_session(path, options, [(CPU, {})])


def open_session(
    path: Path, options: ort.SessionOptions, providers: list[Provider]
) -> ort.InferenceSession:
    try:
        return ort.InferenceSession(path, options, providers=providers, enable_fallback=0)
    except Exception as error:
        reason = plain(error).removeprefix(f"Load model from {path} failed:")
        raise LoadError(f"ONNX Runtime cannot load '{path.name}': {reason}") from error


def plain(error: Exception) -> str:
    """The message without ONNX Runtime's prefix `[ONNXRuntimeError] : 2 : INVALID_ARGUMENT : `."""
    return re.sub(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ", "", str(error)).strip()
