"""A small entry, and the tools of a place with a GPU: programs of ours that play their parts."""

import json
import sys
from pathlib import Path

import numpy as np

from serve.tensors.contracts import Case, write_contract
from serve.workbench.conversion.plans.arguments import Options
from serve.workbench.conversion.plans.kits import write_kit
from serve.workbench.conversion.plans.profiles import parse_profile
from serve.workbench.conversion.request import Precision

from ..model_files import model, node

ROWS = ("batch", 3)
HERE = Path(__file__).parent
VERSION = bytes((10, 13, 2, 6))
HEADER = b"ftrt" + bytes(20) + VERSION  # of a plan
DEVICE = ("9.0", "NVIDIA H100")
IMAGE = "nvcr.io/nvidia/tritonserver:26.05-py3"
CONFIG = """
platform: "onnxruntime_onnx"
max_batch_size: 8
input { name: "x" data_type: TYPE_FP32 dims: [ 3 ] }
output { name: "y" data_type: TYPE_FP32 dims: [ 3 ] label_filename: "labels.txt" }
instance_group { kind: KIND_CPU count: 2 }
version_policy { all { } }
"""


def doubling(operator: str = "Add") -> bytes:
    """An ONNX file: y = x + x, or another operator of two inputs."""
    made = model(
        [node(operator, "x x", "y", name="twice")], inputs={"x": ROWS}, outputs={"y": ROWS}
    )
    return bytes(made.SerializeToString())


def case(seed: int = 0) -> Case:
    x = np.random.default_rng(seed).normal(size=(2, 3)).astype(np.float32)
    return Case({"x": x}, {"y": x + x}, f"rows {seed}")


def write_entry(folder: Path, cases: tuple[Case, ...] = (case(0), case(1))) -> Path:
    """A model's folder with version 1 and its golden cases."""
    (folder / "1").mkdir(parents=True)
    (folder / "config.pbtxt").write_text(CONFIG)
    (folder / "1" / "model.onnx").write_bytes(doubling())
    for path, content in (write_contract(cases) if cases else {}).items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_bytes(content)
    return folder


def make_kit(kit: Path, entry: Path, *cases: Case, options: Options | None = None) -> Path:
    """A kit of an entry, for TensorRT 10."""
    write_kit(
        kit,
        name=entry.name,
        onnx=entry / "1" / "model.onnx",
        config=(entry / "config.pbtxt").read_text(),
        cases=cases or (case(0), case(1)),
        options=options or Options((parse_profile("x=1x3:8x3:8x3"),)),
        precision=Precision.FP32,
        image=IMAGE,
    )
    return kit


def put_tools(kit: Path, *, factor: float = 2.0, trtexec: int = 0, triton: int = 0) -> None:
    """Our programs in the place of trtexec and Triton; with a status other than 0 they fail."""
    page = json.loads((kit / "kit.json").read_text())
    tools = [sys.executable, str(HERE / "played.py")]
    page["trtexec"][:1] = [*tools, "trtexec", str(trtexec)]
    page["triton"][:1] = [*tools, "tritonserver", str(triton), str(factor)]
    (kit / "kit.json").write_text(json.dumps(page))
