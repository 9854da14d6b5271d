"""Versions that declare how their outputs are to be read: pushed, called, compared, and refused."""

import base64
import json
import urllib.request
from pathlib import Path
from typing import Any

import harness
import numpy as np
import pytest
from harness import request
from onnx import TensorProto, helper
from PIL import Image
from pushing import pushed, servegate, source
from trying_scene import Shell

STREAMING = """
import numpy as np
import triton_python_backend_utils as pb

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            words = pb.get_input_tensor_by_name(request, "x").as_numpy().ravel()
            for word in words:
                part = np.array([word.decode() + {end!r}], object)
                sender.send(pb.InferenceResponse([pb.Tensor("text", part)]))
            sender.send(flags=pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
STREAMED = """
backend: "python"
max_batch_size: 0
model_transaction_policy { decoupled: true }
input [{ name: "x" data_type: TYPE_STRING dims: [ -1 ] }]
output [{ name: "text" data_type: TYPE_STRING dims: [ 1 ] }]
instance_group [{ kind: KIND_CPU }]
"""
OUTPUTS: dict[str, tuple[str, int, list[int], dict[str, Any]]] = {
    "scores": ("FP32", TensorProto.FLOAT, [4], {"kind": "classes", "values": "logits"}),
    "species": ("INT64", TensorProto.INT64, [1], {"kind": "classes", "values": "indices"}),
    "tags": ("FP32", TensorProto.FLOAT, [4], {"kind": "multilabel", "values": "probabilities"}),
    "price": ("FP32", TensorProto.FLOAT, [1], {"kind": "number", "unit": "EUR"}),
    "note": ("STRING", TensorProto.STRING, [1], {"kind": "text"}),
    "picture": ("FP32", TensorProto.FLOAT, [2, 2], {"kind": "image", "layout": "HW"}),
    "segments": ("INT64", TensorProto.INT64, [2, 2], {"kind": "mask"}),
    "corners": ("FP32", TensorProto.FLOAT, [1, 4], {"kind": "boxes", "format": "xywh"}),
    "vector": ("FP32", TensorProto.FLOAT, [4], {"kind": "embedding"}),
}
ROW = [[1.0, 2.0, 3.0, 0.0]]
WORDS = {
    "scores": "owl",
    "species": "dog",
    "tags": "owl",
    "price": "1 EUR",
    "note": "1",
    "picture": "2 × 2",
    "segments": "2 × 2",
    "corners": "[1, 2, 4, 2]",
    "vector": "vector of 4, norm 3.742",
}


def graph(shift: list[float]) -> bytes:
    """An ONNX model: every output is made of x, shifted."""
    nodes = [
        helper.make_node("Add", ["x", "shift"], ["moved"]),
        helper.make_node("Gather", ["moved", "first"], ["one"], axis=1),
        helper.make_node("Reshape", ["moved", "square"], ["pixels"]),
        helper.make_node("Identity", ["moved"], ["scores"]),
        helper.make_node("Identity", ["moved"], ["tags"]),
        helper.make_node("Identity", ["moved"], ["vector"]),
        helper.make_node("Identity", ["one"], ["price"]),
        helper.make_node("Identity", ["pixels"], ["picture"]),
        helper.make_node("Cast", ["one"], ["species"], to=TensorProto.INT64),
        helper.make_node("Cast", ["one"], ["note"], to=TensorProto.STRING),
        helper.make_node("Cast", ["pixels"], ["segments"], to=TensorProto.INT64),
        helper.make_node("Reshape", ["moved", "box"], ["corners"]),
    ]
    outputs = [
        helper.make_tensor_value_info(name, kind, ["batch", *shape])
        for name, (_, kind, shape, _) in OUTPUTS.items()
    ]
    constants = [
        helper.make_tensor("shift", TensorProto.FLOAT, [4], shift),
        helper.make_tensor("first", TensorProto.INT64, [1], [0]),
        helper.make_tensor("square", TensorProto.INT64, [3], [-1, 2, 2]),
        helper.make_tensor("box", TensorProto.INT64, [3], [-1, 1, 4]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])
    made = helper.make_graph(nodes, "outputs", [x], outputs, constants)
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    return model.SerializeToString()


def folder(where: Path, shift: list[float], declared: dict[str, Any] | None = None) -> Path:
    """A model folder to push, with all kinds of outputs."""
    source(where, 1.0)
    (where / "1" / "model.onnx").write_bytes(graph(shift))
    config = (where / "config.pbtxt").read_text()
    line = next(each for each in config.splitlines() if each.startswith("output"))
    written = "\n".join(
        f'output {{ name: "{name}" data_type: TYPE_{datatype} dims: {shape} }}'
        for name, (datatype, _, shape, _) in OUTPUTS.items()
    )
    (where / "config.pbtxt").write_text(config.replace(line, written))
    kinds = {name: dict(row) for name, (*_, row) in OUTPUTS.items()}
    for name in ("scores", "species", "tags", "segments"):
        kinds[name]["labels"] = "labels.txt"
    kinds["picture"]["range"] = [0, 4]
    (where / "labels.txt").write_text("cat\ndog\nowl\nfox\n")
    (where / "outputs.json").write_text(json.dumps({"outputs": kinds | (declared or {})}))
    return where


@pytest.mark.triton
def test_outputs_are_shown_and_compared_as_the_version_declares(uploading, tmp_path: Path) -> None:
    pushed(uploading, folder(tmp_path / "one", [0.0] * 4), "kinds", "--wait")
    other = folder(tmp_path / "two", [0.3, 2.0, 0.0, 0.0], {"tags": {"kind": "embedding"}})
    pushed(uploading, other, "kinds", "--label", "second", "--wait")
    np.save(tmp_path / "x.npy", np.array(ROW, np.float32))
    where = ("--url", f"http://{uploading.http}", "--admin-url", uploading.admin)
    call = ("infer", "kinds@1", "--input", f"x=@{tmp_path / 'x.npy'}", *where)
    said = servegate(*call)
    assert said.returncode == 0, said.stderr
    for name, words in WORDS.items():
        block = said.stdout.partition(f"{name}  ")[2].partition("  \n")[0]
        assert words in block, (name, said.stdout)
    document = json.loads(servegate(*call, "--json").stdout)
    assert {name: one["kind"] for name, one in document["outputs"].items()} == {
        name: row["kind"] for name, (*_, row) in OUTPUTS.items()
    }
    assert document["outputs"]["price"]["rows"] == [{"values": [1.0], "unit": "EUR"}]
    body = {
        "model": "kinds",
        "a": "1",
        "b": "2",
        "inputs": {"x": {"form": "json", "data": "W1sxLDIsMywwXV0=", "name": "x.json"}},
    }
    status, made = request(f"{uploading.admin}/api/tries", "POST", body)
    assert status in (200, 201), made
    found = {name: one["agreement"] for name, one in made["difference"].items()}
    same = {"species": 1.0, "tags": 1.0}
    assert found == {name: same.get(name, 0.0) for name in OUTPUTS}, made["difference"]
    assert made["difference"]["vector"]["measures"]["cosine"] < 0.99
    drawn = {one["name"] for one in made["sides"][1]["outputs"] if one["preview"]}
    assert drawn == {"picture", "segments"}
    path = f"{uploading.admin}/api/tries/{made['id']}/outputs/picture.png?side=b"
    with urllib.request.urlopen(path) as answer, Image.open(answer) as seen:
        assert seen.size == (256, 256) and seen.getpixel((0, 0)) == round(1.3 * 255 / 4)


def streaming(where: Path, end: str) -> Path:
    """A decoupled model that answers with one word after the other."""
    (where / "1").mkdir(parents=True)
    (where / "1" / "model.py").write_text(STREAMING.format(end=end))
    (where / "config.pbtxt").write_text(STREAMED)
    (where / "outputs.json").write_text(json.dumps({"outputs": {"text": {"kind": "stream"}}}))
    return where


@pytest.fixture
def trusting(tmp_path: Path):
    """A gateway on which models may bring code."""
    flags = ("--model-repo", "", "--replicas", "1", "--workers", "1", "--allow-code-models")
    with harness.up(tmp_path / "state", *flags, "--quarantine", "off") as up:
        yield up


@pytest.mark.triton
def test_the_parts_of_a_stream_are_one_text(trusting, tmp_path: Path) -> None:
    pushed(trusting, streaming(tmp_path / "one", ". "), "streamed", "--wait")
    pushed(trusting, streaming(tmp_path / "two", "! "), "streamed", "--label", "b", "--wait")
    (tmp_path / "x.json").write_text('["one", "two"]')
    where = ("--url", f"http://{trusting.http}", "--admin-url", trusting.admin)
    where += ("--grpc-url", trusting.grpc)
    for asked, text in (("streamed@1", "one. two. "), ("streamed:b", "one! two! ")):
        said = servegate("infer", asked, "--input", f"x=@{tmp_path / 'x.json'}", "--json", *where)
        assert said.returncode == 0, said.stderr
        page = json.loads(said.stdout)
        assert page["outputs"]["text"]["rows"] == [{"text": text}]
        assert page["version"] == (1 if asked.endswith("1") else 2)
    data = base64.b64encode((tmp_path / "x.json").read_bytes()).decode()
    body = {"model": "streamed", "a": "1", "b": "2"}
    body |= {"inputs": {"x": {"form": "json", "data": data, "name": "x.json"}}}
    status, made = request(f"{trusting.admin}/api/tries", "POST", body)
    assert status == 201 and [side["error"] for side in made["sides"]] == [None, None], made
    texts = [side["outputs"][0]["rows"][0]["text"] for side in made["sides"]]
    assert texts == ["one. two. ", "one! two! "]
    found = made["difference"]["text"]
    assert (found["agreement"], made["via"]) == (0.0, "stream")
    assert 0.7 < found["measures"]["similarity"] < 1
    told = {
        one["language"]: one["text"]
        for one in trusting.get(f"/api/tries/{made['id']}/snippets?side=a")
    }
    assert set(told) == {"python", "grpcurl"}
    shell = Shell(tmp_path)
    assert shell.run("python", told["python"]).split() == [
        *("text", "[b'one.", "']", "text", "[b'two.", "']")
    ]
    assert shell.run("grpcurl", told["grpcurl"]).count("rawOutputContents") == 2


@pytest.mark.triton
def test_declared_outputs_are_evaluated_by_their_kinds(uploading, tmp_path: Path) -> None:
    pushed(uploading, folder(tmp_path / "one", [0.0] * 4), "judged", "--wait")
    where = {"SERVEGATE_ADMIN_URL": uploading.admin, "SERVEGATE_STATE": str(uploading.state)}
    for output, label, measure in (
        ("scores", "owl", "accuracy"),
        ("species", "dog", "accuracy"),
        ("note", "1", "accuracy"),
        ("price", "1.5", "mae"),
    ):
        rows = tmp_path / f"{output}.csv"
        rows.write_text(f"x0,x1,x2,x3,label\n1,2,3,0,{label}\n")
        call = ("eval", "run", "judged", "--dataset", str(rows), "--output", output, "--json")
        done = harness.servegate(*call, env=where)
        assert done.returncode == 0, done.stdout + done.stderr
        found = json.loads(done.stdout.splitlines()[-1])["evaluation"]["report"]["a"]
        value = found[measure]["value"] if measure == "accuracy" else found[measure]
        assert value == (1.0 if measure == "accuracy" else 0.5), (output, found)
    refused = harness.servegate(*call[:-2], "vector", env=where)
    assert refused.returncode == 2
    assert "output 'vector' cannot be evaluated" in refused.stderr


@pytest.mark.triton
def test_a_wrong_declaration_is_refused_with_the_name_of_the_output(
    uploading, tmp_path: Path
) -> None:
    wrong = {"price": {"kind": "text"}}
    one = folder(tmp_path / "one", [0.0] * 4, wrong)
    where = ("--admin-url", uploading.admin)
    said = servegate("model", "push", str(one), "misread", "--wait", *where)
    assert said.returncode != 0
    assert "output 'price' (FP32 [-1, 1]) cannot be 'text', which needs BYTES" in said.stderr
