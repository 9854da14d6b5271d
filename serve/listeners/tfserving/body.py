"""The body of a request to the REST façade: read whole, within all limits, and inflated.

The connection's own limits (its head, its chunks) are kept before; what a body may weigh, how long
it may take, and what all bodies of this worker may weigh together is kept here.
"""

import asyncio
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from fastapi import Request

from serve.core.errors import (
    BadRequest,
    BodyTooLarge,
    InflatedTooLarge,
    NoRoom,
    ServegateError,
    TooSlow,
)
from serve.listeners.http.context import HttpContext
from serve.listeners.http.request import HttpRequest
from serve.listeners.tfserving.facade import away
from serve.processes.compute import Pieces
from serve.wire.decompression import FREE, RATIO

_DROPPED = 16 << 20  # bytes of a refused body that are read, so that its sender hears why
_DROPPING = 2.0  # seconds


@asynccontextmanager
async def body_of(
    request: Request, context: HttpContext, origin: HttpRequest
) -> AsyncIterator[Pieces]:
    """The whole body, inflated; it is counted as held until the block ends."""
    pieces = Pieces()
    try:
        try:
            _check_length(origin, context.limits.body)
            async for piece in _pieces(request, context, origin):
                context.held += len(piece)
                pieces.append(piece)
                if origin.received > context.limits.body:
                    raise BodyTooLarge(context.limits.body)
                if context.held > context.limits.in_flight:
                    raise NoRoom(context.limits.in_flight)
        except ServegateError as error:
            if not isinstance(error, TooSlow) and not origin.header(b"expect"):
                await _drop(request)
            raise
        yield await _inflated(pieces, origin, context.limits.inflated)
    finally:
        context.held -= sum(map(len, pieces))


async def _drop(request: Request) -> None:
    """Read over the rest of a body: an answer to a client that is still sending may get lost."""
    size = 0
    try:
        async with asyncio.timeout(_DROPPING):
            async for piece in request.stream():
                size += len(piece)
                if size > _DROPPED:
                    return
    except (TimeoutError, RuntimeError):  # Starlette's word for a stream that has been read
        return


async def _pieces(
    request: Request, context: HttpContext, origin: HttpRequest
) -> AsyncIterator[bytes]:
    limits, begun = context.limits, context.clock()
    stream = request.stream()
    while True:
        try:
            async with asyncio.timeout(limits.body_idle):
                piece = await anext(stream, None)
        except TimeoutError as error:
            raise TooSlow("no byte of the request body arrived", limits.body_idle) from error
        if piece is None:
            return
        origin.received += len(piece)
        taken = context.clock() - begun
        if taken > limits.body_idle and origin.received < limits.body_rate * taken:
            raise TooSlow(
                f"the request body arrived with less than {limits.body_rate:g} bytes per second",
                taken,
            )
        yield piece


def _check_length(origin: HttpRequest, limit: int) -> None:
    length = origin.header(b"content-length")
    if length.isdigit() and int(length) > limit:
        raise BodyTooLarge(limit)


async def _inflated(body: Pieces, origin: HttpRequest, limit: int) -> Pieces:
    """The body as its JSON; TensorFlow Serving takes gzip, too."""
    coding = origin.header(b"content-encoding").strip().lower()
    if coding in (b"", b"identity"):
        return body
    if coding not in (b"gzip", b"deflate"):
        raise BadRequest(
            f"the Content-Encoding {coding.decode('latin-1')} is not supported", try_this="gzip"
        )
    packed = b"".join(body)
    limit = min(limit, max(FREE, len(packed) * RATIO))
    inflated = await away(len(packed) * RATIO, partial(_inflate, packed, coding, limit))
    return Pieces([inflated])


def _inflate(body: bytes, coding: bytes, limit: int) -> bytes:
    inflater = zlib.decompressobj(wbits=31 if coding == b"gzip" else 15)
    try:
        inflated = inflater.decompress(body, limit + 1)
    except zlib.error as error:
        raise BadRequest(f"the body is not valid {coding.decode()}: {error}") from error
    if len(inflated) > limit:
        raise InflatedTooLarge(limit)
    if not inflater.eof:
        raise BadRequest(f"the {coding.decode()} body is not complete")
    return inflated
