"""Trying versions of five different models on a real gateway, and sending the same from a shell."""

import base64
import io
import json
import urllib.request
from typing import Any

import numpy as np
import pytest
import repositories
from PIL import Image
from trying_scene import HOSTILE, Shell, offered, picture, snippets, tried, write_models

from serve.tensors.datatypes import from_raw

pytestmark = [pytest.mark.triton, pytest.mark.slow]
DTYPES = {"FP16": np.float16, "FP32": np.float32, "INT64": np.int64, "BYTES": object}
LONG = np.arange(4000, dtype=np.float32).reshape(1000, 4)


def npz(**arrays: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


HALF = np.array([[0.5, -2, 1 / 3]], np.float16)
CASES: dict[str, tuple[dict[str, Any], str, str, tuple[int, ...], Any]] = {
    # model: inputs, output, datatype, shape, values
    "picture": (
        {"": offered("image", picture(), "a.png")},
        "scores",
        "FP32",
        (1, 2),
        [[32 * 200 / 16, 32 * 220 / 16]],
    ),
    "matrix": (
        {"x": offered("json", [[[1, -2, 3], [4, 5, 9007199254740993]]])},
        "y",
        "INT64",
        (1, 2, 3),
        [[[1, -2, 3], [4, 5, 9007199254740993]]],
    ),
    "words": (
        {"x": offered("json", [["it's $HOME `id`", '"\\ ü\n']])},
        "y",
        "BYTES",
        (1, 2),
        [[b"it's $HOME `id`", '"\\ ü\n'.encode()]],
    ),
    "chosen": (
        {"": offered("npz", npz(**{HOSTILE: HALF, "keep": np.array([[True, False, True]])}))},
        "kept",
        "FP16",
        (1, 3),
        np.where([[True, False, True]], HALF, np.float16(0)).tolist(),
    ),
    "free": ({"x": offered("npz", npz(x=LONG))}, "y", "FP32", (1000, 4), LONG.tolist()),
}


@pytest.fixture(scope="module")
def up(gateway, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tries") / "models"
    write_models(folder)
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


@pytest.mark.parametrize("via", ["http", "grpc"])
@pytest.mark.parametrize("model", CASES)
def test_snippets_do_exactly_as_shown_what_was_tried(up, tmp_path, model: str, via: str) -> None:
    inputs, output, datatype, shape, wanted = CASES[model]
    one = tried(up, model, a="1", via=via, inputs=inputs)
    (side,) = one["sides"]
    assert side["error"] is None, side
    assert (side["version"], side["by"]) == ("1", "number")
    (line,) = [each for each in side["outputs"] if each["name"] == output]
    assert (line["datatype"], tuple(line["shape"])) == (datatype, shape)
    texts = snippets(up, one)
    shell = Shell(tmp_path)
    assert of_http(shell, shell.run("curl", texts["curl"]), output, datatype, shape) == wanted
    assert of_grpc(shell.run("grpcurl", texts["grpcurl"]), output, datatype, shape) == wanted
    printed = shell.run("python", texts["python"])
    exact = np.array(wanted, DTYPES[datatype])
    assert printed == f"{output} {exact}\n"


def test_two_versions_are_compared_with_what_the_model_saw(up) -> None:
    inputs = {"picture": offered("image", picture(), "a.png")}
    one = tried(up, "picture", a="1", b="2", inputs=inputs)
    tops = [side["outputs"][0]["top"][0][0]["label"] for side in one["sides"]]
    assert tops == ["below", "above"]
    difference = one["difference"]["scores"]
    assert (difference["differing"], difference["agreement"]) == ([0], 0)
    assert difference["max_abs"] == pytest.approx(4 * 32 * 200 / 16)
    assert one["inputs"] == [
        {"name": "picture", "datatype": "FP32", "shape": [1, 8, 8, 1], "form": "image"}
        | {"preview": True}
    ]
    path = f"{up.admin}/api/tries/{one['id']}/inputs/picture.png"
    with Image.open(fetched(path)) as seen:
        assert seen.size == (256, 256)
        assert (seen.getpixel((0, 0)), seen.getpixel((0, 255))) == (200, 220)
    assert up.get(f"/api/tries/{one['id']}") == one
    (line,) = [each for each in up.get("/api/tries?model=picture") if each["id"] == one["id"]]
    assert (line["versions"], line["agrees"]) == (["1", "2"], False)


def test_latency_is_exact_when_no_other_call_was_counted(up) -> None:
    inputs = {"x": offered("random")}
    takes = [tried(up, "matrix", a="1", inputs=inputs)["sides"][0]["latency"] for _ in range(3)]
    assert any(one["exact"] and one["calls"] == 1 for one in takes)
    for one in takes:
        assert one["round_trip"] > 0
        if one["exact"]:
            inside = sum(one[part] for part in ("queue", "compute_input", "compute_infer"))
            assert inside <= one["round_trip"]
            assert one["gateway_and_network"] <= one["round_trip"]


def fetched(url: str) -> io.BytesIO:
    with urllib.request.urlopen(url) as answer:
        return io.BytesIO(answer.read())
