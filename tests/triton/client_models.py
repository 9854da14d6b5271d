"""The models that clients call in tests, and values of every datatype for them."""

from typing import Any

import ml_dtypes
import numpy as np

from .fronting import Model
from .sequence_models import SUMS

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
_REPEAT = """
import triton_python_backend_utils as utils
FINAL = utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL

class TritonPythonModel:
    def execute(self, requests):
        for one in requests:
            x = utils.get_input_tensor_by_name(one, "x").as_numpy()
            sender = one.get_response_sender()
            for number in range(int(x[0] if x[0] >= 0 else -x[0] - 1)):
                sender.send(utils.InferenceResponse([utils.Tensor("y", x + number)]))
            if x[0] < 0:
                sender.send(utils.InferenceResponse([], utils.TritonError("it was told to fail")))
            sender.send(flags=FINAL)
"""
_ADD = """
import numpy as np
import triton_python_backend_utils as utils

class TritonPythonModel:
    def initialize(self, args):
        self.version = np.int32(args["model_version"])

    def execute(self, requests):
        xs = [utils.get_input_tensor_by_name(one, "x").as_numpy() for one in requests]
        return [utils.InferenceResponse([utils.Tensor("y", x + self.version)]) for x in xs]
"""


def described(role: str, name: str, datatype: str, more: str = "", dims: int = -1) -> str:
    """An input or an output, in the words of config.pbtxt."""
    kind = "STRING" if datatype == "BYTES" else datatype
    return f'{role} {{ name: "{name}" data_type: TYPE_{kind} dims: [ {dims} ] {more} }}\n'


PYTHON = 'backend: "python"\ninstance_group [ { kind: KIND_CPU count: 1 } ]\n'
ALL_VERSIONS = "version_policy { all { } }\n"
_X = PYTHON + described("input", "x", "FP32")
_XY = _X + described("output", "y", "FP32")
_LABELS = 'label_filename: "labels.txt"'


def _mirror_config() -> str:
    labels = {"FP32": _LABELS}
    inputs = (described("input", name, name, "optional: true") for name in VALUES)
    outputs = (described("output", f"out_{name}", name, labels.get(name, "")) for name in VALUES)
    return PYTHON + "".join((*inputs, *outputs))


# Gives each input back.
MIRROR = Model("mirror", _MIRROR, _mirror_config(), files={"labels.txt": "zero\none\ntwo\n"})
# Takes x seconds.
SLOW = Model("slow", _SLOW, _XY)
SHARED = Model("shared", _SHARED, _X + described("output", "x", "FP32"))
# Answers with what Triton has made of the request's id and parameters; refuses a negative x.
TOLD = Model(
    "told", _TOLD, _X + described("output", "told", "BYTES", dims=1) + ALL_VERSIONS, versions=(1, 2)
)
# Answers x times with x, x + 1, …; a negative x fails, after so many answers less one.
REPEAT = Model("repeat", _REPEAT, _XY + "model_transaction_policy { decoupled: true }\n")
# Was loaded once, and no longer is.
GONE = Model("gone", _SHARED, SHARED.config)
MODELS = (MIRROR, REPEAT, SLOW, SHARED, TOLD, SUMS, GONE)

_BATCHED = "".join(
    (
        PYTHON,
        "max_batch_size: 4\n",
        described("input", "x", "INT32", dims=1),
        described("output", "y", "INT32", dims=1),
    )
)
_TOO_LATE = """dynamic_batching {
  preferred_batch_size: [ 4 ] max_queue_delay_microseconds: 50000
  default_queue_policy { timeout_action: REJECT default_timeout_microseconds: 1 }
}"""
# Adds its version to what comes.
ADD = Model("add", _ADD, _BATCHED + ALL_VERSIONS, versions=(1, 2))
# Waits for more until it is too late.
LATE = Model("late", _ADD, _BATCHED + _TOO_LATE)
