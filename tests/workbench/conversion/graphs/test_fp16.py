"""FP16: what computes in half precision, what does not, and what is refused."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from refusals import refusal

from serve.core.errors import ConversionFailed
from serve.workbench.conversion.graphs.contents import check_precision, contents
from serve.workbench.conversion.graphs.fp16 import HEAVY, LIGHT, MOVES, to_fp16
from serve.workbench.conversion.graphs.fp16_emulation import rounded
from serve.workbench.conversion.request import Precision

from ..model_files import floats, model, node, value
from .graph_models import accuracy, digits, run, samples, type_of

X = floats(8, 4)
FLOAT = TensorProto.FLOAT


def test_digits_keeps_its_accuracy_and_its_types_and_computes_in_fp16():
    half = to_fp16(digits(), samples())
    assert abs(accuracy(rounded(half)) - accuracy(digits())) <= 0.005
    assert list(half.graph.input) == list(digits().graph.input)
    assert list(half.graph.output) == list(digits().graph.output)
    assert contents(half)["compute"] == {"fp16": 3}
    assert contents(half)["casts"] == 2  # one in, one before the softmax
    assert check_precision(half, Precision.FP16).passed
    assert len(half.SerializeToString()) < len(digits().SerializeToString()) * 0.6


def test_every_operator_of_the_table_may_be_fp16():
    for operator in HEAVY | LIGHT | MOVES:
        for constraint in onnx.defs.get_schema(operator, 18).type_constraints:
            allowed = set(constraint.allowed_type_strs)
            assert "tensor(float)" not in allowed or "tensor(float16)" in allowed, operator


def product(weight):
    return model([node("MatMul", "x w", "y")], {"w": weight})


def test_a_product_that_does_not_fit_is_refused_by_name():
    large = model(
        [node("MatMul", "x w", "big"), node("Relu", "big", "y")], {"w": floats(4, 4) * 1e5}
    )
    fault = refusal(ConversionFailed, to_fp16, large, [{"x": X}])
    assert "the_big: 'big' reaches" in str(fault)
    assert (fault.code, fault.operator, fault.node) == ("fp16_overflow", "MatMul", "the_big")


def test_a_product_that_fits_by_less_than_half_is_refused_as_well():
    def rows_of(size):
        return {"x": np.full((1, 4), size, np.float32)}

    nearly = product(np.eye(4, dtype=np.float32))
    fault = refusal(ConversionFailed, to_fp16, nearly, [{"x": X}, rows_of(40_000)])
    assert "reaches 4e" in str(fault)
    assert to_fp16(nearly, [rows_of(30_000)])


def test_weights_that_do_not_fit_or_would_become_zero_are_refused():
    """Even if no sample needs them."""
    large = product(np.array([[1e6, 0], [0, 1], [0, 0], [0, 0]], np.float32))
    zeros = [{"x": np.zeros((1, 4), np.float32)}]
    assert "'w' contains 1e+06" in str(refusal(ConversionFailed, to_fp16, large, zeros))
    tiny = product(floats(4, 4, scale=1e-8))
    assert "so small" in str(refusal(ConversionFailed, to_fp16, tiny, [{"x": X}]))
    weight = floats(4, 4)
    weight[0] = 1e-12  # a few among others are no reason
    assert to_fp16(product(weight), [{"x": X}])


def test_a_mask_of_minus_a_thousand_million_stays_in_fp32():
    attention = model(
        [
            node("MatMul", "x wq", "q"),
            node("MatMul", "x wk", "k"),
            node("Transpose", "k", "kt", perm=[1, 0]),
            node("MatMul", "q kt", "scores"),
            node("Mul", "mask low", "penalty"),
            node("Add", "scores penalty", "masked"),
            node("Softmax", "masked", "shares"),
            node("MatMul", "shares x", "y"),
        ],
        {"wq": floats(4, 4), "wk": floats(4, 4, seed=1), "low": np.array(-1e9, np.float32)},
        inputs={"x": (8, 4), "mask": (8, 8)},
    )
    mask = np.triu(np.ones((8, 8), np.float32), 1)
    half = to_fp16(attention, [{"x": X, "mask": mask}])
    assert type_of(half, "MatMul") == ["FLOAT16"] * 4
    assert type_of(half, "Add") == type_of(half, "Softmax") == ["FLOAT"]
    expected = run(attention, x=X, mask=mask)["y"]
    np.testing.assert_allclose(run(rounded(half), x=X, mask=mask)["y"], expected, atol=0.02)


def test_the_statistics_of_a_norm_stay_in_fp32():
    norm = model(
        [
            node("MatMul", "x w", "h"),
            node("ReduceMean", "h axes", "mean"),
            node("Sub", "h mean", "centred"),
            node("Mul", "centred centred", "square"),
            node("ReduceMean", "square axes", "variance"),
            node("Add", "variance epsilon", "safe"),
            node("Sqrt", "safe", "deviation"),
            node("Div", "centred deviation", "normal"),
            node("MatMul", "normal w", "y"),
        ],
        {"w": floats(4, 4, scale=200), "axes": np.array([-1]), "epsilon": np.float32(1e-12)},
    )
    half = to_fp16(norm, [{"x": X}])
    assert type_of(half, "MatMul") == ["FLOAT16", "FLOAT16"]
    assert {*type_of(half, "ReduceMean"), *type_of(half, "Add"), *type_of(half, "Mul")} == {"FLOAT"}
    expected = run(norm, x=X)["y"]
    np.testing.assert_allclose(run(rounded(half), x=X)["y"], expected, atol=2, rtol=1e-2)


def test_what_is_rounded_afterwards_is_computed_in_fp32():
    steps = model(
        [
            node("MatMul", "x w", "h"),
            node("Mul", "h h", "square"),
            node("Floor", "square", "down"),
            node("Cast", "down", "y", to=TensorProto.INT64),
        ],
        {"w": floats(4, 4)},
        outputs={"y": (TensorProto.INT64, ("batch", 4))},
    )
    half = to_fp16(steps, [{"x": X}])
    assert type_of(half, "MatMul") == ["FLOAT16"]
    assert type_of(half, "Mul") == ["FLOAT"]


def test_an_input_is_scaled_in_fp32_and_rounded_once():
    scaled = model(
        [node("Mul", "x share", "s"), node("MatMul", "s w", "y")],
        {"share": np.array(1 / 255, np.float32), "w": floats(4, 4)},
    )
    assert type_of(to_fp16(scaled, [{"x": X}]), "Mul") == ["FLOAT"]


def branching() -> onnx.ModelProto:
    branches = [
        helper.make_graph([node(operator, "h k", name)], name, [], [value(name, FLOAT, None)])
        for name, operator in (("then", "Add"), ("other", "Mul"))
    ]
    return model(
        [
            node("MatMul", "x w", "h"),
            node("ReduceSum", "h", "sum", keepdims=0),
            node("Greater", "sum zero", "is_more"),
            node("If", "is_more", "one", then_branch=branches[0], else_branch=branches[1]),
            node("MatMul", "one w", "y"),
        ],
        {"w": floats(4, 4), "k": floats(4), "zero": np.array(0, np.float32)},
    )


def looping() -> onnx.ModelProto:
    body = helper.make_graph(
        [
            node("MatMul", "state w", "next"),
            node("Tanh", "next", "bent"),
            node("Add", "bent h", "out"),
            node("Identity", "go", "goes"),
        ],
        "body",
        [value("count", TensorProto.INT64, []), value("go", TensorProto.BOOL, []),
         value("state", FLOAT, None)],
        [value("goes", TensorProto.BOOL, []), value("out", FLOAT, None)],
    )  # fmt: skip
    return model(
        [
            node("MatMul", "x w", "h"),
            node("Loop", "trips yes h", "last", body=body),
            node("MatMul", "last w", "y"),
        ],
        {"w": floats(4, 4), "trips": np.array(3), "yes": np.array(True)},
    )


@pytest.mark.parametrize("made", [branching(), looping()], ids=["If", "Loop"])
def test_bodies_stay_in_fp32_and_see_what_they_saw(made):
    half = to_fp16(made, [{"x": X}])
    assert type_of(half, "MatMul") == ["FLOAT16", "FLOAT16"]
    inner = [a.g for each in half.graph.node for a in each.attribute if a.HasField("g")]
    outer = [a.g for each in made.graph.node for a in each.attribute if a.HasField("g")]
    assert inner and inner == outer
    expected = run(made, x=X)["y"]
    np.testing.assert_allclose(run(rounded(half), x=X)["y"], expected, atol=0.05)


def test_recurrent_convolutional_and_indexed_models_run_in_fp16():
    mixed = model(
        [
            node("Gather", "table ids", "words"),
            node("LSTM", "words w r b", "steps last", hidden_size=3),
            node("Squeeze", "last zero", "state"),
            node("Split", "state", "left right", axis=1, num_outputs=2),
            node("Concat", "left right", "both", axis=1),
            node("Unsqueeze", "both back", "row"),
            node("Conv", "row kernel", "conv"),
            node("BatchNormalization", "conv scale bias mean var", "even"),
            node("Clip", "even low high", "y"),
        ],
        {"table": floats(20, 4), "zero": np.array([0]), "back": np.array([1])}
        | {"w": floats(1, 12, 4), "r": floats(1, 12, 3), "b": floats(1, 24)}
        | {"kernel": floats(2, 1, 2), "scale": np.abs(floats(2)), "bias": floats(2, seed=1)}
        | {"mean": floats(2, seed=2), "var": np.abs(floats(2, seed=3)) + 0.5}
        | {"low": np.float32(-3), "high": np.float32(3)},
        inputs={"ids": (TensorProto.INT64, (5, "batch"))},
        outputs={"y": ("batch", 2, "n")},
    )
    ids = np.arange(15).reshape(5, 3)
    half = to_fp16(mixed, [{"ids": ids}])
    assert contents(half)["compute"] == {"fp16": 2}
    expected = run(mixed, ids=ids)["y"]
    for made in (half, rounded(half)):
        np.testing.assert_allclose(run(made, ids=ids)["y"], expected, atol=0.01)


def test_constants_that_are_nodes_become_fp16_too():
    weight = helper.make_tensor("w", FLOAT, (4, 4), floats(4, 4).ravel().tolist())
    constant = model([node("Constant", "", "w", value=weight), node("MatMul", "x w", "y")])
    half = to_fp16(constant, [{"x": X}])
    assert [each.op_type for each in half.graph.node] == ["Cast", "MatMul", "Cast"]


def test_a_rounded_model_answers_as_rounding_after_every_operator_does():
    made = model(
        [node("MatMul", "x w", "h"), node("Relu", "h", "r"), node("MatMul", "r v", "y")],
        {"w": floats(4, 4), "v": floats(4, 4, seed=1)},
    )

    def near(array):
        return array.astype(np.float16).astype(np.float32)

    hidden = np.maximum(near(near(X) @ near(floats(4, 4))), 0)
    expected = near(hidden @ near(floats(4, 4, seed=1)))
    answer = run(rounded(to_fp16(made, [{"x": X}])), x=X)["y"]
    np.testing.assert_array_equal(answer, expected)


def test_a_rounded_model_overflows_as_a_gpu_does():
    made = to_fp16(
        model([node("MatMul", "x w", "h"), node("Mul", "h small", "y")],
              {"w": np.eye(4, dtype=np.float32), "small": np.array(1e-4, np.float32)}),
        [{"x": X}],
    )  # fmt: skip
    answer = run(rounded(made), x=np.full((1, 4), 70_000, np.float32))["y"]
    assert not np.isfinite(answer).any()
