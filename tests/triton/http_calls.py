"""Raw calls over HTTP, as bytes, by a name that says what they are.

They ask for `ADD`, `LATE`, `MIRROR`, `TOLD`, `REPEAT` and `GONE` of `client_models`.
"""

from __future__ import annotations

import gzip
import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class RawCall:
    """What is sent, and how many answers are read. Each of `then` waits for an answer before."""

    data: bytes
    answers: int = 1
    then: tuple[bytes, ...] = ()


def call(
    method: str, path: str, *headers: str, body: bytes | None = None, version: str = "1.1"
) -> RawCall:
    lines = [f"{method} {path} HTTP/{version}", "Host: x", *headers]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    return RawCall("\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b""))


def get(path: str, *headers: str) -> RawCall:
    return call("GET", path, *headers)


def post(path: str, body: bytes, *headers: str, version: str = "1.1") -> RawCall:
    return call("POST", path, *headers, body=body, version=version)


def head(path: str) -> RawCall:
    return call("HEAD", path, "Connection: close")


def as_json(value: Any) -> bytes:
    return json.dumps(value).encode()


def tensor(name: str, datatype: str, data: list[Any], *shape: int) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": shape or [len(data)], "data": data}


def of(*inputs: dict[str, Any], **more: Any) -> bytes:
    return as_json({"inputs": inputs, **more})


def x(*data: Any, shape: Sequence[int] = (1, 1), **more: Any) -> bytes:
    """A request to the model `add`."""
    return of(tensor("x", "INT32", list(data), *shape), **more)


ADD, LATE, MIRROR, TOLD, REPEAT, GONE, NOPE = (
    f"/v2/models/{model}" for model in ["add", "late", "mirror", "told", "repeat", "gone", "nope"]
)
X = x(5)
HUGE = "9" * 20
CONFIG_KEY, CONFIG_SECRET = "x-config-key", "sesame"  # who may ask Triton for configurations
FORWARDED = "x-forwarded-"  # headers that Triton makes parameters of

# --- routes, methods, versions --------------------------------------------------------------------

_PATHS = {
    "server metadata": "/v2",
    "server metadata with a slash": "/v2/",
    "live": "/v2/health/live",
    "live with a query": "/v2/health/live?x=1",
    "ready": "/v2/health/ready",
    "health": "/v2/health",
    "root": "/",
    "metrics": "/metrics",
    "another protocol": "/v9/models/add",
    "models": "/v2/models",
    "models with a slash": "/v2/models/",
    "metadata": ADD,
    "metadata with a query": f"{ADD}?x=1",
    "metadata of a decoupled model": REPEAT,
    "metadata of all datatypes": MIRROR,
    "metadata of an unknown model": NOPE,
    "metadata of an unloaded model": GONE,
    "metadata with a slash": f"{ADD}/",
    "metadata with two slashes": "//v2/models/add",
    "metadata with slashes within": "/v2//models/add",
    "metadata with slashes behind": "/v2/models//add",
    "metadata percent-encoded": "/v2/models/a%64d",
    "metadata with an encoded slash": "/v2/models/a%2Fb",
    "metadata of dots": "/v2/models/..",
    "config": f"{ADD}/config",
    "config of all datatypes": f"{MIRROR}/config",
    "config of an unknown model": f"{NOPE}/config",
    "config of an unloaded model": f"{GONE}/config",
    "model ready": f"{ADD}/ready",
    "model ready when unknown": f"{NOPE}/ready",
    "model ready when unloaded": f"{GONE}/ready",
    "model ready called stats": "/v2/models/stats/ready",
    "config called stats": "/v2/models/stats/config",
    "infer by get": f"{ADD}/infer",
    "generate by get": f"{ADD}/generate",
    "a part that nobody serves": f"{ADD}/nothing",
    "trace of a version": f"{ADD}/versions/1/trace/setting",
    "repository": "/v2/repository",
    "repository model": "/v2/repository/models/add",
    "index by get": "/v2/repository/index",
    "index of a repository by get": "/v2/repository/r/index",
    "load by get": "/v2/repository/models/add/load",
    "unload by get": "/v2/repository/r/models/add/unload",
    "register by get": "/v2/systemsharedmemory/region/r/register",
    "shared memory": "/v2/systemsharedmemory",
    "cuda memory of a kind that is none": "/v2/cudasharedmemory/nothing",
    "trace settings": "/v2/trace/setting",
    "log settings": "/v2/logging",
    "shared memory status": "/v2/systemsharedmemory/status",
}
_VERSIONS = ("1", "2", "01", "0", "9", HUGE, "9223372036854775807", "-1", "1.5", "1abc", "%31", "")
_PARTS = {"metadata": "", "config": "/config", "ready": "/ready"}
_KEY = f"{CONFIG_KEY}: {CONFIG_SECRET}"
_METHODS = ("POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "FOO")

ROUTES: Mapping[str, RawCall] = {
    **{f"GET {name}": get(path, _KEY) for name, path in _PATHS.items()},
    **{
        f"GET {name} of version {version or 'none'}": get(f"{ADD}/versions/{version}{part}", _KEY)
        for name, part in _PARTS.items()
        for version in _VERSIONS
    },
    **{
        f"POST infer of version {version or 'none'}": post(f"{ADD}/versions/{version}/infer", X)
        for version in _VERSIONS
    },
    "GET version that is a word": get(f"{ADD}/versions/abc"),
    "POST infer of a version that is a word": post(f"{ADD}/versions/abc/infer", X),
    **{f"{method} ready": call(method, f"{ADD}/ready", body=b"") for method in _METHODS},
    **{f"{method} metadata": call(method, ADD, body=b"") for method in _METHODS},
    **{f"{one} infer": call(one, f"{ADD}/infer", body=b"") for one in ("PUT", "DELETE", "OPTIONS")},
    **{f"POST {p}": post(p, b"") for p in ("/v2", "/v2/health/live", "/v2/models/stats", "/x")},
    **{f"HEAD {p}": head(p) for p in ("/v2", "/v2/health/live", ADD, f"{ADD}/infer", "/v2/x")},
    "POST load of an unknown model": post("/v2/repository/models/nope/load", b"{}"),
    "POST unload of an unknown model": post("/v2/repository/models/nope/unload", b"{}"),
    "POST unregister": post("/v2/systemsharedmemory/region/r/unregister", b""),
    "POST logging": post("/v2/logging", b"{}"),
    "GET config without its key": get(f"{ADD}/config"),
    "GET metadata that may be compressed": get(ADD, "Accept-Encoding: gzip"),
    "GET config that may be compressed": get(f"{ADD}/config", _KEY, "Accept-Encoding: gzip"),
    "GET metadata with a body": call("GET", ADD, body=b"{}"),
    "GET metadata over HTTP/1.0": call("GET", ADD, version="1.0"),
    "GET config with a wrong key": get(f"{ADD}/config", f"{CONFIG_KEY}: no"),
}

# --- questions to the whole fleet -----------------------------------------------------------------

_INDEX_BODIES = (b"", b"{}", b'{"ready":true}', b'{"ready":false}', b"[]", b"junk", b'{"ready":1}')
FLEET: Mapping[str, RawCall] = {
    "statistics of all": get("/v2/models/stats"),
    "statistics": get(f"{ADD}/stats"),
    "statistics of a version": get(f"{ADD}/versions/1/stats"),
    "statistics of a version with a zero": get(f"{ADD}/versions/01/stats"),
    "statistics of version 0": get(f"{ADD}/versions/0/stats"),
    "statistics of an unknown version": get(f"{ADD}/versions/9/stats"),
    "statistics of a huge version": get(f"{ADD}/versions/{HUGE}/stats"),
    "statistics of an unknown model": get(f"{NOPE}/stats"),
    "statistics of a version of an unknown model": get(f"{NOPE}/versions/1/stats"),
    "statistics of an unloaded model": get(f"{GONE}/stats"),
    "statistics of a version of an unloaded model": get(f"{GONE}/versions/1/stats"),
    "statistics of a model called stats": get("/v2/models/stats/stats"),
    "statistics with headers": get(f"{ADD}/stats", "Accept-Encoding: gzip", "Connection: close"),
    **{
        f"index asked with {body.decode() or 'nothing'}": post("/v2/repository/index", body)
        for body in _INDEX_BODIES
    },
    "index of a repository": post("/v2/repository/any-name/index", b""),
    "index without a length": call("POST", "/v2/repository/index"),
}

# --- predict calls --------------------------------------------------------------------------------

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
THREE = tensor("FP32", "FP32", [1, 3, 2])
SAID: Mapping[str, Any] = {
    "name": "FP32",
    "shape": [2],
    "datatype": "FP32",
    "parameters": {"binary_data_size": 8},
}


def packed(datatype: str, values: list[Any]) -> bytes:
    if datatype == "BYTES":
        texts = [value.encode() for value in values]
        return b"".join(struct.pack("<I", len(text)) + text for text in texts)
    if datatype == "BF16":
        return np.array(values, "<f4").view("<u2")[1::2].tobytes()
    kind = {"B": "?", "U": "u", "I": "i", "F": "f"}[datatype[0]]
    bits = "".join(filter(str.isdigit, datatype)) or "8"
    return np.array(values, kind if kind == "?" else f"<{kind}{int(bits) // 8}").tobytes()


def binary(datatype: str, values: list[Any]) -> RawCall:
    """All inputs and outputs as bytes behind the JSON."""
    data = packed(datatype, values)
    given = {"name": datatype, "datatype": datatype, "shape": [2]}
    size = {"parameters": {"binary_data_size": len(data)}}
    text = of(given | size, parameters={"binary_data_output": True})
    length = f"Inference-Header-Content-Length: {len(text)}"
    return post(f"{MIRROR}/infer", text + data, length)


DATATYPES: Mapping[str, RawCall] = {
    **{
        f"{datatype} as JSON": post(f"{MIRROR}/infer", of(tensor(datatype, datatype, values)))
        for datatype, values in _VALUES.items()
    },
    **{f"{datatype} as bytes": binary(datatype, values) for datatype, values in _VALUES.items()},
}


def infer(body: bytes, *headers: str, model: str = ADD, version: str = "1.1") -> RawCall:
    return post(f"{model}/infer", body, *headers, version=version)


def classes(count: int, **more: Any) -> RawCall:
    """A call for the classes of three numbers."""
    output = {"name": "out_FP32", "parameters": {"classification": count, **more}}
    return infer(of(THREE, outputs=[output]), model=MIRROR)


_BINARY_Y = {"name": "y", "parameters": {"binary_data": True}}
_NAN = b'{"inputs":[{"name":"FP32","shape":[1],"datatype":"FP32","data":[NaN]}]}'
_FORWARDING = (f"{FORWARDED}a: 1", f"{FORWARDED.upper()}B: x y")
INFER: Mapping[str, RawCall] = {
    "infer": infer(X),
    "infer with an id": infer(x(5, id="a b")),
    "infer of an unknown model": infer(X, model=NOPE),
    "infer of a percent-encoded model": infer(X, model="/v2/models/a%64d"),
    "infer of an unloaded model": infer(X, model=GONE),
    "infer of a version of an unloaded model": infer(X, model=f"{GONE}/versions/1"),
    "infer of a decoupled model": infer(of(tensor("x", "FP32", [1])), model=REPEAT),
    "infer of a decoupled model with junk": infer(b"junk", model=REPEAT),
    "infer that is rejected": infer(X, model=LATE),
    "infer with a header that becomes a parameter": infer(
        of(tensor("x", "FP32", [1])), *_FORWARDING, model=TOLD
    ),
    "infer in a batch": infer(x(1, 2, 3, shape=(3, 1))),
    "infer in too large a batch": infer(x(1, 1, 1, 1, 1, shape=(5, 1))),
    "infer with another name in the body": infer(X[:-1] + b',"model_name":"nope"}'),
    "infer with an output": infer(x(5, outputs=[{"name": "y"}])),
    "infer with a binary output": infer(x(5, outputs=[_BINARY_Y])),
    "infer with nothing": infer(b""),
    "infer without a length": call("POST", f"{ADD}/infer"),
    "infer with an empty object": infer(b"{}"),
    "infer with junk": infer(b"junk"),
    "infer with half of it": infer(X[:-5]),
    "infer with a list": infer(b"[]"),
    "infer without inputs": infer(of()),
    "infer with a wrong input": infer(of(tensor("z", "INT32", [5], 1, 1))),
    "infer with a wrong datatype": infer(of(tensor("x", "FP32", [5], 1, 1), id="7")),
    "infer with duplicate keys": infer(X[:-1] + b',"id":"1","id":"2"}'),
    "infer with deep JSON": infer(b'{"a":' * 90 + b"1" + b"}" * 90),
    "infer with a form's media type": infer(X, "Content-Type: application/x-www-form-urlencoded"),
    "infer with NaN": infer(_NAN, model=MIRROR),
    "classification": classes(2),
    "classification of all": classes(9),
    "classification as bytes": classes(2, binary_data=True),
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
_REGION = {"shared_memory_region": "r", "shared_memory_byte_size": 8}
PARAMETERS: Mapping[str, RawCall] = {
    f"parameters: {name}": infer(
        of(tensor("x", "FP32", [1]), id="r7", parameters=parameters), model=TOLD
    )
    for name, parameters in _PARAMETERS.items()
} | {
    "shared memory that nobody registered": infer(of({**SAID, "parameters": _REGION}), model=MIRROR)
}

_ENCODED = {"gzip": gzip.compress(X, mtime=0), "deflate": zlib.compress(X)}
_ACCEPTS = ("gzip", "deflate", "gzip, deflate", "br, gzip", "gzip;q=0", "*", "br", "identity", "")

# --- binary, compressed, framed -------------------------------------------------------------------

_PLAIN = of(THREE)
_RAW = packed("FP32", [1.5, 2.5])
_SPECIAL = packed("FP32", [float("nan"), float("inf"), float("-inf")])


def _bytes_in(data: bytes, *headers: str, told: str = "{}", text: bytes = b"") -> RawCall:
    """FP32 values behind the JSON; `told` is what is said of its length."""
    size = {"binary_data_size": len(data)}
    text = text or of({**SAID, "shape": [len(data) // 4], "parameters": size})
    said = [f"Inference-Header-Content-Length: {told.format(len(text))}"] if told else []
    return infer(text + data, *said, *headers, model=MIRROR)


def _gzipped(*headers: str, cut: int = 0) -> RawCall:
    text = of(SAID)
    body = gzip.compress(text + _RAW, mtime=0)
    length = f"Inference-Header-Content-Length: {len(text)}"
    return infer(body[: len(body) - cut], "Content-Encoding: gzip", length, *headers, model=MIRROR)


_LENGTH = "Inference-Header-Content-Length:"
BINARY: Mapping[str, RawCall] = {
    "bytes in, JSON out": _bytes_in(_RAW),
    "bytes in, the header in small letters": infer(
        of(SAID) + _RAW, f"{_LENGTH.lower()} {len(of(SAID))}", model=MIRROR
    ),
    "not a number and infinities come out": _bytes_in(_SPECIAL),
    "bytes without their header": _bytes_in(_RAW, told=""),
    "bytes with a header beyond the body": _bytes_in(_RAW, told="9999"),
    "bytes with a header that is too small": _bytes_in(_RAW, told="5"),
    "bytes with a header that is no number": _bytes_in(_RAW, told="abc"),
    "bytes with a negative header": _bytes_in(_RAW, told="-1"),
    "bytes with an empty header": infer(_PLAIN, _LENGTH, model=MIRROR),
    "bytes with the header twice": _bytes_in(_RAW, f"{_LENGTH} 5"),
    "JSON with the header": infer(_PLAIN, f"{_LENGTH} {len(_PLAIN)}", model=MIRROR),
    "fewer bytes than said": _bytes_in(_RAW[:4], text=of(SAID)),
    "more bytes than said": _bytes_in(_RAW * 2, text=of(SAID)),
    "a raw request": infer(struct.pack("<i", 5), f"{_LENGTH} 0", model=f"{ADD}/versions/1"),
    "a raw request to a model of many inputs": infer(_RAW, f"{_LENGTH} 0", model=MIRROR),
    "gzip request": infer(_ENCODED["gzip"], "Content-Encoding: gzip"),
    "deflate request": infer(_ENCODED["deflate"], "Content-Encoding: deflate"),
    "gzip request with bytes": _gzipped(),
    "gzip request with bytes, gzip answer": _gzipped("Accept-Encoding: gzip"),
    "gzip request that is cut": _gzipped(cut=9),
    "gzip request that is none": infer(X, "Content-Encoding: gzip"),
    "unknown encoding": infer(X, "Content-Encoding: br"),
    "identity encoding": infer(X, "Content-Encoding: identity"),
    "gzip encoding in capitals": infer(_ENCODED["gzip"], "Content-Encoding: GZIP"),
    **{f"accepts '{one}'": infer(X, f"Accept-Encoding: {one}") for one in _ACCEPTS},
    "accepts gzip of bytes": infer(
        of(THREE, parameters={"binary_data_output": True}), "Accept-Encoding: gzip", model=MIRROR
    ),
    "accepts gzip of an error": infer(b"{}", "Accept-Encoding: gzip"),
}


def _chunked(*chunks: bytes, path: str = f"{ADD}/infer") -> RawCall:
    lines = [f"POST {path} HTTP/1.1", "Host: x", "Transfer-Encoding: chunked", "", ""]
    sent = b"".join(b"%x\r\n%b\r\n" % (len(one), one) for one in chunks)
    return RawCall("\r\n".join(lines).encode() + sent + b"0\r\n\r\n")


def _row(*calls: RawCall) -> RawCall:
    return RawCall(b"".join(one.data for one in calls), answers=len(calls))


def _expecting(path: str, body: bytes) -> RawCall:
    begun = call("POST", path, "Expect: 100-continue", body=body).data
    return RawCall(begun[: len(begun) - len(body)], answers=2, then=(body,))


def _after(*calls: RawCall) -> RawCall:
    """Calls on one connection, each after the answer to the one before."""
    first, *others = (one.data for one in calls)
    return RawCall(first, answers=len(calls), then=tuple(others))


def _with(part: bytes, other: bytes) -> RawCall:
    """An ordinary call with another part in place of this one."""
    return RawCall(infer(X).data.replace(part, other))


_AGAIN = infer(X, "Connection: keep-alive", version="1.0")
FRAMING: Mapping[str, RawCall] = {
    "in one chunk": _chunked(X),
    "in many chunks": _chunked(*(X[i : i + 1] for i in range(len(X)))),
    "in no chunk": _chunked(),
    "after it was asked to go on": _expecting(f"{ADD}/infer", X),
    "HTTP/1.0": infer(X, version="1.0"),
    "HTTP/1.0 that stays, twice": _row(_AGAIN, _AGAIN),
    "HTTP/1.0 with an error": infer(b"{}", version="1.0"),
    "two in a row": _row(infer(X), infer(x(6))),
    "an error and a call in a row": _row(infer(b"{}"), infer(X)),
    "a call and a question in a row": _row(infer(X), call("GET", ADD)),
    "a question, then a call": _after(call("GET", ADD), infer(X)),
    "an error, then a call": _after(infer(b"{}"), infer(X)),
    "an unknown model, then a call": _after(infer(X, model=NOPE), infer(X)),
    "a decoupled model, then a call": _after(infer(b"junk", model=REPEAT), infer(X)),
    "a wrong path, then a call": _after(call("GET", "/x"), infer(X)),
    "a wrong method, then a call": _after(call("GET", f"{ADD}/infer"), infer(X)),
    "a wrong encoding, then a call": _after(infer(X, "Content-Encoding: br"), infer(X)),
    "an index, then a call": _after(post("/v2/repository/index", b"{}"), infer(X)),
    "a head in two lines": _with(b"Host: x", b"Host:\r\n x"),
    "no host": _with(b"Host: x\r\n", b""),
    "an absolute target": infer(X, model=f"http://x{ADD}"),
    "another absolute target": get("http://x/v2"),
    "header names in capitals": _with(b"Content-Length", b"CONTENT-LENGTH"),
    "a space before a colon": infer(X, "X-A : 1"),
    "a header without a colon": infer(X, "X-A"),
    "a length that is no number": call("POST", f"{ADD}/infer", "Content-Length: abc"),
    "a negative length": call("POST", f"{ADD}/infer", "Content-Length: -1"),
    "two lengths": infer(X, f"Content-Length: {len(X)}"),
    "two lengths that differ": infer(X, "Content-Length: 5"),
    "a length and chunks": RawCall(
        _chunked(X).data.replace(b"Host: x", b"Host: x\r\nContent-Length: 5")
    ),
    "another coding": infer(X, "Transfer-Encoding: gzip"),
    "a later version": infer(X, version="1.2"),
    "HTTP/2": RawCall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    "no HTTP at all": RawCall(b"hello\r\n\r\n"),
    "the last of a row": _row(infer(X), infer(X, "Connection: close")),
    "many headers": infer(X, *(f"X-{number}: {number}" for number in range(50))),
    "an empty header": infer(X, "X-Empty:"),
    "a host that is another": infer(X, "X-Forwarded-Host: evil"),
}

# --- generate -------------------------------------------------------------------------------------

_GENERATED = (
    *(b'{"x":0}', b'{"x":1}', b'{"x":3}', b'{"x":-1}', b'{"x":-3}', b'{"x":[1]}'),
    *(b"", b"junk", b"[]", b'{"y":1}', b'{"x":1,"x":2}', b'{"x":[1,2]}', b'{"x":"a"}'),
    *(b'{"x":null}', b'{"x":1.5}', b'{"x":1,"id":"7"}', b'{"x":1,"other":"a"}'),
    b'{"x":1,"parameters":{"a":1}}',
)
_GENERATES = ("generate", "generate_stream")
GENERATE: Mapping[str, RawCall] = {
    **{
        f"{verb} of {body.decode() or 'nothing'}": post(f"{REPEAT}/{verb}", body)
        for verb in _GENERATES
        for body in _GENERATED
    },
    **{
        f"{verb} of {model.rpartition('/')[2]}": post(f"{model}/{verb}", b'{"x":1}')
        for verb in _GENERATES
        for model in (ADD, *(f"{ADD}/versions/{one}" for one in ("1", "9", "01")), NOPE, GONE)
    },
    **{
        f"{verb} of a compressed body": post(
            f"{REPEAT}/{verb}", gzip.compress(b'{"x":1}', mtime=0), "Content-Encoding: gzip"
        )
        for verb in _GENERATES
    },
    "generate that accepts gzip": post(f"{ADD}/generate", b'{"x":1}', "Accept-Encoding: gzip"),
    "generate of version none": post(f"{ADD}/versions//generate", b'{"x":1}'),
    "generate in chunks": _chunked(b'{"x"', b":1}", path=f"{ADD}/generate"),
    "generate_stream, twice": _after(*[post(f"{REPEAT}/generate_stream", b'{"x":2}')] * 2),
    "generate of nothing, then a call": _after(post(f"{NOPE}/generate", b"{}"), infer(X)),
    "generate over HTTP/1.0": post(f"{ADD}/generate", b'{"x":1}', version="1.0"),
    "generate_stream over HTTP/1.0": post(f"{REPEAT}/generate_stream", b'{"x":2}', version="1.0"),
}

CALLS: Mapping[str, RawCall] = {
    **ROUTES, **FLEET, **INFER, **DATATYPES, **BINARY, **FRAMING, **PARAMETERS, **GENERATE
}  # fmt: skip
