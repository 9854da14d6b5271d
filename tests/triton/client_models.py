"""The models that clients call in tests, and values of every datatype for them."""

from typing import Any

import ml_dtypes
import numpy as np

from .fronting import Model
from .grpc_models import REPEAT

VALUES: dict[str, np.ndarray[Any, Any]] = {
    "BOOL": np.array([True, False, True]),
    "UINT8": np.array([0, 1, 255], np.uint8),
    "UINT16": np.array([0, 1, 2**16 - 1], np.uint16),
    "UINT32": np.array([0, 1, 2**32 - 1], np.uint32),
    "UINT64": np.array([0, 1, 2**64 - 1], np.uint64),
    "INT8": np.array([-128, 0, 127], np.int8),
    "INT16": np.array([-(2**15), 0, 2**15 - 1], np.int16),
    "INT32": np.array([-(2**31), 0, 2**31 - 1], np.int32),
    "INT64": np.array([-(2**63), 0, 2**63 - 1], np.int64),
    "FP16": np.array([-65504, 0.1, 6e-8], np.float16),
    "BF16": np.array([-1.5, 0.0, 3e38], ml_dtypes.bfloat16),
    "FP32": np.array([-1e38, 0.1, 1e-40], np.float32),
    "FP64": np.array([-1e308, 0.1, 5e-324], np.float64),
    "BYTES": np.array([b"", "naïve \U0001f40d".encode(), b"with\0zero"], np.object_),
}

_MIRROR = """
import triton_python_backend_utils as utils

class TritonPythonModel:
    def execute(self, requests):
        return [utils.InferenceResponse([mirrored(x) for x in one.inputs()]) for one in requests]

def mirrored(x):
    name = "out_" + x.name()
    if x.name() == "BF16":  # numpy has no such type
        return utils.Tensor.from_dlpack(name, x.to_dlpack())
    return utils.Tensor(name, x.as_numpy())
"""
_SLOW = """
import time
import triton_python_backend_utils as utils

class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for one in requests:
            x = utils.get_input_tensor_by_name(one, "x").as_numpy()
            time.sleep(float(x[0]))
            answers.append(utils.InferenceResponse([utils.Tensor("y", x)]))
        return answers
"""
_SHARED = """
import triton_python_backend_utils as utils

class TritonPythonModel:
    def execute(self, requests):
        return [utils.InferenceResponse(one.inputs()) for one in requests]
"""
_TOLD = """
import json
import triton_python_backend_utils as utils
import numpy as np

class TritonPythonModel:
    def execute(self, requests):
        return [utils.InferenceResponse([utils.Tensor("told", told(one))]) for one in requests]

def told(one):
    id = one.correlation_id()
    said = {"id": one.request_id(), "parameters": json.loads(one.parameters()), "sequence": id}
    if utils.get_input_tensor_by_name(one, "x").as_numpy()[0] < 0:
        raise utils.TritonModelException("x must not be negative: é")
    return np.array([json.dumps(said, sort_keys=True).encode()], np.object_)
"""

_X = 'backend: "python"\ninput [ { name: "x" data_type: TYPE_FP32 dims: [ -1 ] } ]\n'
_XY = _X + 'output [ { name: "y" data_type: TYPE_FP32 dims: [ -1 ] } ]\n'
ONE = "instance_group [ { kind: KIND_CPU count: 1 } ]\n"


def _mirror_config() -> str:
    lines = ['backend: "python"']
    for name in VALUES:
        kind = "STRING" if name == "BYTES" else name
        lines.append(
            f'input [ {{ name: "{name}" data_type: TYPE_{kind} dims: [ -1 ] optional: true }} ]'
        )
        labels = 'label_filename: "labels.txt"' if name == "FP32" else ""
        lines.append(
            f'output [ {{ name: "out_{name}" data_type: TYPE_{kind} dims: [ -1 ] {labels} }} ]'
        )
    return "\n".join(lines) + "\n"


MIRROR = Model("mirror", _MIRROR, _mirror_config() + ONE, files={"labels.txt": "zero\none\ntwo\n"})
SLOW = Model("slow", _SLOW, _XY + ONE)
SHARED = Model("shared", _SHARED, _XY.replace('"y"', '"x"') + ONE)
TOLD = Model(
    "told",
    _TOLD,
    _X
    + 'output [ { name: "told" data_type: TYPE_STRING dims: [ 1 ] } ]\n'
    + ONE
    + "version_policy { all { } }\n",
    versions=(1, 2),
)
MODELS = (MIRROR, REPEAT, SLOW, SHARED, TOLD)
