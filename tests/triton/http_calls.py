"""Raw calls over HTTP that are no predict calls: as bytes, by a name that says what they are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


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


ADD, ANY, REPEAT, GONE, NOPE = (f"/v2/models/{m}" for m in ("add", "any", "repeat", "gone", "nope"))
X = of(tensor("x", "INT32", [5], 1, 1))
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
    "metadata of all datatypes": ANY,
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
    "config of all datatypes": f"{ANY}/config",
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
