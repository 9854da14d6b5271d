"""Raw predict calls over HTTP: binary, compressed, framed in all ways; and generate."""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Mapping

from .http_calls import ADD, ANY, GONE, NOPE, REPEAT, RawCall, X, call, of, post, tensor
from .http_infer_calls import SAID, THREE, infer, packed

_ENCODED = {"gzip": gzip.compress(X, mtime=0), "deflate": zlib.compress(X)}
_ACCEPTS = ("gzip", "deflate", "gzip, deflate", "br, gzip", "gzip;q=0", "*", "br", "identity", "")

# --- binary, compressed, framed -------------------------------------------------------------------

_PLAIN = of(THREE)
_RAW = packed("FP32", [1.5, 2.5])
_SPECIAL = packed("FP32", [float("nan"), float("inf"), float("-inf")])


def _bytes_in(data: bytes, *headers: str, told: str = "{}", text: bytes = b"") -> RawCall:
    """FP32 values behind the JSON; `told` is what is said of its length."""
    given = tensor("xFP32", "FP32", [], len(data) // 4)
    del given["data"]
    text = text or of({**given, "parameters": {"binary_data_size": len(data)}})
    said = [f"Inference-Header-Content-Length: {told.format(len(text))}"] if told else []
    return infer(text + data, *said, *headers, model=ANY)


def _gzipped(headers: tuple[str, ...] = (), cut: int = 0) -> RawCall:
    given = {"name": "xFP32", "shape": [2], "datatype": "FP32"}
    text = of({**given, "parameters": {"binary_data_size": len(_RAW)}})
    body = gzip.compress(text + _RAW, mtime=0)
    length = f"Inference-Header-Content-Length: {len(text)}"
    return infer(body[: len(body) - cut], "Content-Encoding: gzip", length, *headers, model=ANY)


BINARY: Mapping[str, RawCall] = {
    "bytes in, JSON out": _bytes_in(_RAW),
    "bytes in, the header in small letters": infer(
        of(SAID) + _RAW, f"inference-header-content-length: {len(of(SAID))}", model=ANY
    ),
    "not a number and infinities come out": _bytes_in(_SPECIAL),
    "bytes without their header": _bytes_in(_RAW, told=""),
    "bytes with a header beyond the body": _bytes_in(_RAW, told="9999"),
    "bytes with a header that is too small": _bytes_in(_RAW, told="5"),
    "bytes with a header that is no number": _bytes_in(_RAW, told="abc"),
    "bytes with a negative header": _bytes_in(_RAW, told="-1"),
    "bytes with an empty header": infer(_PLAIN, "Inference-Header-Content-Length:", model=ANY),
    "bytes with the header twice": _bytes_in(_RAW, "Inference-Header-Content-Length: 5"),
    "JSON with the header": infer(
        _PLAIN, f"Inference-Header-Content-Length: {len(_PLAIN)}", model=ANY
    ),
    "fewer bytes than said": _bytes_in(_RAW[:4], text=of(SAID)),
    "more bytes than said": _bytes_in(_RAW * 2, text=of(SAID)),
    "a raw request": infer(
        struct.pack("<i", 5), "Inference-Header-Content-Length: 0", model=f"{ADD}/versions/1"
    ),
    "a raw request to a model of many inputs": infer(
        _RAW, "Inference-Header-Content-Length: 0", model=ANY
    ),
    **{
        f"{name} request": infer(packed, f"Content-Encoding: {name}")
        for name, packed in _ENCODED.items()
    },
    "gzip request with bytes": _gzipped(),
    "gzip request with bytes, gzip answer": _gzipped(("Accept-Encoding: gzip",)),
    "gzip request that is cut": _gzipped(cut=9),
    "gzip request that is none": infer(X, "Content-Encoding: gzip"),
    "unknown encoding": infer(X, "Content-Encoding: br"),
    "identity encoding": infer(X, "Content-Encoding: identity"),
    "gzip encoding in capitals": infer(_ENCODED["gzip"], "Content-Encoding: GZIP"),
    **{f"accepts '{one}'": infer(X, f"Accept-Encoding: {one}") for one in _ACCEPTS},
    "accepts gzip of bytes": infer(
        of(THREE, parameters={"binary_data_output": True}), "Accept-Encoding: gzip", model=ANY
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


_AGAIN = infer(X, "Connection: keep-alive", version="1.0")
FRAMING: Mapping[str, RawCall] = {
    "in one chunk": _chunked(X),
    "in many chunks": _chunked(*(X[i : i + 1] for i in range(len(X)))),
    "in no chunk": _chunked(),
    "after it was asked to go on": _expecting(f"{ADD}/infer", X),
    "HTTP/1.0": infer(X, version="1.0"),
    "HTTP/1.0 that stays, twice": _row(_AGAIN, _AGAIN),
    "HTTP/1.0 with an error": infer(b"{}", version="1.0"),
    "two in a row": _row(infer(X), infer(of(tensor("x", "INT32", [6], 1, 1)))),
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
    "a head in two lines": RawCall(infer(X).data.replace(b"Host: x", b"Host:\r\n x")),
    "no host": RawCall(infer(X).data.replace(b"Host: x\r\n", b"")),
    "an absolute target": infer(X, model=f"http://x{ADD}"),
    "another absolute target": RawCall(b"GET http://x/v2 HTTP/1.1\r\nHost: x\r\n\r\n"),
    "header names in capitals": RawCall(
        infer(X).data.replace(b"Content-Length", b"CONTENT-LENGTH")
    ),
    "a space before a colon": RawCall(infer(X, "X-A : 1").data),
    "a header without a colon": RawCall(infer(X, "X-A").data),
    "a length that is no number": RawCall(
        b"POST /v2/models/add/infer HTTP/1.1\r\nHost: x\r\nContent-Length: abc\r\n\r\n"
    ),
    "a negative length": RawCall(
        b"POST /v2/models/add/infer HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n"
    ),
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
        for model in (
            ADD,
            f"{ADD}/versions/1",
            f"{ADD}/versions/9",
            f"{ADD}/versions/01",
            NOPE,
            GONE,
        )
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
