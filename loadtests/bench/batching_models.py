"""Three models of different shape for the measurements of batching, as folders to be pushed.

| model       | parameters | multiplications for a row | what it is like                   |
|-------------|------------|---------------------------|-----------------------------------|
| digits      | 0.01 M     | next to none              | the demo's classifier             |
| residual    | 25.5 M     | 4.1 G                     | ResNet50, layer for layer         |
| transformer | 3.4 M      | 0.2 G                     | an encoder of 4 layers, 64 tokens |

The weights of the last two are random: time does not depend on them.
"""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from loadtests.bench.start import ROOT

LARGEST = 32  # rows of a batch
_OPSET = 17
_STAGES = ((3, 64, 256), (4, 128, 512), (6, 256, 1024), (3, 512, 2048))  # blocks, width, channels
_WIDTH, _HEADS, _TOKENS, _LAYERS, _WORDS = 256, 4, 64, 4, 1000


class _Graph:
    """An ONNX graph that grows node by node; every method gives the name of what it makes."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []

    def add(self, kind: str, *inputs: str, **attributes: object) -> str:
        """A node with one output."""
        name = f"{kind.lower()}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def weight(self, *shape: int) -> str:
        """Random weights that keep the size of what goes through them."""
        scale = np.sqrt(2.0 / max(int(np.prod(shape[1:])), 1)) if len(shape) > 1 else 0.01
        return self.constant((self._rng.standard_normal(shape) * scale).astype(np.float32))

    def constant(self, value: NDArray[np.generic]) -> str:
        """A fixed tensor."""
        name = f"weight_{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(value, name))
        return name

    def model(self, given: onnx.ValueInfoProto, out: str, width: int) -> onnx.ModelProto:
        """The whole; its output is `scores` of (batch, width)."""
        self._nodes.append(helper.make_node("Identity", [out], ["scores"]))
        scores = helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", width])
        graph = helper.make_graph(self._nodes, "model", [given], [scores], self._weights)
        opset = helper.make_opsetid("", _OPSET)
        made = helper.make_model(graph, opset_imports=[opset], ir_version=8)
        onnx.checker.check_model(made)
        return made


def residual() -> onnx.ModelProto:
    """ResNet50 with its batch normalisation folded away: `image` of (batch, 3, 224, 224)."""
    graph = _Graph(50)
    out = _convolution(graph, "image", 3, 64, 7, stride=2)
    out = graph.add("MaxPool", out, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    channels = 64
    for stage, (blocks, width, wide) in enumerate(_STAGES):
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            out = _bottleneck(graph, out, channels, width, wide, stride)
            channels = wide
    out = graph.add("Flatten", graph.add("GlobalAveragePool", out))
    out = graph.add("Gemm", out, graph.weight(1000, channels), graph.weight(1000), transB=1)
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 3, 224, 224])
    return graph.model(image, out, 1000)


def transformer() -> onnx.ModelProto:
    """A text classifier: `tokens` of (batch, 64), numbers from 0 to 999."""
    graph = _Graph(4)
    out = graph.add("Gather", graph.weight(_WORDS, _WIDTH), "tokens")
    out = graph.add("Add", out, graph.weight(_TOKENS, _WIDTH))
    for _ in range(_LAYERS):
        out = _norm(graph, graph.add("Add", out, _attention(graph, out)))
        inner = _dense(graph, out, _WIDTH, 4 * _WIDTH)
        inner = _dense(graph, graph.add("Relu", inner), 4 * _WIDTH, _WIDTH)
        out = _norm(graph, graph.add("Add", out, inner))
    out = _dense(graph, graph.add("ReduceMean", out, axes=[1], keepdims=0), _WIDTH, 10)
    tokens = helper.make_tensor_value_info("tokens", TensorProto.INT64, ["batch", _TOKENS])
    return graph.model(tokens, out, 10)


def write(name: str, folder: Path) -> Path:
    """A folder to push, with one instance, no batching set, and one thread for each execution."""
    target = folder / name
    (target / "1").mkdir(parents=True)
    model_file = target / "1" / "model.onnx"
    if name == "digits":
        shutil.copyfile(ROOT / "model_repo" / "digits" / "2" / "model.onnx", model_file)
    else:
        onnx.save(_MADE[name](), model_file)
    (target / "config.pbtxt").write_text(
        f'backend: "onnxruntime"\nmax_batch_size: {LARGEST}\n{_TENSORS[name]}'
        "instance_group { count: 1 kind: KIND_CPU }\n"
        'parameters { key: "intra_op_thread_count" value { string_value: "1" } }\n'
    )
    return target


def _convolution(
    graph: _Graph, given: str, channels: int, width: int, size: int, *, stride: int = 1
) -> str:
    pads = [size // 2] * 4
    weights = graph.weight(width, channels, size, size), graph.weight(width)
    shape = {"kernel_shape": [size, size], "strides": [stride, stride], "pads": pads}
    return graph.add("Relu", graph.add("Conv", given, *weights, **shape))


def _bottleneck(
    graph: _Graph, given: str, channels: int, width: int, wide: int, stride: int
) -> str:
    inner = _convolution(graph, given, channels, width, 1)
    inner = _convolution(graph, inner, width, width, 3, stride=stride)
    inner = graph.add("Conv", inner, graph.weight(wide, width, 1, 1), graph.weight(wide))
    if channels != wide:
        weights = graph.weight(wide, channels, 1, 1), graph.weight(wide)
        given = graph.add("Conv", given, *weights, strides=[stride, stride])
    return graph.add("Relu", graph.add("Add", inner, graph.add("Mul", given, _half(graph))))


def _half(graph: _Graph) -> str:
    """Random sums grow from block to block, unless something holds them back."""
    return graph.constant(np.array(0.5, np.float32))


def _attention(graph: _Graph, given: str) -> str:
    size = _WIDTH // _HEADS
    shape = graph.constant(np.array([0, _TOKENS, _HEADS, size], np.int64))

    def heads(order: list[int]) -> str:
        made = graph.add("Reshape", _dense(graph, given, _WIDTH, _WIDTH), shape)
        return graph.add("Transpose", made, perm=order)

    queries, keys, values = heads([0, 2, 1, 3]), heads([0, 2, 3, 1]), heads([0, 2, 1, 3])
    scale = graph.constant(np.array(size**-0.5, np.float32))
    weights = graph.add("Softmax", graph.add("Mul", graph.add("MatMul", queries, keys), scale))
    mixed = graph.add("Transpose", graph.add("MatMul", weights, values), perm=[0, 2, 1, 3])
    whole = graph.constant(np.array([0, _TOKENS, _WIDTH], np.int64))
    return _dense(graph, graph.add("Reshape", mixed, whole), _WIDTH, _WIDTH)


def _dense(graph: _Graph, given: str, width: int, out: int) -> str:
    weights = graph.constant(
        np.random.default_rng(width * out).standard_normal((width, out)).astype(np.float32)
        / np.float32(np.sqrt(width))
    )
    return graph.add("Add", graph.add("MatMul", given, weights), graph.weight(out))


def _norm(graph: _Graph, given: str) -> str:
    ones = graph.constant(np.ones(_WIDTH, np.float32))
    return graph.add("LayerNormalization", given, ones, graph.weight(_WIDTH), axis=-1)


_MADE: Mapping[str, Callable[[], onnx.ModelProto]] = {
    "residual": residual,
    "transformer": transformer,
}
_TENSORS = {
    "digits": 'input { name: "x" data_type: TYPE_FP32 dims: [ 8, 8, 1 ] }\n'
    'output { name: "probabilities" data_type: TYPE_FP32 dims: [ 10 ] }\n',
    "residual": 'input { name: "image" data_type: TYPE_FP32 dims: [ 3, 224, 224 ] }\n'
    'output { name: "scores" data_type: TYPE_FP32 dims: [ 1000 ] }\n',
    "transformer": f'input {{ name: "tokens" data_type: TYPE_INT64 dims: [ {_TOKENS} ] }}\n'
    'output { name: "scores" data_type: TYPE_FP32 dims: [ 10 ] }\n',
}
NAMES = ("digits", *_MADE)
