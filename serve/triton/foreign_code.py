"""Code in a version: what would let the person who pushes it run programs on the Tritons.

Only backends that are known to run data are harmless. A file is code where Triton, a backend or
Python would execute it or unpickle it, wherever it lies in the upload. A parameter that holds a
path is code too: it makes Triton read, write or load what lies there, with Triton's rights.
"""

import re
from collections.abc import Iterator, Sequence

from serve.core.versions import VersionFile
from serve.triton.config import Configuration

# Backends that interpret the model file and nothing else. `tensorflow` graphs can read and write
# files, `pytorch` unpickles, `dali` and `vllm` run Python.
DATA_BACKENDS = frozenset(
    {"onnxruntime", "tensorrt", "openvino", "fil", "identity", "repeat", "square"}
)
DATA_PLATFORMS = frozenset({"onnxruntime_onnx", "tensorrt_plan", "ensemble"})
_CODE_FILE = re.compile(
    r"\.(so(\.[0-9.]+)?|py[cdowx]?|pyz|pkl|pickle|joblib|dill|pt|pth|pt2|bin\.py|sh|tar|tgz|tar\.gz|"
    r"zip|whl|egg|jar|dll|dylib|dali|keras|h5)\Z",
    re.IGNORECASE,
)
_SHAPES_KEY = re.compile(r"trt_profile_(min|max|opt)_shapes\Z")  # of tensors, which may hold a /
_PATH_KEY = re.compile(
    r"(^|[_.])(paths?|dir|directory|library|libs?|files?|filename|folder|plugins?|env)\Z"
    r"|calibration_table_name\Z|cache_prefix\Z",
    re.IGNORECASE,
)


def code_in(config: Configuration, files: Sequence[VersionFile]) -> str:
    """Why this version brings code, in words; empty when it brings none."""
    return next(_reasons(config, files), "")


def calls_others(config: Configuration | None) -> bool:
    """Whether an answer of this model may be that of another one which it called.

    So it is with an ensemble, and with code. Where the configuration does not name what runs the
    model, because Triton completes it, it may be code.
    """
    if config is None or config.message.HasField("ensemble_scheduling"):
        return True
    backend, platform = config.message.backend, config.message.platform
    return (backend or platform) not in DATA_BACKENDS | DATA_PLATFORMS


def _reasons(config: Configuration, files: Sequence[VersionFile]) -> Iterator[str]:
    message = config.message
    if message.backend and message.backend not in DATA_BACKENDS:
        yield f"the backend '{message.backend}' can run code"
    if not message.backend and message.platform and message.platform not in DATA_PLATFORMS:
        yield f"the platform '{message.platform}' can run code"
    for file in files:
        if _CODE_FILE.search(file.path):
            yield f"the file '{file.path}' is a program, an archive or a pickle"
    if message.model_operations.op_library_filename:
        yield "model_operations loads a library of operators"
    if message.model_repository_agents.agents:
        yield "model_repository_agents runs agents on the model's files"
    for key, parameter in sorted(message.parameters.items()):
        yield from _path(f"parameters '{key}'", key, parameter.string_value)
    accelerators = message.optimization.execution_accelerators
    for each in (*accelerators.gpu_execution_accelerator, *accelerators.cpu_execution_accelerator):
        for key, value in sorted(each.parameters.items()):
            yield from _path(f"the parameter '{key}' of the accelerator '{each.name}'", key, value)


def _path(where: str, key: str, value: str) -> Iterator[str]:
    if key.upper() == "EXECUTION_ENV_PATH":
        yield "EXECUTION_ENV_PATH adds a Python environment"
    elif _SHAPES_KEY.match(key):
        return
    elif _PATH_KEY.search(key) or re.search(r"[/\\]|\$\$", value):
        yield f"{where} contains a path on Triton's machine"
