"""The gateway and Triton hear the same raw gRPC calls, and have to say the same, to the byte.

Compared are status, details, messages and their order, initial metadata, and the names of trailing
metadata (the gateway adds `servegate-…`). `KNOWN` is the whole list of differences, with reasons; a
difference that is on the list and no longer occurs fails, too.

Of odd heads and frames it is compared whether they are taken, and what is answered then. How one is
refused is each library's own affair.
"""

import asyncio

import pytest
from builders import until
from grpc_wire import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    INFER,
    PADDED,
    PREFACE,
    Client,
    block,
    frame,
    message,
    settings,
)

from .conftest import Beside
from .grpc_calls import CALLS
from .raw_grpc import PATIENCE, Heard, infer, make, stream, unary

pytestmark = pytest.mark.triton

_LABEL = "a word is a label to the gateway, and it says which ones there are"
_WHY = "the gateway says what is wrong with the message"
_CHOSEN = "the error is about the version that the gateway chose"
_MANAGEMENT = "not served unless it is opened; the gateway says what to use instead"
_UNLOADED = "what the snapshot says is served is not answered with Triton's unknown model"
KNOWN = {
    "ServerLive: garbage": "the gateway answers itself, without reading what says nothing",
    "ServerReady: garbage": "the gateway answers itself, without reading what says nothing",
    "ModelReady: version abc": "a label that does not exist is not ready",
    "ModelMetadata: version abc": _LABEL,
    "ModelConfig: version abc": _LABEL,
    "ModelStatistics: version abc": _LABEL,
    "ModelInfer: version abc": _LABEL,
    "ModelStreamInfer: version abc": _LABEL,
    "garbage": _WHY,
    "a message that is cut off": _WHY,
    "a field number of zero": _WHY,
    "garbage in a question": _WHY,
    "no message": "UNIMPLEMENTED is what gRPC prescribes for a unary call without a message",
    "garbage on a stream": "Triton ends the stream as if nothing were wrong",
    "garbage behind an answer": "Triton ends the stream as if nothing were wrong",
    "an unknown model with triton_grpc_error": "the stream ends, as the caller has asked for",
    "an error of a version that the caller did not name": _CHOSEN,
    **{
        f"unloaded, {version}: {method}": _UNLOADED
        for version in ("no version", "version 1")
        for method in ("ModelInfer", "ModelStreamInfer", "ModelMetadata", "ModelConfig")
    },
    **{name: _MANAGEMENT for name in CALLS if name.startswith("management: ")},
}


def told(heard: Heard) -> str:
    """An answer as people can compare it."""
    return "\n".join(
        (
            f"status {heard.code}: {heard.details}",
            *(f"message {message[:600]!r}" for message in heard.messages),
            f"initial {heard.initial}",
            f"trailing {heard.keys}",
        )
    )


def test_calls_are_answered_as_triton_answers_them(beside: Beside) -> None:
    surprises = []
    for name, call in CALLS.items():
        directly, through = (make(call, address) for address in beside.grpc)
        same = (directly, directly.keys) == (through, through.keys)
        if same and name in KNOWN:
            surprises.append(f"{name}: no difference any more: {KNOWN[name]}")
        elif not same and name not in KNOWN:
            surprises.append(f"{name}: directly {told(directly)}\nbut through {told(through)}")
    assert surprises == []


def test_a_deadline_that_passes_has_the_status_that_it_has_directly(
    beside: Beside,
) -> None:
    """The words may be those of the client's own library, when it is the first to notice."""
    request = infer("slow", values=(0.6,))
    for call in (unary("ModelInfer", request, timeout=0.3), stream(request, timeout=0.3)):
        assert [make(call, address).code for address in beside.grpc] == [4, 4], call.method


# --- odd heads and frames -----------------------------------------------------------------------

BODY = infer().SerializeToString()
WHOLE = message(BODY)
FIELDS = {
    ":method": "POST",
    ":scheme": "http",
    ":path": INFER,
    ":authority": "here",
    "te": "trailers",
    "content-type": "application/grpc",
}


def call_head(flags: int = END_HEADERS, **fields: str) -> bytes:
    """A call's head with other fields; an empty one is left out. `_` stands for `-`."""
    named = FIELDS | {name.replace("_", "-"): value for name, value in fields.items()}
    return frame(HEADERS, flags, 1, block(*((k, v) for k, v in named.items() if v)))


def data(payload: bytes = WHOLE, flags: int = END_STREAM) -> bytes:
    return frame(DATA, flags, 1, payload)


FRAMES: dict[str, tuple[bytes, ...]] = {
    "an ordinary call": (call_head(), data()),
    "application/grpc+proto": (call_head(content_type="application/grpc+proto"), data()),
    "application/json": (call_head(content_type="application/json"), data()),
    "no content-type": (call_head(content_type=""), data()),
    "GET": (call_head(**{":method": "GET"}), data()),
    "PUT": (call_head(**{":method": "PUT"}), data()),
    "https": (call_head(**{":scheme": "https"}), data()),
    "no authority": (call_head(**{":authority": ""}), data()),
    "a path without a slash": (call_head(**{":path": "x"}), data()),
    "a query": (call_head(**{":path": INFER + "?x=1"}), data()),
    "no te": (call_head(te=""), data()),
    "a timeout": (call_head(grpc_timeout="20S"), data()),
    "a timeout that is none": (call_head(grpc_timeout="5x"), data()),
    "a timeout of nine digits": (call_head(grpc_timeout="123456789S"), data()),
    "an encoding that nobody knows": (call_head(grpc_encoding="br"), data(message(BODY, flag=1))),
    "an encoding that nobody knows, unused": (call_head(grpc_encoding="br"), data()),
    "a compressed message without an encoding": (call_head(), data(message(BODY, flag=1))),
    "a compressed message that is none": (
        call_head(grpc_encoding="gzip"),
        data(message(BODY, flag=1)),
    ),
    "a flag of two": (call_head(), data(message(BODY, flag=2))),
    "bytes one by one": (
        call_head(),
        *(data(WHOLE[at : at + 1], 0) for at in range(len(WHOLE))),
        data(b""),
    ),
    "padding": (call_head(), data(b"\x03" + WHOLE + b"\0\0\0", END_STREAM | PADDED)),
    "trailers": (call_head(), data(flags=0), frame(HEADERS, 5, 1, block(("x-more", "1")))),
    "an end inside a message": (call_head(), data(WHOLE[:-1])),
    "an end inside a prefix": (call_head(), data(WHOLE[:3])),
    "two messages": (call_head(), data(WHOLE + WHOLE)),
    "a half second message": (call_head(), data(WHOLE + WHOLE[:9])),
    "no message": (call_head(END_HEADERS | END_STREAM),),
    "an empty frame": (call_head(), data(b"")),
    "a path of another service": (call_head(**{":path": "/x.Y/Z"}), data()),
}
_SPECIFIED = "the gateway keeps to gRPC's specification, which Triton's library is laxer about"
_HTTP = "the gateway keeps to HTTP/2, which Triton's library is stricter about"
REFUSED_OTHERWISE = {
    "no content-type": _SPECIFIED,
    "a timeout of nine digits": _SPECIFIED,
    "a compressed message without an encoding": _SPECIFIED,
    "two messages": _SPECIFIED,
    "a half second message": _SPECIFIED,
    "no authority": _HTTP,
    "no te": _HTTP,
    "padding": _HTTP,
}


async def answer_to(address: str, frames: tuple[bytes, ...]) -> bytes | None:
    """The answer to these frames; None when they were refused, in whatever way."""
    host, _, port = address.rpartition(":")
    client = Client(PREFACE + settings())
    loop = asyncio.get_running_loop()
    await loop.create_connection(lambda: client, host, int(port))
    client.send(*frames)
    heard = client.streams[1]
    await until(lambda: heard.is_over or heard.reset is not None, within=PATIENCE)
    client.abort()
    return bytes(heard.body) if heard.status == 0 else None


def test_odd_frames_are_taken_or_refused_as_by_triton(beside: Beside) -> None:
    surprises = []
    for name, frames in FRAMES.items():
        directly, through = (asyncio.run(answer_to(address, frames)) for address in beside.grpc)
        if (through != directly) != (name in REFUSED_OTHERWISE):
            surprises.append((name, directly, through, REFUSED_OTHERWISE.get(name)))
    assert surprises == []
