"""Models that add up what each sequence brings, and say which process did it."""

from .fronting import Model

_CODE = """
import os
import numpy as np
import triton_python_backend_utils as utils

class TritonPythonModel:
    def initialize(self, args):
        self.sums = {}

    def execute(self, requests):
        return [self.answer(one) for one in requests]

    def answer(self, one):
        x = utils.get_input_tensor_by_name(one, "x").as_numpy()
        identity = one.correlation_id()
        start = utils.get_input_tensor_by_name(one, "START")
        if start is not None and start.as_numpy().any():
            self.sums[identity] = 0.0
        self.sums[identity] = self.sums.get(identity, 0.0) + float(x.sum())
        said = np.full(x.shape, self.sums[identity], np.float32)
        here = np.full(x.shape, str(os.getpid()).encode(), np.object_)
        return utils.InferenceResponse([utils.Tensor("sum", said), utils.Tensor("here", here)])
"""
_CONFIG = """
backend: "python"
max_batch_size: 8
input [ { name: "x" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "sum" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "here" data_type: TYPE_STRING dims: [ 1 ] } ]
instance_group [ { kind: KIND_CPU count: 1 } ]
version_policy { all { } }
"""
_BATCHING = """
sequence_batching {
  max_sequence_idle_microseconds: 60000000
  oldest { max_candidate_sequences: 200 }
  control_input [
    { name: "START" control [ { kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0, 1 ] } ] }
  ]
}
"""
SUMS = Model("sums", _CODE, _CONFIG + _BATCHING)
SPLIT = Model("split", _CODE, _CONFIG + _BATCHING, versions=(1, 2), split="1=50 2=50")
PLAIN = Model("plain", _CODE, _CONFIG, versions=(1, 2), split="1=50 2=50")
