"""What TensorRT refuses, by node, and what it takes."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnxruntime.quantization import CalibrationDataReader, quantize_static

from serve.workbench.conversion.graphs.fp16 import to_fp16
from serve.workbench.conversion.graphs.int8 import to_int8
from serve.workbench.conversion.graphs.preflight import Problem, preflight

from ..model_files import floats, model, node, value
from .graph_models import digits, samples

INT64, UINT8, INT8 = TensorProto.INT64, TensorProto.UINT8, TensorProto.INT8


class Once(CalibrationDataReader):
    """One batch of digits."""

    def __init__(self):
        self._rest = samples()[:1]

    def get_next(self):
        return self._rest.pop() if self._rest else None


def blocking(made):
    return [problem for problem in preflight(made) if problem.blocks]


@pytest.mark.parametrize(
    "made",
    [digits, lambda: to_fp16(digits(), samples()), lambda: to_int8(digits(), samples())],
    ids=["fp32", "fp16", "int8"],
)
def test_our_own_files_are_taken(made):
    assert preflight(made()) == ()


def test_a_file_that_is_quantised_by_default_is_refused_by_node(tmp_path: Path):
    path = tmp_path / "default.onnx"
    quantize_static(digits(), path, Once())
    found = {problem.node: problem.why for problem in preflight(onnx.load(path))}
    asymmetric = "its zero point is -128, TensorRT requires 0 (symmetric quantisation)"
    wide = "it quantises to INT32, TensorRT supports INT8"
    blamed = {
        why: {node.rpartition("_")[2] for node in found if found[node] == why}
        for why in found.values()
    }
    assert "QuantizeLinear" in blamed[asymmetric]
    assert blamed[wide] == {"DequantizeLinear"}


def scaling(zero, scale=0.1):
    return model(
        [node("QuantizeLinear", "x s z", "q"), node("DequantizeLinear", "q s z", "y")],
        {"s": np.array(scale, np.float32), "z": zero},
    )


def branching():
    nodes = [node("Identity", "x", "flat"), node("Unsqueeze", "x axis", "deep")]
    branches = [
        helper.make_graph([each], "branch", [], [value(each.output[0], 1, shape)])
        for each, shape in zip(nodes, [("b", 4), ("b", 1, 4)], strict=True)
    ]
    return model(
        [node("If", "yes", "y", then_branch=branches[0], else_branch=branches[1])],
        {"yes": np.array(True), "axis": np.array([1])},
    )


def collecting(trips):
    body = helper.make_graph(
        [node("Identity", "go", "goes"), node("Add", "s x", "t"), node("Relu", "t", "each")],
        "body",
        [value("i", INT64, []), value("go", TensorProto.BOOL, []), value("s", 1, None)],
        [value("goes", TensorProto.BOOL, []), value("t", 1, None), value("each", 1, None)],
    )
    return model(
        [node("Loop", "trips yes x", "last y", body=body)],
        {"yes": np.array(True), "trips": np.array(trips)},
        outputs={"y": ("n", "batch", 4)},
    )


def one(
    operator, inputs="x", weights=None, *, kind=1, shape=("batch", 4), given=None, **attributes
):
    """A model of one node; `given` are further inputs."""
    domain = attributes.get("domain", "")
    made = [node(operator, inputs, "y", **attributes)]
    values = {"x": (kind, shape)} | (given or {})
    return model(made, weights, inputs=values, domains={domain: 1} if domain else None)


PICTURE = ("batch", 3, 8, 8)
REFUSED = {  # by their first node, and why
    "no such operator": (one("Det"), "does not support this operator"),
    "a window of Fourier": (
        one("STFT", "x step", {"step": np.array(2)}, onesided=0), "does not support this operator"
    ),
    "another domain": (
        one("FusedMatMul", "x x", domain="com.microsoft"), "domain is 'com.microsoft'"
    ),
    "classical machine learning": (one("Scaler", domain="ai.onnx.ml"), "domain is 'ai.onnx.ml'"),
    "integer products": (one("MatMulInteger", "x x", kind=INT8), "symmetric Q/DQ pairs"),
    "texts": (one("Identity", kind=TensorProto.STRING), "STRING"),
    "unsigned": (one("Identity", kind=TensorProto.UINT64), "UINT64"),
    "bytes within": (one("Transpose", kind=UINT8), "inputs and outputs"),
    "INT8 without pairs": (one("Relu", kind=INT8), "only between Q and DQ"),
    "a zero point": (scaling(np.array(7, np.int8)), "zero point is 7"),
    "quantised to bytes": (scaling(np.array(0, np.uint8)), "UINT8"),
    "a scale of nothing": (scaling(np.array(0, np.int8), 0), "scale is 0"),
    "no zero point": (
        model([node("QuantizeLinear", "x s", "q"), node("DequantizeLinear", "q s", "y")],
              {"s": np.array(1, np.float32)}),
        "UINT8",
    ),
    "branches of other ranks": (branching(), "2 dimensions in one branch and 3"),
    "as many results as come": (collecting((1 << 63) - 1), "not known at build time"),
    "places of maxima": (
        model([node("MaxPool", "x", "y at", kernel_shape=[2, 2])], inputs={"x": PICTURE},
              outputs={"y": None, "at": (INT64, None)}),
        "indices",
    ),
    "dilated pools": (
        one("MaxPool", shape=PICTURE, kernel_shape=[2, 2], dilations=[2, 2]), "dilations"
    ),
    "cubic": (
        one("Resize", "x - s", {"s": np.float32([1, 1, 2, 2])}, shape=PICTURE, mode="cubic"),
        "mode is cubic",
    ),
    "axes from outside": (
        one("ReduceSum", "x axes", given={"axes": (INT64, (1,))}), "axes 'axes' must be constant"
    ),
    "sums into places": (
        one("ScatterND", "x i u", {"i": np.array([[0]]), "u": floats(1, 4)}, reduction="add"),
        "reduction is add",
    ),
    "too many of the largest": (
        model([node("TopK", "x k", "y at")], {"k": np.array([4000])}), "4000"
    ),
    "a layout of its own": (
        one("LSTM", "x w r", {"w": floats(1, 8, 4), "r": floats(1, 8, 2)},
            shape=("batch", 3, 4), hidden_size=2, layout=1),
        "layout",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("made", "why"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused_names_its_node_and_why(made, why):
    first, refused = blocking(made)[0], made.graph.node[0]
    assert (first.operator, first.node) == (refused.op_type, refused.name)
    assert why in first.why


TAKEN = {
    "bytes that come in": model(
        [node("Cast", "x", "f", to=1), node("Relu", "f", "y")], inputs={"x": (UINT8, (1, 4))}
    ),
    "bytes that go out": model(
        [node("Relu", "x", "f"), node("Cast", "f", "y", to=UINT8)], outputs={"y": (UINT8, (1, 4))}
    ),
    "three rounds": collecting(3),
    "no zero": scaling(np.array(0, np.int8)),
    "axes from sizes": model(
        [node("Shape", "w", "size"), node("Gather", "size first", "axis"),
         node("Unsqueeze", "x axis", "y")],
        {"w": floats(1, 2), "first": np.array([0])},
    ),
    "boxes": model(
        [node("NonMaxSuppression", "x s", "y")],
        inputs={"x": (1, 5, 4), "s": (1, 1, 5)},
        outputs={"y": (INT64, None)},
    ),
    "a plug-in of TensorRT": one("EfficientNMS_TRT", domain="trt.plugins"),
}  # fmt: skip


@pytest.mark.parametrize("made", TAKEN.values(), ids=TAKEN)
def test_what_tensorrt_can_take_is_not_refused(made):
    assert blocking(made) == []


def test_nodes_in_bodies_are_looked_at_too():
    body = helper.make_graph([node("Det", "x", "z")], "body", [], [value("z", 1, None)])
    made = model(
        [node("If", "yes", "y", then_branch=body, else_branch=body)], {"yes": np.array(True)}
    )
    assert [problem.node for problem in preflight(made)] == ["the_z", "the_z"]


def test_doubles_are_one_note():
    made = model(
        [node("Relu", "x", "h"), node("Abs", "h", "y")],
        inputs={"x": (TensorProto.DOUBLE, (1, 4))},
        outputs={"y": (TensorProto.DOUBLE, (1, 4))},
    )
    why = "TensorRT computes DOUBLE as FP32 (here and in 1 other nodes)"
    assert preflight(made) == (Problem("Relu", "the_h", why, blocks=False),)


def test_whole_numbers_where_the_table_has_floats_are_a_note():
    (note,) = preflight(one("Clip", kind=INT64))
    assert not note.blocks and "integers" in note.why


@pytest.mark.parametrize("opset", [8, 26])
def test_an_opset_that_tensorrt_does_not_read_is_about_the_whole_model(opset):
    made = model([node("Relu", "x", "y")], opset=opset)
    first = preflight(made)[0]
    assert first.why == f"the model has opset {opset}, TensorRT supports 9 to 25"
    assert first.node == ""
