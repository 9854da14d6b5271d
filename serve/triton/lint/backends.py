"""What is known of Triton's backends: their platforms, and the file that each opens.

Source: `backend_config` and `constants.h` of Triton's core; a backend that is not here may well
exist in somebody's image.
"""

PLATFORMS = {
    "onnxruntime_onnx": "onnxruntime",
    "tensorrt_plan": "tensorrt",
    "pytorch_libtorch": "pytorch",
    "tensorflow_savedmodel": "tensorflow",
    "tensorflow_graphdef": "tensorflow",
    "ensemble": "",
}
FILES = {
    "onnxruntime": "model.onnx",
    "tensorrt": "model.plan",
    "pytorch": "model.pt",
    "openvino": "model.xml",
    "python": "model.py",
    "dali": "model.dali",
    "vllm": "model.json",
}
TENSORFLOW_FILES = ("model.savedmodel", ".")  # folders of a version that may be a SavedModel
KNOWN = frozenset(
    {*FILES, "tensorflow", "fil", "tensorrtllm", "identity", "repeat", "square", "ensemble"}
)


def of_platform(platform: str) -> str:
    """The backend of a platform; empty for an ensemble and for an unknown platform."""
    return PLATFORMS.get(platform, "")


def default_file(backend: str) -> str:
    """The name that a backend's model file has unless it is configured; empty when not known."""
    return FILES.get(backend, "")


def backend_of_file(path: str) -> str:
    """The backend whose default file, or folder, this path of a version belongs to; or empty."""
    first = path.partition("/")[0]
    return next((backend for backend, file in FILES.items() if file == first), "")
