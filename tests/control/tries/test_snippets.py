"""Tensors as requests that can be sent again, and snippets that send them."""

import ast
import base64
import json
import shlex
from typing import Any

import numpy as np
import pytest

from serve.control.gateway import GatewayAddress
from serve.control.tries.messages import (
    grpc_json,
    json_request,
    pack,
    request_of,
    unpack,
    why_not_json,
)
from serve.control.tries.records import OutputLine, Try, TrySide
from serve.control.tries.snippets import GatewayPorts, Sent, snippets
from serve.tensors.datatypes import from_json

F32 = np.array([[0.1, 1 / 3, 3.4e38, 1e-45, -0.0]], np.float32)
WORDS = np.array([b"a\0", b"\xff", "ü".encode()], dtype=object)


def test_tensors_of_every_kind_come_back_as_they_were() -> None:
    tensors = {
        "f": F32,
        "b": np.array([True, False]),
        "w": WORDS,
        "h": np.array([0.5], np.float16),
        "e": np.empty((0, 3), np.int64),
        "brain": np.array([1.5], np.float32),
    }
    datatypes = dict(zip(tensors, ("FP32", "BOOL", "BYTES", "FP16", "INT64", "BF16"), strict=True))
    packed = pack(tensors, datatypes)
    assert packed is not None
    found, told = unpack(packed)
    assert told == datatypes
    for name, array in tensors.items():
        assert found[name].dtype == array.dtype and np.array_equal(found[name], array)
    packed = pack({"f": F32}, {"f": "FP32"})  # what is kept is a request that can be sent
    assert packed is not None
    request = request_of(packed)
    head = json.loads(request.body[: request.head_length])
    assert head["inputs"][0]["name"] == "f"
    assert request.body[request.head_length :] == F32.tobytes()


def test_json_has_the_shortest_numbers_and_protobufs_json_the_raw_bytes() -> None:
    (sent,) = json_request({"f": F32}, {"f": "FP32"})["inputs"]
    text = json.dumps(sent["data"])
    assert text.startswith("[[0.1, 0.33333334, ")
    back = from_json(json.loads(text), "FP32", (1, 5))
    assert back.tobytes() == F32.tobytes()
    page = grpc_json("m", "stable", {"f": F32}, {"f": "FP32"})
    assert page["model_version"] == "stable"
    assert base64.b64decode(page["raw_input_contents"][0]) == F32.tobytes()
    assert "model_version" not in grpc_json("m", "", {"f": F32}, {"f": "FP32"})


def test_what_json_cannot_hold_is_said() -> None:
    for array, datatype, answered, why in (
        (F32, "FP32", {}, ""),
        (F32, "FP32", {"y": "FP16"}, "'y' is FP16"),
        (F32, "BF16", {}, "'x' is BF16"),
        (np.array([np.nan], np.float32), "FP32", {}, "NaN"),
        (WORDS, "BYTES", {}, "not UTF-8 text"),
        (WORDS[2:], "BYTES", {"y": "BYTES"}, ""),
    ):
        found = why_not_json({"x": array}, {"x": datatype}, answered)
        assert why in found and bool(found) == bool(why), (datatype, answered)


# --- snippets ------------------------------------------------------------------------------------


PLACE = GatewayAddress("http://127.0.0.1:8000", "127.0.0.1:8001", "")
EVIL = '\'; touch /tmp/x; "$(id)" `id` \\ \n {} ü'
SMALL, LARGE = np.ones((1, 2), np.float32), np.ones((1000, 4), np.float32)


def texts(
    array: Any = SMALL,
    *,
    name: str = "x",
    output: str = "y",
    via: str = "http",
    place: GatewayAddress = PLACE,
    admin: str = "http://localhost:8080/",
    keys: bool = False,
    asked: str = "3",
) -> dict[str, str]:
    line = OutputLine(output, "FP32", [1, 2], [], False, [], None, None, None)
    side = TrySide("a", asked, "3", "number", 1, "", None, 0.1, None, [line])
    one = Try("abc0", "m", 0.0, "ada", via, 1, [], [], [side], None)
    tensors, datatypes = {name: array}, {name: "FP32"}
    packed = pack(tensors, datatypes)
    assert packed is not None
    reach = GatewayPorts.through(place, admin, shows_key=keys, admin_shows_key=keys)
    found = snippets(one, side, Sent(tensors, datatypes, packed), reach)
    return {snippet.language: snippet.text for snippet in found}


@pytest.mark.parametrize("name", ["x", EVIL, "-d @/etc/passwd", "' '"])
def test_shells_and_python_read_names_as_they_are(name: str) -> None:
    found = texts(name=name, output=name)
    words = shlex.split(found["curl"])
    assert json.loads(words[words.index("--data-binary") + 1])["inputs"][0]["name"] == name
    words = shlex.split(found["grpcurl"])
    assert json.loads(words[words.index("-d") + 1])["inputs"][0]["name"] == name
    tree = ast.parse(found["python"])
    constants = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    assert constants.count(name) == 3
    assert len(tree.body) == 9


def test_large_input_is_fetched_from_the_admin_api() -> None:
    found = texts(LARGE)
    for text in found.values():
        assert "http://localhost:8080/api/tries/abc0/" in text
        assert len(text) < 1000
    assert "request.json?side=a&via=grpc" in found["grpcurl"]
    assert "inputs.npz?side=a" in found["python"]


def test_where_keys_are_needed_they_are_read_from_the_environment() -> None:
    found = texts(LARGE, keys=True)
    for language in ("curl", "grpcurl"):
        assert found[language].count('-H "authorization: Bearer $SERVEGATE_KEY"') == 2
    assert found["python"].count('os.environ["SERVEGATE_KEY"]') == 2
    assert not any("SERVEGATE_KEY" in text for text in texts(LARGE).values())


def test_ports_of_this_machine_are_told_by_the_name_it_was_reached_by() -> None:
    for host in ("gpu-3", "[2001:db8::1]", "127.0.0.1"):
        found = texts(admin=f"http://{host}:8080", via="grpc")
        assert f"http://{host}:8000/v2/models/m/versions/3/infer" in found["curl"]
        assert f"{host}:8001" in found["grpcurl"]
        assert f"'{host}:8001'" in found["python"]


def test_other_hosts_and_tls_stay_as_they_are() -> None:
    place = GatewayAddress("https://gateway.example:443", "https://gateway.example:8001", "")
    found = texts(place=place, admin="http://gpu-3:8080", via="grpc")
    assert "https://gateway.example:443/v2/" in found["curl"]
    assert "-plaintext" not in found["grpcurl"]
    assert "'gateway.example:8001', ssl=True" in found["python"]


def test_without_a_selector_the_gateway_chooses() -> None:
    found = texts(asked="")
    assert "/v2/models/m/infer" in found["curl"]
    assert "model_version=''" in found["python"]
    assert "model_version" not in found["grpcurl"]
