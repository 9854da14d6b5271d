"""What a file computes in, and whether that is what was asked for."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from serve.workbench.conversion.graphs.contents import check_precision, contents, last_operators
from serve.workbench.conversion.report import GateStep
from serve.workbench.conversion.request import Precision

from ..model_files import floats, model, node, value
from .graph_models import digits


def pair(name: str) -> list:
    """A Q/DQ pair around a tensor."""
    return [
        node("QuantizeLinear", f"{name} scale zero", f"{name}_q"),
        node("DequantizeLinear", f"{name}_q scale zero", f"{name}_dq"),
    ]


def scaled(zero: int = 0):
    return model(
        [*pair("x"), *pair("w"), node("Transpose", "w_dq", "t"), node("MatMul", "x_dq t", "y")],
        {"w": floats(4, 4), "scale": np.float32(0.1), "zero": np.int8(zero)},
    )


def test_a_model_in_fp32_is_no_other():
    assert contents(digits())["compute"] == {"fp32": 3}
    assert check_precision(digits(), Precision.FP32).passed
    for wanted in (Precision.FP16, Precision.INT8):
        result = check_precision(digits(), wanted)
        assert (result.step, result.passed) == (GateStep.PRECISION, False)
        assert result.code == "precision_missing"
        assert result.summary == "3 compute nodes: 3 in FP32"


def test_a_model_without_products_holds_no_precision():
    empty = model([node("Relu", "x", "y")])
    assert check_precision(empty, Precision.FP32).passed
    assert check_precision(empty, Precision.INT8).summary == "there are no compute nodes"
    assert not check_precision(empty, Precision.INT8).passed


def test_int8_is_seen_through_moves_and_has_zero_points_of_zero():
    found = contents(scaled())
    assert (found["compute"], found["qdq_pairs"], found["quantised_weights"]) == ({"int8": 1}, 2, 1)
    assert check_precision(scaled(), Precision.INT8).passed
    result = check_precision(scaled(zero=3), Precision.INT8)
    assert not result.passed
    assert result.summary == "1 compute nodes: 1 in INT8; 4 zero points are not 0"


def test_casts_alone_are_no_fp16():
    made = model(
        [
            node("Cast", "x", "h", to=TensorProto.FLOAT16),
            node("Cast", "h", "f", to=TensorProto.FLOAT),
            node("MatMul", "f w", "y"),
        ],
        {"w": floats(4, 4)},
    )
    assert contents(made)["casts"] == 2
    assert check_precision(made, Precision.FP16).code == "precision_missing"


@pytest.mark.parametrize(
    ("kind", "word"), [(TensorProto.FLOAT, "fp32"), (TensorProto.FLOAT16, "fp16")]
)
def test_products_in_bodies_count(kind, word):
    weight = helper.make_tensor("w", kind, (4, 4), [1.0] * 16)
    branches = [
        helper.make_graph([node("MatMul", f"x {w}", out)], out, [], [value(out, kind, None)], own)
        for out, w, own in (("one", "w", [weight]), ("other", "w", [weight]))
    ]
    made = model(
        [node("If", "is_one", "y", then_branch=branches[0], else_branch=branches[1])],
        {"is_one": np.array(True)},
        inputs={"x": (kind, ("batch", 4))},
        outputs={"y": (kind, ("batch", 4))},
    )
    assert contents(made)["compute"] == {word: 2}


def test_the_operator_that_makes_an_output_is_found_behind_moves():
    made = model([node("Softmax", "x", "s"), *pair("s"), node("Identity", "s_dq", "y")])
    assert last_operators(made) == {"y": "Softmax"}
    assert last_operators(model([node("Identity", "x", "y")])) == {"y": ""}
