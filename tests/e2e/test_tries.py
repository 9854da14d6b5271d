"""Trying versions on a real gateway, and sending the same from a shell, or comparing by command."""

import base64
import io
import json
from pathlib import Path
from typing import Any

import harness
import numpy as np
import pytest
import repositories
from harness import request
from pushing import pushed, servegate
from shells import Shell
from triton.onnx_models import Model, config, identity, node, onnx_file, tensor

from serve.tensors.datatypes import from_raw

pytestmark = [pytest.mark.triton, pytest.mark.slow]
DTYPES = {"FP16": np.float16, "FP32": np.float32, "BYTES": object}
HOSTILE = 'it\'s $HOME `x` "y"'  # the name of an input
HALF = np.array([[0.5, -2, 1 / 3]], np.float16)
LONG = np.arange(4000, dtype=np.float32).reshape(1000, 4)


def chosen() -> bytes:
    """FP16 and BOOL: the values that are kept, 0 for the others."""
    where = node("Where", "keep half nothing", "kept")
    where.input[1] = HOSTILE
    return onnx_file(
        [tensor(HOSTILE, "FP16", "n", 3), tensor("keep", "BOOL", "n", 3)],
        [tensor("kept", "FP16", "n", 3)],
        where,
        constants={"nothing": np.zeros(1, np.float16)},
    )


def offered(form: str, value: Any = None, **arrays: np.ndarray) -> dict[str, str]:
    """One input of a try: a JSON value, or arrays."""
    file = io.BytesIO()
    if arrays:
        np.savez(file, **arrays)
    else:
        file.write(json.dumps(value).encode())
    return {"form": form, "data": base64.b64encode(file.getvalue()).decode(), "name": ""}


KEEP = np.array([[True, False, True]])
CASES: dict[str, tuple[dict[str, Any], str, str, tuple[int, ...], Any]] = {
    # model: inputs, output, datatype, shape, values
    "words": (
        {"x": offered("json", [["it's $HOME `id`", '"\\ ü\n']])},
        "y",
        "BYTES",
        (1, 2),
        [[b"it's $HOME `id`", '"\\ ü\n'.encode()]],
    ),
    "chosen": (
        {"": offered("npz", **{HOSTILE: HALF, "keep": KEEP})},
        "kept",
        "FP16",
        (1, 3),
        np.where(KEEP, HALF, np.float16(0)).tolist(),
    ),
    "free": ({"x": offered("npz", x=LONG)}, "y", "FP32", (1000, 4), LONG.tolist()),
}


@pytest.fixture(scope="module")
def up(
    gateway: harness.RunningGateway, tmp_path_factory: pytest.TempPathFactory
) -> harness.RunningGateway:
    """Texts, two inputs of which one has a hostile name, and rows without a batch."""
    folder = tmp_path_factory.mktemp("tries")
    name = json.dumps(HOSTILE)[1:-1]
    picks = config(
        "keep BOOL [3]",
        "kept FP16 [3]",
        f'input {{ name: "{name}" data_type: TYPE_FP16 dims: [3] }}',
    )
    rows = config("x FP32 [-1,4]", "y FP32 [-1,4]", max_batch_size=0)
    for called, file, page in (
        ("words", identity("STRING", "n", 2), config("x STRING [2]", "y STRING [2]")),
        ("chosen", chosen(), picks),
        ("free", identity("FP32", "rows", 4), rows),
    ):
        Model({1: file}, page).write(folder / called)
    repositories.serve(gateway, folder)
    return gateway


def of_grpc(text: str, name: str, datatype: str, shape: tuple[int, ...]) -> Any:
    page = json.loads(text)
    place = [one["name"] for one in page["outputs"]].index(name)
    raw = base64.b64decode(page["rawOutputContents"][place])
    return from_raw(raw, datatype, shape).tolist()


def of_http(shell: Shell, text: str, name: str, datatype: str, shape: tuple[int, ...]) -> Any:
    if text:
        (output,) = [one for one in json.loads(text)["outputs"] if one["name"] == name]
        data = np.array(output["data"]).reshape(shape).tolist()
        return [[one.encode() for one in row] for row in data] if datatype == "BYTES" else data
    body = (shell.folder / "answer.bin").read_bytes()
    head, end = json.JSONDecoder().raw_decode(body.decode("latin-1"))
    assert head["outputs"][0]["name"] == name
    return from_raw(body[end:], datatype, shape).tolist()


def test_snippets_do_exactly_as_shown_what_was_tried(
    up: harness.RunningGateway, tmp_path: Path
) -> None:
    for model, (inputs, output, datatype, shape, wanted) in CASES.items():
        for via in ("http", "grpc"):
            body = {"model": model, "a": "1", "via": via, "inputs": inputs}
            status, one = harness.request(f"{up.admin}/api/tries", "POST", body)
            assert status == 201, one
            (side,) = one["sides"]
            assert (side["error"], side["version"], side["by"]) == (None, "1", "number"), side
            (line,) = [each for each in side["outputs"] if each["name"] == output]
            assert (line["datatype"], tuple(line["shape"])) == (datatype, shape)
            snippets = up.get(f"/api/tries/{one['id']}/snippets?side=a")
            texts = {each["language"]: each["text"] for each in snippets}
            shell = Shell(tmp_path / f"{model}-{via}")
            said = {language: shell.run(language, text) for language, text in texts.items()}
            assert of_http(shell, said["curl"], output, datatype, shape) == wanted, (model, via)
            assert of_grpc(said["grpcurl"], output, datatype, shape) == wanted, (model, via)
            assert said["python"] == f"{output} {np.array(wanted, DTYPES[datatype])}\n"


def test_compare_shows_both_answers_and_fails_when_they_differ_too_much(
    gateway: harness.RunningGateway,
) -> None:
    picture = harness.ROOT / "examples/digits/disagree.png"
    words = ("compare", "digits@1", "digits:candidate", "--input", f"x=@{picture}")
    where = ("--admin-url", gateway.admin)
    fine = harness.servegate(*words, *where, "--fail-if", "max_abs>5", "--via", "grpc")
    assert fine.returncode == 0, fine.stderr
    assert fine.stdout.splitlines()[0] == "output\t\tdigits@1\tdigits@2"
    assert f"stored: {gateway.admin}/runs/" in fine.stderr
    failed = harness.servegate(*words, *where, "--fail-if", "max_abs>0.01", "--json")
    assert failed.returncode == 7, failed.stderr
    assert json.loads(failed.stdout)["difference"]["probabilities"]["max_abs"] > 0.01
    assert "max_abs is" in failed.stderr


# --- a version that declares how its output is to be read -----------------------------------------

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
