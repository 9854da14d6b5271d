"""Odd heads and frames: what Triton's gRPC library takes, the gateway takes, and answers alike.

How one is refused is each library's own affair. `KNOWN` is the whole list of differences.
"""

import asyncio
from collections.abc import Iterator

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

from .conftest import BareTritonFactory, load
from .fronting import front
from .grpc_models import GONE
from .grpc_requests import infer
from .raw_grpc import PATIENCE

pytestmark = pytest.mark.triton

BODY = infer("gone", name="x").SerializeToString()
WHOLE = message(BODY)
FIELDS = {
    ":method": "POST",
    ":scheme": "http",
    ":path": INFER,
    ":authority": "here",
    "te": "trailers",
    "content-type": "application/grpc",
}


def head(flags: int = END_HEADERS, **fields: str) -> bytes:
    """A call's head with other fields; an empty one is left out. `_` stands for `-`."""
    named = FIELDS | {name.replace("_", "-"): value for name, value in fields.items()}
    return frame(HEADERS, flags, 1, block(*((k, v) for k, v in named.items() if v)))


def data(payload: bytes = WHOLE, flags: int = END_STREAM) -> bytes:
    return frame(DATA, flags, 1, payload)


CALLS: dict[str, tuple[bytes, ...]] = {
    "an ordinary call": (head(), data()),
    "application/grpc+proto": (head(content_type="application/grpc+proto"), data()),
    "application/json": (head(content_type="application/json"), data()),
    "no content-type": (head(content_type=""), data()),
    "GET": (head(**{":method": "GET"}), data()),
    "PUT": (head(**{":method": "PUT"}), data()),
    "https": (head(**{":scheme": "https"}), data()),
    "no authority": (head(**{":authority": ""}), data()),
    "a path without a slash": (head(**{":path": "x"}), data()),
    "a query": (head(**{":path": INFER + "?x=1"}), data()),
    "no te": (head(te=""), data()),
    "a timeout": (head(grpc_timeout="20S"), data()),
    "a timeout that is none": (head(grpc_timeout="5x"), data()),
    "a timeout of nine digits": (head(grpc_timeout="123456789S"), data()),
    "an encoding that nobody knows": (head(grpc_encoding="br"), data(message(BODY, flag=1))),
    "an encoding that nobody knows, unused": (head(grpc_encoding="br"), data()),
    "a compressed message without an encoding": (head(), data(message(BODY, flag=1))),
    "a compressed message that is none": (
        head(grpc_encoding="gzip"),
        data(message(BODY, flag=1)),
    ),
    "a flag of two": (head(), data(message(BODY, flag=2))),
    "bytes one by one": (
        head(),
        *(data(WHOLE[at : at + 1], 0) for at in range(len(WHOLE))),
        data(b""),
    ),
    "padding": (head(), data(b"\x03" + WHOLE + b"\0\0\0", END_STREAM | PADDED)),
    "trailers": (head(), data(flags=0), frame(HEADERS, 5, 1, block(("x-more", "1")))),
    "an end inside a message": (head(), data(WHOLE[:-1])),
    "an end inside a prefix": (head(), data(WHOLE[:3])),
    "two messages": (head(), data(WHOLE + WHOLE)),
    "a half second message": (head(), data(WHOLE + WHOLE[:9])),
    "no message": (head(END_HEADERS | END_STREAM),),
    "an empty frame": (head(), data(b"")),
    "a path of another service": (head(**{":path": "/x.Y/Z"}), data()),
}
_SPECIFIED = "the gateway keeps to gRPC's specification, which Triton's library is laxer about"
_HTTP = "the gateway keeps to HTTP/2, which Triton's library is stricter about"
KNOWN = {
    "no content-type": _SPECIFIED,
    "a timeout of nine digits": _SPECIFIED,
    "a compressed message without an encoding": _SPECIFIED,
    "two messages": _SPECIFIED,
    "a half second message": _SPECIFIED,
    "no authority": _HTTP,
    "no te": _HTTP,
    "padding": _HTTP,
}


@pytest.fixture(scope="module")
def beside(
    bare_triton_factory: BareTritonFactory, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, str]]:
    """A Triton, and the gateway in front of it."""
    triton = bare_triton_factory()
    GONE.write(triton.repository)
    load(triton, GONE.name)
    with front(tmp_path_factory.mktemp("front"), [triton], [GONE]) as running:
        yield triton.grpc, running.grpc


async def make(address: str, frames: tuple[bytes, ...]) -> bytes | None:
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


@pytest.mark.parametrize("name", CALLS)
def test_odd_frames_are_taken_or_refused_as_by_triton(beside: tuple[str, str], name: str) -> None:
    directly, through = (asyncio.run(make(address, CALLS[name])) for address in beside)
    if name in KNOWN:
        assert through != directly, f"no difference any more: {KNOWN[name]}"
    else:
        assert through == directly
