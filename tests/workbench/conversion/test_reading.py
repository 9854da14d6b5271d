"""Reading model files in a child process: what they say, and a sentence for each that is broken."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper
from refusals import refusal

from serve.core.errors import Invalid
from serve.model_files import onnx_reader, plan_reader, savedmodel_reader
from serve.model_files.reader import format_of, read_model
from serve.tensors.signature import ModelSignature, ModelTensor

from .model_files import copying, model, node, plan, save, scaling, value
from .sources.graphs import DEFAULT, meta_graph, saved, signature_def, tensor_info

EXAMPLE = Path(__file__).parents[3] / "model_repo" / "digits" / "1" / "model.onnx"
FAKES = Path(__file__).parent / "fakes"


def read(path: Path, *, timeout: float = 60.0, memory: int = 2 << 30) -> ModelSignature:
    """As it is done: in a child process."""
    return asyncio.run(read_model(path, timeout=timeout, memory=memory))


def read_here(path: Path) -> ModelSignature:
    """What the child process does, in this one: for the many things that a file can say."""
    readers = {"onnx": onnx_reader, "savedmodel": savedmodel_reader, "plan": plan_reader}
    return readers[format_of(path)].read(path)


def refused(path: Path) -> str:
    return str(refusal(Invalid, read_here, path))


def test_the_example_tells_its_tensors_and_its_facts() -> None:
    found = read(EXAMPLE)
    assert found.inputs == (ModelTensor("x", "FP32", (-1, 8, 8, 1)),)
    assert found.outputs == (ModelTensor("probabilities", "FP32", (-1, 10)),)
    assert found.facts["opset"]["ai.onnx"] == 18
    assert "Softmax" in found.facts["operators"]
    assert found.facts["checker"] == ""


def test_data_types_are_told_in_the_words_of_triton(tmp_path: Path) -> None:
    for element, datatype in (
        (TensorProto.STRING, "BYTES"),
        (TensorProto.BFLOAT16, "BF16"),
        (TensorProto.BOOL, "BOOL"),
        (TensorProto.UINT16, "UINT16"),
        (TensorProto.COMPLEX64, "complex64"),
    ):
        found = read_here(save(copying(element, 2, "n", None), tmp_path / "m.onnx"))
        assert found.inputs == (ModelTensor("x", datatype, (2, -1, -1)),)


def test_an_input_with_a_value_in_the_file_is_a_default(tmp_path: Path) -> None:
    weights = {"o": np.float32([1, 2])}
    made = model([node("Add", "x o", "y")], weights, inputs={"x": [2], "o": [2]})
    found = read_here(save(made, tmp_path / "m.onnx"))
    assert [spec.name for spec in found.inputs] == ["x"]
    assert found.facts["defaulted"] == [{"name": "o", "datatype": "FP32", "shape": [2]}]
    made.ir_version = 3  # of the time when every weight had to be an input
    assert read_here(save(made, tmp_path / "m.onnx")).facts["defaulted"] == []


def test_operators_of_inner_graphs_and_other_domains_are_told(tmp_path: Path) -> None:
    y = value("y", TensorProto.FLOAT, None)
    inner = [
        helper.make_graph([node(operator, "x", "y")], operator, [], [y])
        for operator in ("Relu", "Neg")
    ]
    nodes = [
        node("If", "c", "z", then_branch=inner[0], else_branch=inner[1]),
        node("Gelu", "z", "y", domain="com.microsoft"),
    ]
    inputs = {"x": [2], "c": (TensorProto.BOOL, [])}
    domains = {"com.microsoft": 1}
    made = model(nodes, inputs=inputs, outputs={"y": None}, domains=domains)
    found = read_here(save(made, tmp_path / "m.onnx"))
    assert found.facts["operators"] == ["If", "Neg", "Relu", "com.microsoft.Gelu"]
    assert found.outputs == (ModelTensor("y", "FP32", None),)


def test_weights_in_other_files_are_named_and_not_read(tmp_path: Path) -> None:
    found = read_here(save(scaling("weights.bin"), tmp_path / "m.onnx"))
    assert found.facts["external_data"] == ["weights.bin"]
    assert found.facts["checker"] == ""


def test_an_answer_of_any_length_arrives_whole(tmp_path: Path) -> None:
    names = [f"output_with_a_long_name_{index}" for index in range(1500)]
    nodes = [node("Identity", "x", name) for name in names]
    made = model(nodes, inputs={"x": [2]}, outputs=dict.fromkeys(names, (2,)))
    found = read(save(made, tmp_path / "m.onnx"))
    assert [spec.name for spec in found.outputs] == names


def test_a_broken_onnx_file_is_told_in_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    noise, cut_off = bytes(range(256)) * 40, EXAMPLE.read_bytes()[:-100]
    for content in (b"", b"hello", b"<html>404</html>", noise, cut_off):
        path.write_bytes(content)
        assert "'m.onnx' is not an ONNX model" in refused(path), content[:20]


def test_a_file_beyond_what_protobuf_can_hold_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    with path.open("wb") as file:
        file.truncate(3 << 30)
    assert "2 GiB" in str(refusal(Invalid, read, path, memory=1 << 30))


def test_a_reader_that_takes_too_much_memory_or_too_long_is_told_as_that() -> None:
    for memory in (16 << 20, 64 << 20):
        told = str(refusal(Invalid, read, EXAMPLE, memory=memory))
        assert f"more than {memory >> 20} MiB of memory" in told
    assert "longer than 0.01 s" in str(refusal(Invalid, read, EXAMPLE, timeout=0.01))


def test_what_no_reader_knows_is_told(tmp_path: Path) -> None:
    (tmp_path / "m.h5").touch()
    (tmp_path / "empty").mkdir()
    for name, words in (
        ("m.h5", "only .onnx"),
        ("absent.onnx", "does not exist"),
        ("empty", "not a SavedModel"),
    ):
        assert words in str(refusal(Invalid, read, tmp_path / name))


# --- SavedModels ---------------------------------------------------------------------------------

PREDICT = signature_def(
    {"x": tensor_info(1, [-1, 8, 8]), "ids": tensor_info(9, [])},
    {"p": tensor_info(19, [-1, 10]), "any": tensor_info(7, None)},
)


def test_a_saved_model_tells_its_serving_signature(tmp_path: Path) -> None:
    signatures = {DEFAULT: PREDICT, "__saved_model_init_op": PREDICT}
    found = read_here(saved(tmp_path / "m", meta_graph((), (), signatures)))
    assert found.inputs == (ModelTensor("ids", "INT64", ()), ModelTensor("x", "FP32", (-1, 8, 8)))
    assert found.outputs == (ModelTensor("any", "BYTES", None), ModelTensor("p", "FP16", (-1, 10)))
    assert found.facts["signature"] == "serving_default"
    assert found.facts["tensorflow"] == "2.21.0"
    assert list(found.facts["signatures"]) == ["serving_default"]


def test_a_saved_model_of_tensorflow_itself_is_understood() -> None:
    """`saved` was written by TensorFlow 2.21, with the signatures `serving_default` and `bytes`."""
    found = read(Path(__file__).parent / "saved")
    assert found.inputs == (
        ModelTensor("k", "INT64", ()),
        ModelTensor("s", "BYTES", None),
        ModelTensor("x", "FP32", (-1, 3)),
    )
    assert [(spec.name, spec.datatype) for spec in found.outputs] == [
        ("b", "BF16"),
        ("half", "FP16"),
        ("t", "BYTES"),
        ("y", "FP32"),
    ]
    assert list(found.facts["signatures"]) == ["bytes", "serving_default"]
    assert found.facts["tensorflow"] == "2.21.0"


def test_with_several_signatures_and_no_default_none_is_chosen(tmp_path: Path) -> None:
    found = read_here(
        saved(tmp_path / "m", meta_graph((), (), {"classify": PREDICT, "embed": PREDICT}))
    )
    assert (found.facts["signature"], found.inputs) == ("", ())
    assert list(found.facts["signatures"]) == ["classify", "embed"]


def test_a_saved_model_that_is_broken_or_for_training_is_refused(tmp_path: Path) -> None:
    folder = saved(tmp_path / "m", meta_graph((), (), {"serve": PREDICT}))
    for content in (b"\x12\xff", b"hello"):
        (folder / "saved_model.pb").write_bytes(content)
        assert "truncated" in refused(folder)
    (folder / "saved_model.pb").write_bytes(b"")
    assert "no graph has the tag" in refused(folder)
    assert "no signature" in refused(saved(tmp_path / "none", meta_graph((), (), {})))
    training = saved(tmp_path / "train", meta_graph((), (), {"a": PREDICT}, tag="train"))
    assert "tags: train" in refused(training)


# --- TensorRT plans ------------------------------------------------------------------------------


def test_a_plan_tells_the_tensorrt_that_wrote_it(tmp_path: Path) -> None:
    found = read(plan(tmp_path / "m.plan"))
    assert found.format == "plan"
    assert found.facts["tensorrt"] == "10.3.0.26"
    assert found.inputs == ()
    assert found.facts["unread"]


def test_what_does_not_begin_like_a_plan_is_refused(tmp_path: Path) -> None:
    for content in (b"", b"ftrt", b"ptrt" + bytes(40), b'{"a": 1}' * 9):
        (tmp_path / "m.plan").write_bytes(content)
        assert "not a TensorRT plan" in refused(tmp_path / "m.plan")


def test_with_tensorrt_installed_a_plan_tells_its_tensors(tmp_path: Path) -> None:
    path = plan(tmp_path / "m.plan", "input x FLOAT -1,3", "output y HALF -1,10")
    found = child("plan", path)
    assert found.inputs == (ModelTensor("x", "FP32", (-1, 3)),)
    assert found.outputs == (ModelTensor("y", "FP16", (-1, 10)),)
    assert found.facts["unread"] == ""


def child(kind: str, path: Path) -> ModelSignature:
    """What the child process answers, with a TensorRT that the tests have written."""
    ended = subprocess.run(
        [sys.executable, "-P", "-m", "serve.model_files.child", kind, str(path), "0", "60"],
        env=os.environ | {"PYTHONPATH": str(FAKES)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    pieces = [line[1:] for line in ended.stdout.splitlines() if line.startswith(">")]
    return ModelSignature.from_json(json.loads("".join(pieces))["found"])
