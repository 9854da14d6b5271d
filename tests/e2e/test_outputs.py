"""A version that declares how its output is to be read: pushed, called, compared and sent again."""

import base64
import json
from pathlib import Path
from typing import Any

import harness
import pytest
from harness import request
from pushing import pushed, servegate
from shells import Shell

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


def tried(up: harness.RunningGateway, model: str, data: bytes) -> dict[str, Any]:
    offered = {"form": "json", "data": base64.b64encode(data).decode(), "name": "x.json"}
    body = {"model": model, "a": "1", "b": "2", "inputs": {"x": offered}}
    status, made = request(f"{up.admin}/api/tries", "POST", body)
    assert status == 201 and [side["error"] for side in made["sides"]] == [None, None], made
    return made


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
