"""The flavour `onnx+trt`: the same ONNX file, and ONNX Runtime has TensorRT run what it can.

The engine is built when the model is loaded, on the GPU that serves it, and lies in the machine's
engine cache from then on; `serve/triton/flavoured.py` says where. The profile of shapes is said, or
every new shape would build another one. No `precision_mode` stands here: it sets builder flags that
TensorRT 11 no longer has. What the graph computes in is in the graph; TensorRT 10 needs those flags
for FP16 and INT8, so such a file asks for 11.

Source: "Parameter mapping" of triton-inference-server/onnxruntime_backend.
"""

from collections.abc import Sequence
from types import MappingProxyType

from serve.core.flavours import Flavour, Needs
from serve.triton.config import Configuration
from serve.workbench.conversion.plans.placement import on_gpu
from serve.workbench.conversion.plans.profiles import Profile, listed
from serve.workbench.conversion.request import Precision

NAME = "onnx+trt"


def accelerated(
    base: Configuration, profiles: Sequence[Profile], precision: Precision, *, workspace: int = 0
) -> Flavour:
    """The entry of flavours.json; `workspace` in bytes, 0 for what ONNX Runtime takes (1 GiB)."""
    parameters = {"trt_engine_cache_enable": "1"}
    for which, shapes in listed(profiles).items():
        parameters[f"trt_profile_{which}_shapes"] = shapes
    if workspace:
        parameters["max_workspace_size_bytes"] = str(workspace)
    accelerator = {"name": "tensorrt", "parameters": parameters}
    config = {
        "optimization": {"execution_accelerators": {"gpu_execution_accelerator": [accelerator]}},
        **on_gpu(base),
    }
    wants = () if precision is Precision.FP32 else ("11",)
    return Flavour(NAME, Needs(gpu=True, tensorrt=wants), config=MappingProxyType(config))
