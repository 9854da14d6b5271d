"""A small model repository for raw gRPC calls: every datatype, decoupled answers, sequences."""

from .fronting import Model

DATATYPES = (
    "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64",
    "FP16", "FP32", "FP64", "BF16", "BYTES",
)  # fmt: skip
_CPU = "instance_group [ { kind: KIND_CPU count: 1 } ]\n"
_ECHO = """
import time
import triton_python_backend_utils as utils

def same(tensor):
    name = tensor.name().replace("in", "out")
    if name == "out_BYTES":
        return utils.Tensor(name, tensor.as_numpy())
    return utils.Tensor.from_dlpack(name, tensor.to_dlpack())

class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for one in requests:
            told = eval(one.parameters() or "{}")
            time.sleep(told.get("seconds", 0))
            if "failure" in told:
                answers.append(utils.InferenceResponse([], utils.TritonError(told["failure"])))
                continue
            answers.append(utils.InferenceResponse([same(tensor) for tensor in one.inputs()]))
        return answers
"""
_REPEAT = """
import triton_python_backend_utils as utils
FINAL = utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL

class TritonPythonModel:
    def execute(self, requests):
        for one in requests:
            x = utils.get_input_tensor_by_name(one, "x").as_numpy()
            sender = one.get_response_sender()
            for number in range(abs(int(x[0]))):
                sender.send(utils.InferenceResponse([utils.Tensor("y", x + number)]))
            if x[0] < 0:
                failure = utils.TritonError("it was told to fail")
                sender.send(utils.InferenceResponse([], failure))
            sender.send(flags=FINAL)
"""
_COUNT = """
import numpy
import triton_python_backend_utils as utils

class TritonPythonModel:
    def initialize(self, args):
        self.sums = {}

    def execute(self, requests):
        answers = []
        for one in requests:
            x = utils.get_input_tensor_by_name(one, "x").as_numpy()
            start = utils.get_input_tensor_by_name(one, "START").as_numpy().flat[0]
            key = one.correlation_id()
            self.sums[key] = x + (0 if start else self.sums.get(key, 0))
            answers.append(utils.InferenceResponse([utils.Tensor("y", self.sums[key])]))
        return answers
"""
_VECTOR = """
input [ { name: "x" data_type: TYPE_FP32 dims: [ %s ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ %s ] } ]
"""
_SEQUENCES = """
max_batch_size: 1
sequence_batching {
  direct { }
  control_input [
    { name: "START" control [ { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } ] }
  ]
}
"""


def _tensors() -> str:
    """An optional input and an output of every datatype; one of them has labels."""
    lines = []
    for datatype in DATATYPES:
        kind = "TYPE_STRING" if datatype == "BYTES" else f"TYPE_{datatype}"
        labels = 'label_filename: "labels.txt"' if datatype == "FP32" else ""
        shape = f"data_type: {kind} dims: [ -1 ]"
        lines.append(f'input [ {{ name: "in_{datatype}" {shape} optional: true }} ]')
        lines.append(f'output [ {{ name: "out_{datatype}" {shape} {labels} }} ]')
    return "\n".join(lines) + "\n"


_PYTHON = 'backend: "python"\n' + _CPU
TYPES = Model(
    "types",
    _ECHO,
    _PYTHON + "version_policy { all { } }\n" + _tensors(),
    versions=(1, 2),
    files={"labels.txt": "\n".join(f"label {number}" for number in range(4))},
)
"""Echoes; the parameters `seconds` and `failure` say what else it does."""

REPEAT = Model(
    "repeat",
    _REPEAT,
    _PYTHON + "model_transaction_policy { decoupled: true }\n" + _VECTOR % (-1, -1),
)
"""Answers as often as its first number says, and then fails when that is below zero."""

COUNT = Model("count", _COUNT, _PYTHON + _SEQUENCES + _VECTOR % (1, 1))
"""Adds up what a sequence tells it."""

GONE = Model("gone", _ECHO, _PYTHON + _VECTOR % (-1, -1))
"""Is there to be unloaded."""

MODELS = (TYPES, REPEAT, COUNT, GONE)
