"""INT8: symmetric Q/DQ pairs around products, and nothing else."""

import os
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
from onnx import TensorProto, numpy_helper
from refusals import refusal

from serve.core.errors import ConversionFailed
from serve.workbench.conversion.graphs.contents import check_precision, contents
from serve.workbench.conversion.graphs.fp16 import to_fp16
from serve.workbench.conversion.graphs.int8 import to_int8
from serve.workbench.conversion.graphs.preflight import preflight
from serve.workbench.conversion.request import Precision

from ..model_files import floats, model, node
from .graph_models import ROOT, accuracy, digits, run, samples

X = floats(8, 4)
PICTURES = floats(4, 3, 6, 6)


def operators(made):
    return Counter(each.op_type for each in made.graph.node)


def test_digits_keeps_its_accuracy_and_computes_in_int8():
    small = to_int8(digits(), samples())
    assert abs(accuracy(small) - accuracy(digits())) <= 0.005
    assert list(small.graph.input) == list(digits().graph.input)
    assert list(small.graph.output) == list(digits().graph.output)
    counts = {"qdq_pairs": 6, "zero_points": 0, "quantised_weights": 3, "casts": 0}
    assert contents(small) == {"compute": {"int8": 3}, **counts}
    assert check_precision(small, Precision.INT8).passed
    assert preflight(small) == ()
    assert {each.domain for each in small.graph.node} == {""}
    assert [each.domain for each in small.opset_import] == [""]


def test_weights_have_a_scale_per_output_channel_and_stay_fp32():
    made = model(
        [node("Conv", "x w b", "y")],
        {"w": floats(5, 3, 3, 3), "b": floats(5)},
        inputs={"x": ("batch", 3, 6, 6)},
        outputs={"y": ("batch", 5, 4, 4)},
    )
    small = to_int8(made, [{"x": PICTURES}])
    weights = {each.name: numpy_helper.to_array(each) for each in small.graph.initializer}
    np.testing.assert_array_equal(weights["w"], floats(5, 3, 3, 3))
    np.testing.assert_array_equal(weights["b"], floats(5))
    scales = [array for name, array in weights.items() if name.endswith("scale")]
    assert sorted(array.size for array in scales) == [1, 5]
    largest = np.abs(floats(5, 3, 3, 3)).max(axis=(1, 2, 3))
    np.testing.assert_allclose(max(scales, key=np.size), largest / 127, rtol=1e-5)
    expected = run(made, x=PICTURES)["y"]
    assert np.abs(run(small, x=PICTURES)["y"] - expected).mean() < 0.02 * expected.std()


def test_a_shortcut_is_quantised_and_the_convolution_before_the_sum_is_not():
    made = model(
        [
            node("Conv", "x w", "one", pads=[1, 1, 1, 1]),
            node("Relu", "one", "bent"),
            node("Conv", "bent v", "two", pads=[1, 1, 1, 1]),
            node("Add", "x two", "sum"),
            node("Relu", "sum", "y"),
        ],
        {"w": floats(3, 3, 3, 3), "v": floats(3, 3, 3, 3, seed=1)},
        inputs={"x": ("batch", 3, 6, 6)},
        outputs={"y": ("batch", 3, 6, 6)},
    )
    small = to_int8(made, [{"x": PICTURES}])
    sources = {name: each for each in small.graph.node for name in each.output}
    (total,) = (each for each in small.graph.node if each.op_type == "Add")
    assert [sources[name].op_type for name in total.input] == ["DequantizeLinear", "Conv"]
    assert operators(small)["QuantizeLinear"] == operators(small)["DequantizeLinear"] == 5
    expected = run(made, x=PICTURES)["y"]
    assert np.abs(run(small, x=PICTURES)["y"] - expected).mean() < 0.05 * expected.std()


def test_biases_and_products_of_two_values_are_not_quantised():
    made = model(
        [
            node("MatMul", "x w", "h"),
            node("Add", "h b", "q"),
            node("Transpose", "q", "k", perm=[1, 0]),
            node("MatMul", "q k", "y"),
        ],
        {"w": floats(4, 4), "b": floats(4)},
        outputs={"y": ("batch", "batch2")},
    )
    small = to_int8(made, [{"x": X}])
    assert contents(small)["compute"] == {"fp32": 1, "int8": 1}
    assert contents(small)["qdq_pairs"] == 2


def test_a_gemm_has_a_scale_per_output_whichever_way_its_weights_lie():
    for flag, weight in ((0, floats(4, 7)), (1, floats(7, 4))):
        small = to_int8(model([node("Gemm", "x w", "y", transB=flag)], {"w": weight}), [{"x": X}])
        sizes = [each.dims[0] for each in small.graph.initializer if each.dims and each.name != "w"]
        assert 7 in sizes and 4 not in sizes


def test_without_constant_weights_there_is_nothing_to_quantise():
    fault = refusal(ConversionFailed, to_int8, model([node("Relu", "x", "y")]), [{"x": X}])
    assert fault.code == "precision_missing" and "constant weights" in str(fault)


def test_an_opset_without_scales_per_channel_is_refused():
    old = model([node("MatMul", "x w", "y")], {"w": floats(4, 4)}, opset=12)
    assert "the model has 12" in str(refusal(ConversionFailed, to_int8, old, [{"x": X}]))


def test_without_samples_ranges_are_unknown():
    assert refusal(ConversionFailed, to_int8, digits(), []).code == "samples_invalid"


@pytest.mark.parametrize("change", [to_fp16, to_int8])
def test_samples_that_the_model_cannot_take_are_named_as_such(change):
    looked_up = model(
        [node("Gather", "table ids", "word"), node("MatMul", "word w", "y")],
        {"table": floats(3, 4), "w": floats(4, 4)},
        inputs={"ids": (TensorProto.INT64, ("batch",))},
    )
    fault = refusal(ConversionFailed, change, looked_up, [{"ids": np.array([7])}])
    assert fault.code == "samples_invalid" and "the_word" in str(fault)


def test_no_file_is_left_and_nothing_is_said(tmp_path):
    script = (
        "import numpy as np, onnx\n"
        "from serve.workbench.conversion.graphs.int8 import to_int8\n"
        f"model = onnx.load({str(ROOT / 'model_repo/digits/2/model.onnx')!r})\n"
        "to_int8(model, [{'x': np.ones((2, 8, 8, 1), np.float32)}])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "TMPDIR": str(tmp_path), "ORT_DISABLE_TELEMETRY": "1"},
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    assert list(tmp_path.iterdir()) == []
    assert done.stdout == done.stderr == b""
