"""A model for tuning: an execution takes the same time, however many rows it has."""

from pathlib import Path

CODE = """
import time
import triton_python_backend_utils as pb

class TritonPythonModel:
    def execute(self, requests):
        time.sleep({seconds})
        return [
            pb.InferenceResponse([pb.Tensor("y", pb.get_input_tensor_by_name(r, "x").as_numpy())])
            for r in requests
        ]
"""
CONFIG = """
backend: "python"
max_batch_size: 8
input [{ name: "x" data_type: TYPE_FP32 dims: [ 4 ] }]
output [{ name: "y" data_type: TYPE_FP32 dims: [ 4 ] }]
instance_group [{ count: 1 kind: KIND_CPU }]
"""


def write(repository: Path, name: str, *, seconds: float = 0.03, more: str = "") -> None:
    """A version of it in a model repository, without batching."""
    folder = repository / name / "1"
    folder.mkdir(parents=True)
    (folder / "model.py").write_text(CODE.format(seconds=seconds))
    (repository / name / "config.pbtxt").write_text(CONFIG + more)
