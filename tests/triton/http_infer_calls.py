"""Raw predict calls over HTTP: as bytes, by a name that says what they are."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from .http_calls import ADD, ANY, FORWARDED, GONE, NOPE, REPEAT, RawCall, X, call, of, post, tensor

_VALUES: Mapping[str, list[Any]] = {
    "BOOL": [True, False],
    **{f"UINT{bits}": [0, 2**bits - 1] for bits in (8, 16, 32, 64)},
    **{f"INT{bits}": [-(2 ** (bits - 1)), 2 ** (bits - 1) - 1] for bits in (8, 16, 32, 64)},
    "FP16": [1.5, -2.0],
    "BF16": [1.5, -2.0],
    "FP32": [0.1, -1e38],
    "FP64": [0.1, 5e-324],
    "BYTES": ["", 'naïve 🐍 \u0001 " \\ / \n'],
}
_CLASSES: Mapping[str, Any] = {"name": "yFP32", "parameters": {"classification": 2}}
THREE = tensor("xFP32", "FP32", [1, 3, 2])


def _name(datatype: str) -> str:
    return "STRING" if datatype == "BYTES" else datatype


def packed(datatype: str, values: list[Any]) -> bytes:
    if datatype == "BYTES":
        texts = [value.encode() for value in values]
        return b"".join(struct.pack("<I", len(text)) + text for text in texts)
    if datatype == "BF16":
        return np.array(values, "<f4").view("<u2")[1::2].tobytes()
    kind = {"B": "?", "U": "u", "I": "i", "F": "f"}[datatype[0]]
    bits = "".join(filter(str.isdigit, datatype)) or "8"
    return np.array(values, kind if kind == "?" else f"<{kind}{int(bits) // 8}").tobytes()


def binary(datatype: str, *, told: str = "", **more: Any) -> RawCall:
    """All inputs and outputs as bytes behind the JSON; `told` is what is said of its length."""
    data = packed(datatype, _VALUES[datatype])
    given = tensor(f"x{_name(datatype)}", datatype, [], 2)
    del given["data"]
    given["parameters"] = {"binary_data_size": len(data)}
    text = of(given, **{"parameters": {"binary_data_output": True}, **more})
    length = told or f"Inference-Header-Content-Length: {len(text)}"
    headers = [] if told == "nothing" else [length]
    return post(f"{ANY}/infer", text + data, *headers)


DATATYPES: Mapping[str, RawCall] = {
    **{
        f"{datatype} as JSON": post(
            f"{ANY}/infer", of(tensor(f"x{_name(datatype)}", datatype, values))
        )
        for datatype, values in _VALUES.items()
    },
    **{f"{datatype} as bytes": binary(datatype) for datatype in _VALUES},
}
SAID: Mapping[str, Any] = {
    "name": "xFP32",
    "shape": [2],
    "datatype": "FP32",
    "parameters": {"binary_data_size": 8},
}


def infer(body: bytes, *headers: str, model: str = ADD, version: str = "1.1") -> RawCall:
    return post(f"{model}/infer", body, *headers, version=version)


INFER: Mapping[str, RawCall] = {
    "infer": infer(X),
    "infer with an id": infer(of(tensor("x", "INT32", [5], 1, 1), id="a b")),
    "infer of an unknown model": infer(X, model=NOPE),
    "infer of a percent-encoded model": infer(X, model="/v2/models/a%64d"),
    "infer of an unloaded model": infer(X, model=GONE),
    "infer of a version of an unloaded model": infer(X, model=f"{GONE}/versions/1"),
    "infer of a decoupled model": infer(of(tensor("x", "INT32", [1])), model=REPEAT),
    "infer of a decoupled model with junk": infer(b"junk", model=REPEAT),
    "infer that is rejected": infer(X, model="/v2/models/late"),
    "infer with a header that becomes a parameter": infer(
        of(THREE), f"{FORWARDED}a: 1", f"{FORWARDED.upper()}B: x y", model=ANY
    ),
    "infer in a batch": infer(of(tensor("x", "INT32", [1, 2, 3], 3, 1))),
    "infer in too large a batch": infer(of(tensor("x", "INT32", [1] * 5, 5, 1))),
    "infer with another name in the body": infer(X[:-1] + b',"model_name":"nope"}'),
    "infer with an output": infer(of(tensor("x", "INT32", [5], 1, 1), outputs=[{"name": "y"}])),
    "infer with a wrong output": infer(
        of(tensor("x", "INT32", [5], 1, 1), outputs=[{"name": "z"}])
    ),
    "infer with a binary output": infer(
        of(
            tensor("x", "INT32", [5], 1, 1),
            outputs=[{"name": "y", "parameters": {"binary_data": True}}],
        )
    ),
    "infer with nothing": infer(b""),
    "infer without a length": call("POST", f"{ADD}/infer"),
    "infer with an empty object": infer(b"{}"),
    "infer with junk": infer(b"junk"),
    "infer with half of it": infer(X[:-5]),
    "infer with a list": infer(b"[]"),
    "infer without inputs": infer(of()),
    "infer with a wrong input": infer(of(tensor("z", "INT32", [5], 1, 1))),
    "infer with a wrong shape": infer(of(tensor("x", "INT32", [5, 6], 1, 2))),
    "infer with a negative shape": infer(of(tensor("x", "INT32", [5], -1, 1))),
    "infer with too little data": infer(of(tensor("x", "INT32", [], 1, 1))),
    "infer with too much data": infer(of(tensor("x", "INT32", [5, 6], 1, 1))),
    "infer with a wrong datatype": infer(of(tensor("x", "FP32", [5], 1, 1), id="7")),
    "infer with an unknown datatype": infer(of(tensor("x", "INT7", [5], 1, 1))),
    "infer with text for numbers": infer(of(tensor("x", "INT32", ["5"], 1, 1))),
    "infer with duplicate keys": infer(X[:-1] + b',"id":"1","id":"2"}'),
    "infer with duplicate inputs": infer(of(*[tensor("x", "INT32", [5], 1, 1)] * 2)),
    "infer with deep JSON": infer(b'{"a":' * 90 + b"1" + b"}" * 90),
    "infer with a form's media type": infer(X, "Content-Type: application/x-www-form-urlencoded"),
    "infer with an odd media type": infer(X, "Content-Type: text/html"),
    "infer with NaN": infer(
        b'{"inputs":[{"name":"xFP32","shape":[1],"datatype":"FP32","data":[NaN]}]}', model=ANY
    ),
    "infer of infinities": infer(of(tensor("xFP64", "FP64", [1e308, -1e308])), model=ANY),
    "classification": infer(of(THREE, outputs=[_CLASSES]), model=ANY),
    "classification of all": infer(
        of(THREE, outputs=[{**_CLASSES, "parameters": {"classification": 9}}]), model=ANY
    ),
    "classification of none": infer(
        of(THREE, outputs=[{**_CLASSES, "parameters": {"classification": 0}}]), model=ANY
    ),
    "classification as bytes": infer(
        of(THREE, outputs=[{**_CLASSES, "parameters": {"classification": 2, "binary_data": True}}]),
        model=ANY,
    ),
}

# --- parameters -----------------------------------------------------------------------------------

_PARAMETERS: Mapping[str, Any] = {
    "priority": {"priority": 1},
    "priority as text": {"priority": "1"},
    "timeout": {"timeout": 5_000_000},
    "a sequence": {"sequence_id": 77, "sequence_start": True, "sequence_end": True},
    "a sequence by text": {"sequence_id": "77", "sequence_start": True},
    "a sequence by too long a text": {"sequence_id": "7" * 129},
    "a sequence without an id": {"sequence_start": True},
    "a sequence of a negative id": {"sequence_id": -1},
    "a start that is no bool": {"sequence_id": 7, "sequence_start": 1},
    "own ones": {"a": 1, "b": "text", "c": True, "d": 1.5, "e": -1},
    "a large number": {"a": 2**63},
    "an object": {"a": {"b": 1}},
    "a list": {"a": [1]},
    "null": {"a": None},
    "a reserved one": {"triton_x": 1},
    "the empty final response": {"triton_enable_empty_final_response": True},
    "headers": {"headers": "x"},
    "binary output": {"binary_data_output": True},
    "binary output as text": {"binary_data_output": "true"},
    "no object": [1],
}
PARAMETERS: Mapping[str, RawCall] = {
    f"parameters: {name}": infer(of(THREE, id="r7", parameters=parameters), model=ANY)
    for name, parameters in _PARAMETERS.items()
} | {
    "shared memory that nobody registered": infer(
        of({**SAID, "parameters": {"shared_memory_region": "r", "shared_memory_byte_size": 8}}),
        model=ANY,
    ),
}
