"""Inspecting sources: what is told of each kind, and the child process in which it is done."""

import asyncio
import json
from pathlib import Path

import pytest
from refusals import refusal

from serve.core.errors import ConversionFailed
from serve.workbench.conversion.sources.inspection import Inspection, inspect
from serve.workbench.conversion.sources.inspection_child import read
from serve.workbench.conversion.sources.keras_config import Layer
from serve.workbench.conversion.sources.kinds import SourceKind
from serve.workbench.conversion.sources.operator_scan import Operator

from ..model_files import copying, save
from .archives import DENSE, archive, h5, keras, layer, members, model
from .graphs import DEFAULT, calling, function, meta_graph, node, saved, signature

EXAMPLE = Path(__file__).parents[4] / "model_repo" / "digits" / "1" / "model.onnx"


def look(path: Path, **limits: float) -> Inspection:
    """As it is done: in a child process."""
    return asyncio.run(inspect(path, **limits))  # type: ignore[arg-type]


def codes(found: Inspection) -> list[str]:
    return [fault.code for fault in found.faults]


def test_a_savedmodel_tells_everything_without_tensorflow(tmp_path: Path) -> None:
    nodes = [node("y", "Relu", "x"), node("s", "Svd", "y")]
    found = look(calling(tmp_path / "m", nodes, "s:0"))
    assert (found.kind, found.chosen, found.tags) == (SourceKind.SAVEDMODEL, DEFAULT, ("serve",))
    assert Operator("Relu", 1, ("y",)) in found.operators
    assert found.signatures[DEFAULT]["inputs"][0]["name"] == "x"
    assert found.size == (tmp_path / "m" / "saved_model.pb").stat().st_size
    assert len(found.digest) == 64
    assert [each.flavour for each in found.flavours] == ["onnx", "onnx+trt", "plan"]
    assert found.memory > found.size
    assert codes(found) == ["unsupported_operator"]
    page = json.loads(json.dumps(found.to_json()))
    again = Inspection.from_json(page)
    assert again.to_json() == found.to_json()
    assert again.faults[0].try_this == found.faults[0].try_this


def test_all_faults_are_told_at_once(tmp_path: Path) -> None:
    nodes = [node("s", "Svd", "x"), node("r", "ReadFile", "x"), node("y", "Add", "s", "r")]
    found = read(calling(tmp_path / "m", nodes, "y:0"))
    assert codes(found) == ["dangerous_operator", "unsupported_operator"]
    assert found.faults[1].node == "s"


def test_several_signatures_are_told_and_one_can_be_asked_for(tmp_path: Path) -> None:
    main = [
        node("x", "Placeholder"),
        node("a", "PartitionedCall", "x", calls=["f"]),
        node("b", "PartitionedCall", "x", calls=["g"]),
    ]
    functions = [function("f", [], "x"), function("g", [node("q", "StringLength", "x")], "q:0")]
    named = {"one": signature("a:0"), "two": signature("b:0")}
    folder = saved(tmp_path / "m", meta_graph(main, functions, named))
    assert codes(read(folder)) == ["ambiguous_signature"]
    assert set(read(folder).signatures) == {"one", "two"}
    found = asyncio.run(inspect(folder, signature="two"))
    assert found.chosen == "two"
    assert found.flavours[2].lacks == ("StringLength",)
    assert codes(read(folder, "three")) == ["unknown_signature"]


@pytest.mark.parametrize("suffix", [".keras", ".h5"])
def test_a_keras_model_tells_its_layers_without_keras(suffix: str, tmp_path: Path) -> None:
    write = keras if suffix == ".keras" else h5
    found = look(write(tmp_path / f"m{suffix}", model(DENSE)))
    assert found.layers == (Layer("Dense", 1), Layer("InputLayer", 1))
    assert found.facts["inputs"] == [{"name": "x", "shape": [-1, 4], "datatype": "float32"}]
    assert found.faults == ()
    bad = read(write(tmp_path / f"n{suffix}", model(layer("Lambda", "l"), layer("X", "x", "y"))))
    assert sorted(codes(bad)) == ["custom_object", "lambda_layer"]


def test_an_onnx_file_tells_its_operators() -> None:
    found = look(EXAMPLE)
    assert found.kind is SourceKind.ONNX
    assert "Softmax" in {each.name for each in found.operators}
    assert found.facts["opset"]["ai.onnx"] == 18
    assert found.faults == ()


def test_what_is_damaged_is_told_with_what_is_known(tmp_path: Path) -> None:
    whole = copying().SerializeToString()
    (tmp_path / "m.onnx").write_bytes(whole[: len(whole) // 2])
    assert codes(read(tmp_path / "m.onnx")) == ["source_corrupt"]
    found = read(archive(tmp_path / "m.keras", members(evil=b"x")))
    assert codes(found) == ["archive_unsafe"] and found.digest


def test_limits_hold_while_it_is_looked_into(tmp_path: Path) -> None:
    path = save(copying(), tmp_path / "m.onnx")
    assert refusal(ConversionFailed, look, path, timeout=0.01).code == "timed_out"
