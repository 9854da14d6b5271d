"""Versions that declare how their outputs are to be read: pushed, called and compared."""

import base64
import json
import urllib.request
from pathlib import Path
from typing import Any

import harness
import numpy as np
import pytest
from harness import request
from PIL import Image
from pushing import pushed, servegate
from shells import Shell
from triton.onnx_models import config, node, onnx_file, tensor

pytestmark = [pytest.mark.triton, pytest.mark.slow]
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
KINDS: dict[str, dict[str, Any]] = {
    "scores": {"kind": "classes", "values": "logits", "labels": "labels.txt"},
    "price": {"kind": "number", "unit": "EUR"},
    "picture": {"kind": "image", "layout": "HW", "range": [0, 4]},
}
WORDS = {"scores": "owl", "price": "1 EUR", "picture": "2 × 2"}


def folder(where: Path, shift: list[float]) -> Path:
    """A model folder to push: every output is made of x, shifted."""
    graph = onnx_file(
        [tensor("x", "FP32", "batch", 4)],
        [
            tensor("scores", "FP32", "batch", 4),
            tensor("price", "FP32", "batch", 1),
            tensor("picture", "FP32", "batch", 2, 2),
        ],
        node("Add", "x shift", "scores"),
        node("Gather", "scores first", "price", axis=1),
        node("Reshape", "scores square", "picture"),
        constants={
            "shift": np.array(shift, np.float32),
            "first": np.array([0], np.int64),
            "square": np.array([-1, 2, 2], np.int64),
        },
    )
    (where / "1").mkdir(parents=True)
    (where / "1" / "model.onnx").write_bytes(graph)
    outputs = ("scores FP32 [4]", "price FP32 [1]", "picture FP32 [2,2]")
    (where / "config.pbtxt").write_text(config("x FP32 [4]", "; ".join(outputs)))
    (where / "labels.txt").write_text("cat\ndog\nowl\nfox\n")
    (where / "outputs.json").write_text(json.dumps({"outputs": KINDS}))
    return where


def tried(up: harness.RunningGateway, model: str, data: bytes) -> dict[str, Any]:
    offered = {"form": "json", "data": base64.b64encode(data).decode(), "name": "x.json"}
    body = {"model": model, "a": "1", "b": "2", "inputs": {"x": offered}}
    status, made = request(f"{up.admin}/api/tries", "POST", body)
    assert status == 201 and [side["error"] for side in made["sides"]] == [None, None], made
    return made


def test_outputs_are_shown_and_compared_as_the_version_declares(uploading, tmp_path: Path) -> None:
    pushed(uploading, folder(tmp_path / "one", [0.0] * 4), "kinds", "--wait")
    other = folder(tmp_path / "two", [0.3, 2.0, 0.0, 0.0])
    pushed(uploading, other, "kinds", "--label", "second", "--wait")
    np.save(tmp_path / "x.npy", np.array([[1.0, 2.0, 3.0, 0.0]], np.float32))
    where = ("--url", f"http://{uploading.http}", "--admin-url", uploading.admin)
    call = ("infer", "kinds@1", "--input", f"x=@{tmp_path / 'x.npy'}", *where)
    said = servegate(*call)
    assert said.returncode == 0, said.stderr
    for name, words in WORDS.items():
        block = said.stdout.partition(f"{name}  ")[2].partition("  \n")[0]
        assert words in block, (name, said.stdout)
    document = json.loads(servegate(*call, "--json").stdout)["outputs"]
    assert {name: one["kind"] for name, one in document.items()} == {
        name: row["kind"] for name, row in KINDS.items()
    }
    assert document["price"]["rows"] == [{"values": [1.0], "unit": "EUR"}]
    made = tried(uploading, "kinds", b"[[1,2,3,0]]")
    found = {name: one["agreement"] for name, one in made["difference"].items()}
    assert found == dict.fromkeys(KINDS, 0.0), made["difference"]
    drawn = {one["name"] for one in made["sides"][1]["outputs"] if one["preview"]}
    assert drawn == {"picture"}
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


def test_the_parts_of_a_stream_are_one_text(tmp_path: Path) -> None:
    flags = ("--model-repo", "", "--replicas", "1", "--workers", "1", "--allow-code-models")
    with harness.up(tmp_path / "state", *flags, "--quarantine", "off") as up:
        pushed(up, streaming(tmp_path / "one", ". "), "streamed", "--wait")
        pushed(up, streaming(tmp_path / "two", "! "), "streamed", "--label", "b", "--wait")
        words = b'["one", "two"]'
        (tmp_path / "x.json").write_bytes(words)
        where = ("--url", f"http://{up.http}", "--admin-url", up.admin, "--grpc-url", up.grpc)
        for asked, number, text in (
            ("streamed@1", 1, "one. two. "),
            ("streamed:b", 2, "one! two! "),
        ):
            data = f"x=@{tmp_path / 'x.json'}"
            said = servegate("infer", asked, "--input", data, "--json", *where)
            assert said.returncode == 0, said.stderr
            page = json.loads(said.stdout)
            assert page["outputs"]["text"]["rows"] == [{"text": text}]
            assert page["version"] == number
        made = tried(up, "streamed", words)
        texts = [side["outputs"][0]["rows"][0]["text"] for side in made["sides"]]
        assert texts == ["one. two. ", "one! two! "]
        found = made["difference"]["text"]
        assert (found["agreement"], made["via"]) == (0.0, "stream")
        snippets = up.get(f"/api/tries/{made['id']}/snippets?side=a")
        told = {one["language"]: one["text"] for one in snippets}
        assert set(told) == {"python", "grpcurl"}
        shell = Shell(tmp_path / "shell")
        assert shell.run("python", told["python"]).count("text") == 2
        assert shell.run("grpcurl", told["grpcurl"]).count("rawOutputContents") == 2
