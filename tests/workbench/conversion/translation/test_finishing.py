"""The last steps to a file that is served, with graphs made by hand."""

import numpy as np
import onnx
from onnx import helper
from refusals import refusal

from serve.core.errors import ConversionFailed
from serve.tensors.signature import ModelSignature, ModelTensor
from serve.workbench.conversion.graphs.blame import blamed
from serve.workbench.conversion.graphs.last_steps import IR_VERSION, finish, serialized
from serve.workbench.conversion.graphs.session import OnnxModel

from ..model_files import model

PAIR = ModelSignature(
    "savedmodel", (ModelTensor("a", "FP32", (-1, 2)),), (ModelTensor("y", "FP32", (-1, 2)),)
)


def made(
    *nodes: onnx.NodeProto, inputs: tuple[str, ...] = ("a",), outputs: tuple[str, ...] = ("y",)
) -> onnx.ModelProto:
    """A model with a weight, and with names as tf2onnx gives them."""
    rows = ("unk__7", 2)
    return model(
        nodes,
        {"w__3": np.float32([2, 3])},
        inputs=dict.fromkeys(inputs, rows),
        outputs=dict.fromkeys(outputs, rows),
    )


def scaling(suffix: str = "__12") -> onnx.ModelProto:
    scale = helper.make_node("Mul", ["a", "w__3"], [f"m{suffix}:0"], name=f"Call/scale{suffix}")
    shift = helper.make_node("Add", [f"m{suffix}:0", "w__3"], ["y"], name="shift")
    return made(scale, shift)


def test_the_first_free_dimension_is_called_batch() -> None:
    finished = finish(scaling(), PAIR)
    tensors = (*finished.graph.input, *finished.graph.output)
    assert [each.type.tensor_type.shape.dim[0].dim_param for each in tensors] == ["batch", "batch"]
    assert finished.ir_version == IR_VERSION


def test_names_do_not_depend_on_the_counters_of_a_converter() -> None:
    assert serialized(finish(scaling("__12"), PAIR)) == serialized(finish(scaling("__99"), PAIR))


def test_a_node_keeps_its_scope_without_the_calls_around_it() -> None:
    node = helper.make_node("Relu", ["a"], ["y"], name="StatefulPartitionedCall/net/relu__4")
    assert [each.name for each in finish(made(node), PAIR).graph.node] == ["net/relu"]


def test_an_input_that_nothing_uses_is_still_there() -> None:
    signature = ModelSignature(
        "savedmodel", (*PAIR.inputs, ModelTensor("b", "FP32", (-1, 2))), PAIR.outputs
    )
    node = helper.make_node("Relu", ["a"], ["y"])
    finished = OnnxModel(serialized(finish(made(node, inputs=("a", "b")), signature)))
    assert [spec.name for spec in finished.signature.inputs] == ["a", "b"]
    zeros = np.zeros((1, 2), np.float32)
    assert finished({"a": zeros, "b": zeros})["y"].shape == (1, 2)


def test_the_numbers_stay_the_same() -> None:
    rows = np.random.default_rng(0).normal(size=(3, 2)).astype(np.float32)
    before, after = OnnxModel(serialized(scaling())), OnnxModel(serialized(finish(scaling(), PAIR)))
    np.testing.assert_array_equal(before({"a": rows})["y"], after({"a": rows})["y"])


def test_what_was_onnx_already_keeps_its_inner_names() -> None:
    own = ModelSignature("onnx", PAIR.inputs, PAIR.outputs)
    assert [each.name for each in finish(scaling(), own).graph.node] == ["Call/scale__12", "shift"]


def test_an_output_that_the_graph_does_not_give_is_a_fault() -> None:
    node = helper.make_node("Relu", ["a"], ["other"])
    fault = refusal(ConversionFailed, finish, made(node, outputs=("other",)), PAIR)
    assert (fault.code, fault.node) == ("invalid_graph", "y")


def test_an_operator_that_no_runtime_has_is_named_with_its_node() -> None:
    node = helper.make_node("Erfc", ["a"], ["y"], name="net/erfc")
    fault = refusal(ConversionFailed, finish, made(node), PAIR)
    assert fault.code in ("invalid_graph", "cannot_load")
    assert (fault.operator, fault.node) == ("Erfc", "net/erfc")


def test_messages_name_what_is_to_blame() -> None:
    for words, blame in (
        ('This is an invalid model. In Node, ("c", Conv, "", -1)', ("", "")),
        ("Node (conv1) Op (Conv) [ShapeInferenceError] W", ("Conv", "conv1")),
        ("[ShapeInferenceError] (op_type:Conv, node name: conv1): W", ("Conv", "conv1")),
        ("No Op registered for Erfc with domain_version of 18", ("Erfc", "")),
        ("Could not find an implementation for Conv(11) node with name 'c1'", ("Conv", "c1")),
    ):
        assert blamed(words) == blame
