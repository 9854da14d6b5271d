"""Model repositories that the tests write: small, real, of every kind that the backends run."""

import shutil
from collections.abc import Collection
from pathlib import Path

import harness

COUNTING = '''
import json
import os
import numpy as np
import triton_python_backend_utils as pb

class TritonPythonModel:
    """Writes the id of every request that it executes to a file, then answers x + 1."""

    def initialize(self, args):
        self.log = open({log!r}, "a", buffering=1)

    def execute(self, requests):
        out = []
        for request in requests:
            self.log.write(request.request_id() + "\\n")
            x = pb.get_input_tensor_by_name(request, "x").as_numpy()
            out.append(pb.InferenceResponse([pb.Tensor("y", x + np.float32(1))]))
        return out
'''

PLAIN = """
import triton_python_backend_utils as pb

class TritonPythonModel:
    def execute(self, requests):
        return [
            pb.InferenceResponse([pb.Tensor("y", pb.get_input_tensor_by_name(r, "x").as_numpy())])
            for r in requests
        ]
"""

BROKEN = """
raise RuntimeError("this model cannot start")
"""

CONFIG = """
backend: "python"
max_batch_size: 0
input [{{ name: "x" data_type: TYPE_FP32 dims: [ -1 ] }}]
output [{{ name: "y" data_type: TYPE_FP32 dims: [ -1 ] }}]
instance_group [{{ count: {instances} kind: KIND_CPU }}]
{more}
"""


def sleeping(seconds: float) -> str:
    """A model that answers with its input after some time."""
    waits = PLAIN.replace(
        "(self, requests):", f"(self, requests):\n        time.sleep({seconds})", 1
    )
    return f"import time\n{waits}"


def python_model(
    repository: Path, name: str, code: str, *, more: str = "", versions=(1,), instances: int = 1
) -> None:
    for version in versions:
        folder = repository / name / str(version)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "model.py").write_text(code)
    (repository / name / "config.pbtxt").write_text(CONFIG.format(more=more, instances=instances))


def digits(repository: Path, name: str) -> Path:
    """The demo model, under another name; gives the repository."""
    shutil.copytree(harness.ROOT / "model_repo" / "digits", repository / name)
    config = repository / name / "config.pbtxt"
    config.write_text(config.read_text().replace('"digits"', f'"{name}"'))
    return repository


def serve(
    gateway: harness.RunningGateway, repository: Path, *, failing: Collection[str] = ()
) -> None:
    """Add these models to a gateway that runs, and wait until each is ready or has failed."""
    wanted = {folder.name: "ready" for folder in repository.iterdir()}
    wanted |= dict.fromkeys(failing, "failed")
    for name in wanted:
        (repository / name).rename(gateway.models / name)  # at once, as the gateway looks there

    def states() -> dict[str, str]:
        return {model["name"]: model["state"] for model in gateway.get("/api/models")}

    def found() -> str:
        return f"{wanted} instead of {gateway.get('/api/models')}"

    harness.until(lambda: wanted.items() <= states().items(), what=found)


def ensemble(repository: Path, name: str, first: str, second: str) -> None:
    """Two models in a row."""
    (repository / name / "1").mkdir(parents=True)
    (repository / name / "config.pbtxt").write_text(
        f"""
platform: "ensemble"
max_batch_size: 0
input [{{ name: "x" data_type: TYPE_FP32 dims: [ -1 ] }}]
output [{{ name: "y" data_type: TYPE_FP32 dims: [ -1 ] }}]
ensemble_scheduling {{
  step [
    {{ model_name: "{first}" model_version: -1
       input_map {{ key: "x" value: "x" }} output_map {{ key: "y" value: "middle" }} }},
    {{ model_name: "{second}" model_version: -1
       input_map {{ key: "x" value: "middle" }} output_map {{ key: "y" value: "y" }} }}
  ]
}}
"""
    )


def request(name: str = "") -> dict:
    body = {"inputs": [{"name": "x", "shape": [2], "datatype": "FP32", "data": [1.0, 2.0]}]}
    return body | ({"id": name} if name else {})
