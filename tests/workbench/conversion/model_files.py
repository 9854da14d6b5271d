"""Small model files: ONNX graphs, SavedModels as bytes, and headers of TensorRT plans."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from serve.wire.protobuf import field, number

Sizes = Sequence[int] | None


def value(name: str, element: int, shape: Sequence[int | str | None] | None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, element, shape)


def onnx_model(
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    nodes: Sequence[onnx.NodeProto],
    weights: Mapping[str, Sequence[float]] | None = None,
    *,
    ir_version: int = 8,
    domains: Mapping[str, int] | None = None,
) -> onnx.ModelProto:
    """A model of one graph; a weight that is called like an input is its default."""
    tensors = [
        numpy_helper.from_array(np.array(numbers, np.float32), name)
        for name, numbers in (weights or {}).items()
    ]
    graph = helper.make_graph(nodes, "test", inputs, outputs, tensors)
    opsets = [helper.make_opsetid(*each) for each in ({"": 17} | dict(domains or {})).items()]
    model = helper.make_model(graph, opset_imports=opsets, producer_name="tests")
    model.ir_version = ir_version
    return model


def copying(element: int = TensorProto.FLOAT, *sizes: int | str | None) -> onnx.ModelProto:
    """A model that gives its input `x` back as `y`."""
    shape = sizes or ("batch", 3)
    node = helper.make_node("Identity", ["x"], ["y"])
    return onnx_model([value("x", element, shape)], [value("y", element, shape)], [node])


def scaling(location: str) -> onnx.ModelProto:
    """A model whose one weight lies in another file."""
    x, y = (value(name, TensorProto.FLOAT, ("batch", 3)) for name in "xy")
    model = onnx_model([x], [y], [helper.make_node("Mul", ["x", "w"], ["y"])], {"w": [1, 2, 3]})
    weight = model.graph.initializer[0]
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value=location)
    weight.external_data.add(key="length", value="12")
    return model


def times(path: Path, factor: float) -> Path:
    """A file whose rows of four come out times a factor; it converts without TensorFlow."""
    x, y = (value(name, TensorProto.FLOAT, ("batch", 4)) for name in "xy")
    node = helper.make_node("Mul", ["x", "factor"], ["y"])
    return save(onnx_model([x], [y], [node], {"factor": [factor]}), path)


def save(model: onnx.ModelProto, path: Path) -> Path:
    path.write_bytes(model.SerializeToString())
    return path


def tensor_info(datatype: int, sizes: Sizes) -> bytes:
    """A TensorInfo; without sizes its number of dimensions is unknown."""
    shape = number(3, 1)
    if sizes is not None:
        shape = b"".join(field(2, number(1, size % (1 << 64))) for size in sizes)
    return field(1, b"graph/name:0") + number(2, datatype) + field(3, shape)


def signature_def(inputs: Mapping[str, bytes], outputs: Mapping[str, bytes]) -> bytes:
    def entries(key: int, infos: Mapping[str, bytes]) -> bytes:
        return b"".join(
            field(key, field(1, name.encode()) + field(2, info)) for name, info in infos.items()
        )

    return entries(1, inputs) + entries(2, outputs) + field(3, b"tensorflow/serving/predict")


def saved_model(folder: Path, signatures: Mapping[str, bytes], tag: str = "serve") -> Path:
    """A SavedModel's folder with one graph; the graph itself is left out."""
    info = field(4, tag.encode()) + field(5, b"2.21.0")
    defs = b"".join(
        field(5, field(1, name.encode()) + field(2, each)) for name, each in signatures.items()
    )
    folder.mkdir()
    content = number(1, 1) + field(2, field(1, info) + field(2, b"\x0a\x00") + defs)
    (folder / "saved_model.pb").write_bytes(content)
    return folder


def plan(path: Path, *rows: str, version: Sequence[int] = (10, 3, 0, 26)) -> Path:
    """A plan as far as its header; `rows` are for the TensorRT of the tests."""
    header = b"ftrt" + bytes(4) + bytes(16) + bytes(version)
    path.write_bytes(header + "\n".join(rows).encode())
    return path


def classifier(path: Path, *, labels: Sequence[int | str] = (3, 5, 8)) -> Path:
    """A classifier of three classes as skl2onnx writes it: a label, and maps of probabilities."""
    weights = np.random.default_rng(1).standard_normal((4, 3)).astype(np.float32)
    kind = "classlabels_strings" if isinstance(labels[0], str) else "classlabels_int64s"
    nodes = [
        helper.make_node("MatMul", ["X", "w"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["shares"]),
        helper.make_node("ArgMax", ["shares"], ["output_label"], keepdims=0, axis=1),
        helper.make_node(
            "ZipMap", ["shares"], ["output_probability"], domain="ai.onnx.ml", **{kind: labels}
        ),
    ]
    key = TensorProto.STRING if isinstance(labels[0], str) else TensorProto.INT64
    share = helper.make_tensor_type_proto(TensorProto.FLOAT, [])
    maps = helper.make_sequence_type_proto(helper.make_map_type_proto(key, share))
    graph = helper.make_graph(
        nodes,
        "classifier",
        [value("X", TensorProto.FLOAT, ["rows", 4])],
        [
            value("output_label", TensorProto.INT64, ["rows"]),
            helper.make_value_info("output_probability", maps),
        ],
        [numpy_helper.from_array(weights, "w")],
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
    return save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
