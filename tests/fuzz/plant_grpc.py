"""Seeds of gRPC: HTTP/2 from both sides, the cases C4 and C15 of the fault list by name."""

import gzip
from collections.abc import Iterator
from struct import pack
from typing import Any

import hpack
from fuzz.http2_peers import (
    DATA,
    GOAWAY,
    HEADERS,
    MORE,
    PING,
    PREFACE,
    RST,
    SETTINGS,
    WINDOW,
    frame,
)
from fuzz.plant_clients import tritonclient_grpc
from tritonclient.grpc import service_pb2

Seeds = Iterator[tuple[str, bytes]]
_PATH = b"/inference.GRPCInferenceService/ModelInfer"


def _head(*more: tuple[str, str], path: bytes = _PATH) -> bytes:
    fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path.decode()),
        (":authority", "x"),
    ]
    fields += [("te", "trailers"), ("content-type", "application/grpc"), *more]
    encoder = hpack.Encoder()
    encoder.header_table_size = 0
    return bytes(encoder.encode(fields))


def _message(**fields: Any) -> bytes:
    body = service_pb2.ModelInferRequest(**fields).SerializeToString()
    return pack(">BI", 0, len(body)) + body


def _call(number: int, **fields: Any) -> bytes:
    return frame(HEADERS, 4, number, _head()) + frame(DATA, 1, number, _message(**fields))


_START = PREFACE + frame(SETTINGS, 0, 0) + frame(SETTINGS, 1, 0)


def header_blocks() -> Seeds:
    def row(*blocks: bytes) -> bytes:
        return b"".join(b if b == b"\xff\xff" else pack(">H", len(b)) + b for b in blocks)

    fields = [(":method", "POST"), (":path", _PATH.decode()), ("te", "trailers"), ("x-a", "b")]
    encoder = hpack.Encoder()
    first = (encoder.encode(fields), encoder.encode(fields))
    encoder.header_table_size = 0
    second = (encoder.encode(fields), encoder.encode([*fields, ("grpc-timeout", "5S")]))
    yield "with-a-table-then-without", row(*first, b"\xff\xff", *second)
    yield "with-a-table", row(*first, *first)
    yield "without-a-table", row(b"\xff\xff", *second, _head(("grpc-timeout", "1m")))
    yield "c15-index-0", row(b"\xff\xff", b"\x20\x82", b"\x80")
    yield "c15-index-of-the-table", row(b"\xff\xff", b"\x20\x82", b"\xbe")
    yield "c15-long-integer", row(b"\xff\xff", b"\x20\x82", b"\x00\x7f\xff\xff\xff\xff\xff\x00")
    yield "c15-ends-inside-a-field", row(b"\xff\xff", b"\x20\x82", b"\x00\x03ab")
    yield "c15-broken-huffman", row(b"\xff\xff", b"\x20\x82", b"\x00\x01a\x82\xff\xff")
    yield "c15-table-size-in-the-middle", row(b"\xff\xff", b"\x20\x82", b"\x82\x20")
    yield "c15-table-size-not-0", row(b"\xff\xff", b"\x20\x82", b"\x3f\x01\x82")
    yield "c15-never-indexed", row(b"\xff\xff", b"\x20\x82", b"\x1f\x08\x03abc")


def grpc_clients() -> Seeds:
    yield "tritonclient-infer", tritonclient_grpc(request_id="1")
    yield "tritonclient-infer-gzip-timeout", tritonclient_grpc(request_id="1", timeout=5)
    yield "one", _START + _call(1, model_name="m", id="x")
    yield (
        "four",
        _START
        + b"".join(
            _call(2 * at + 1, model_name=model, id=identity)
            for at, (model, identity) in enumerate(
                (("r", "x"), ("m", "@large"), ("s", "@stop"), ("m", "@unknown"))
            )
        ),
    )
    for word in ("refused", "reset", "goaway", "eof", "silent", "large"):
        yield (
            f"triton-{word}",
            _START + _call(1, model_name="m", id=f"@{word}") + _call(3, model_name="r", id="x"),
        )
    small = PREFACE + frame(SETTINGS, 0, 0, pack(">HI", 4, 16))
    large = _call(1, model_name="m", id="@large")
    yield "small-window", small + large + frame(WINDOW, 0, 1, pack(">I", 50_000))
    yield "window-becomes-negative", _START + large + frame(SETTINGS, 0, 0, pack(">HI", 4, 0))
    yield (
        "left-with-calls",
        _START + _call(1, model_name="m", id="@silent") + frame(RST, 0, 1, pack(">I", 8)),
    )
    yield "goaway", _START + _call(1, model_name="m") + frame(GOAWAY, 0, 0, bytes(8))
    path = b"/inference.GRPCInferenceService/"
    for word in (
        b"ServerLive",
        b"ServerReady",
        b"ServerMetadata",
        b"RepositoryIndex",
        b"ModelStreamInfer",
    ):
        body = frame(DATA, 1, 1, bytes(5))
        yield (
            f"method-{word.decode()}",
            _START + frame(HEADERS, 4, 1, _head(path=path + word)) + body,
        )
    for word in (b"ModelReady", b"ModelMetadata", b"ModelConfig", b"ModelStatistics"):
        body = frame(DATA, 1, 1, pack(">BI", 0, 3) + b"\x0a\x01r")
        yield (
            f"method-{word.decode()}",
            _START + frame(HEADERS, 4, 1, _head(path=path + word)) + body,
        )
    opened = _START + frame(HEADERS, 4, 1, _head(path=path + b"ModelStreamInfer"))
    several = b"".join(_message(model_name=model, id="x") for model in ("m", "r", "nope", "m"))
    yield "stream-of-several-models", opened + frame(DATA, 1, 1, several)
    yield "stream-cut-inside-a-message", opened + frame(DATA, 1, 1, several[:-3])
    large = _message(model_name="m", id="@large")
    yield "stream-large-answers", opened + frame(DATA, 1, 1, large * 3)
    swallows = b"\0\0\0\0\x0a\x0a\x01m\x1a\0\x0a\x01s\x3a\x06"
    yield "stream-message-swallows-the-names", opened + frame(DATA, 1, 1, swallows)
    yield from _c15()


def _c15() -> Seeds:
    """Malformed frames, floods, huge metadata."""
    one, head = _call(1, model_name="m"), _head()
    whole = frame(HEADERS, 4, 1, head)
    half = len(head) // 2
    reset = b"".join(
        frame(HEADERS, 4, n, head) + frame(RST, 0, n, pack(">I", 8)) for n in range(1, 69, 2)
    )
    zipped = gzip.compress(_message(model_name="m")[5:], mtime=0)
    bomb = gzip.compress(bytes(50_000), mtime=0)
    encoded = frame(HEADERS, 4, 1, _head(("grpc-encoding", "gzip")))
    for title, data in (
        ("no-preface", one), ("preface-cut", PREFACE[:20]),
        ("http-1", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
        ("continuation", frame(HEADERS, 0, 1, head[:half]) + frame(MORE, 4, 1, head[half:])
         + frame(DATA, 1, 1, _message(model_name="m"))),
        ("continuation-alone", frame(MORE, 4, 1, head)),
        ("continuations-without-end", frame(HEADERS, 0, 1, head) + frame(MORE, 0, 1) * 8),
        ("another-frame-in-a-block", frame(HEADERS, 0, 1, head) + frame(PING, 0, 0, bytes(8))),
        ("huge-metadata", frame(HEADERS, 4, 1, _head(("x-a", "~" * 1300)))),
        ("many-fields", frame(HEADERS, 4, 1, head + b"\x00\x01a\x01b" * 60)),
        ("reset-flood", reset), ("ping-flood", frame(PING, 0, 0, bytes(8)) * 70),
        ("settings-flood", frame(SETTINGS, 0, 0) * 70),
        ("empty-data-flood", whole + frame(DATA, 0, 1) * 70),
        ("stream-0", frame(HEADERS, 4, 0, head)), ("stream-even", frame(HEADERS, 4, 2, head)),
        ("stream-falls", frame(HEADERS, 4, 5, head) + whole), ("stream-twice", one + one),
        ("data-on-idle", frame(DATA, 1, 5, b"x")), ("reset-on-idle", frame(RST, 0, 5, bytes(4))),
        ("window-0", whole + frame(WINDOW, 0, 1, bytes(4))),
        ("window-overflow", whole + frame(WINDOW, 0, 1, b"\x7f\xff\xff\xff") * 2),
        ("window-of-the-connection-overflow", frame(WINDOW, 0, 0, b"\x7f\xff\xff\xff") * 2),
        ("settings-odd", frame(SETTINGS, 0, 0, b"12345")), ("push", frame(5, 4, 1, bytes(8))),
        ("settings-frame-size", frame(SETTINGS, 0, 0, pack(">HI", 5, 1))),
        ("frame-too-large", b"\xff\xff\xff\0\0\0\0\0\1"),
        ("priority-of-itself", whole + frame(2, 0, 1, b"\0\0\0\1\0")),
        ("padded", whole + frame(DATA, 9, 1, b"\3" + _message(model_name="m") + bytes(3))),
        ("too-much-padding", whole + frame(DATA, 9, 1, b"\xff" + _message(model_name="m"))),
        ("no-message", whole + frame(DATA, 1, 1)), ("head-ends", frame(HEADERS, 5, 1, head)),
        ("two-messages", whole + frame(DATA, 1, 1, _message(model_name="m") * 2)),
        ("message-cut", whole + frame(DATA, 1, 1, _message(model_name="m")[:-1])),
        ("message-longer", whole + frame(DATA, 1, 1, _message(model_name="m") + b"x")),
        ("message-too-large", whole + frame(DATA, 0, 1, b"\0\xff\xff\xff\xff")),
        ("flag-2", whole + frame(DATA, 1, 1, b"\2\0\0\0\0")),
        ("flag-without-encoding", whole + frame(DATA, 1, 1, b"\1\0\0\0\1x")),
        ("gzip", encoded + frame(DATA, 1, 1, pack(">BI", 1, len(zipped)) + zipped)),
        ("gzip-bomb", encoded + frame(DATA, 1, 1, pack(">BI", 1, len(bomb)) + bomb)),
        ("trailers", whole + frame(DATA, 0, 1, _message(model_name="m"))
         + frame(HEADERS, 5, 1, b"\x00\x01a\x01b")),
        ("content-length-lies", frame(HEADERS, 4, 1, _head(("content-length", "99")))
         + frame(DATA, 1, 1, _message(model_name="m"))),
        ("timeout-nonsense", frame(HEADERS, 4, 1, _head(("grpc-timeout", "soon")))),
        ("connection-header", frame(HEADERS, 4, 1, _head(("connection", "close")))),
        ("names-behind-a-tensor", whole + frame(DATA, 1, 1, b"\0\0\0\0\x09\x3a\x04data\x0a\x01m")),
        ("another-model-behind",
         whole + frame(DATA, 1, 1, b"\0\0\0\0\x0c\x0a\x01m\x3a\x04data\x0a\x01n")),
        (
            "message-swallows-the-names",
            whole + frame(DATA, 1, 1, b"\0\0\0\0\x07\x0a\x01m\x1a\0\x3a\x06"),
        ),
        (
            "message-swallows-the-names-of-another-model",
            whole + frame(DATA, 1, 1, b"\0\0\0\0\x0a\x0a\x01m\x1a\0\x0a\x01s\x3a\x06"),
        ),
    ):  # fmt: skip
        start = b"" if title in ("no-preface", "preface-cut", "http-1") else _START
        yield f"c15-{title}", (data if title == "preface-cut" else start + data)


_OK = b"\x88\x00\x0ccontent-type\x10application/grpc"
_GOOD_TRAILERS = b"\x00\x0bgrpc-status\x010"


def _answered(number: int = 1) -> bytes:
    body = service_pb2.ModelInferResponse(
        model_name="m", model_version="1", id="x"
    ).SerializeToString()
    message = pack(">BI", 0, len(body)) + body
    frames = frame(HEADERS, 4, number, _OK) + frame(DATA, 0, number, message)
    return frames + frame(HEADERS, 5, number, _GOOD_TRAILERS)


def grpc_tritons() -> Seeds:
    ack = frame(SETTINGS, 1, 0)
    refused = _OK + b"\x00\x0bgrpc-status\x0214\x00\x0cgrpc-message\x10Server not ready"
    settings = frame(SETTINGS, 0, 0, pack(">HI", 1, 0))
    yield "good", ack + _answered()
    yield "own-settings", settings + ack + _answered()
    yield "refused", ack + frame(HEADERS, 5, 1, refused)
    yield (
        "small-window",
        frame(SETTINGS, 0, 0, pack(">HI", 4, 5))
        + frame(WINDOW, 0, 1, pack(">I", 500))
        + _answered(),
    )
    yield "goaway-below", frame(GOAWAY, 0, 0, bytes(8))
    yield "goaway-above", frame(GOAWAY, 0, 0, pack(">II", 1, 0)) + _answered()
    yield "reset", frame(RST, 0, 1, pack(">I", 7))
    yield "reset-behind-the-head", frame(HEADERS, 4, 1, _OK) + frame(RST, 0, 1, pack(">I", 2))
    yield "interim", frame(HEADERS, 4, 1, b"\x08\x03100") + _answered()
    yield "c4-cut-in-the-answer", _answered()[:-30]
    yield "c4-data-ends", frame(HEADERS, 4, 1, _OK) + frame(DATA, 1, 1, b"\0\0\0\0\x03\x0a\x01m")
    yield (
        "c4-message-cut",
        frame(HEADERS, 4, 1, _OK)
        + frame(DATA, 0, 1, b"\0\0\0\0\x09\x0a")
        + frame(HEADERS, 5, 1, _GOOD_TRAILERS),
    )
    yield "c4-capitals-in-a-name", frame(HEADERS, 5, 1, refused + b"\x00\x03X-A\x01b")
    yield "c4-message-with-flag-2", frame(HEADERS, 4, 1, _OK) + frame(DATA, 0, 1, b"\2\0\0\0\0")
    yield "c4-no-status", frame(HEADERS, 4, 1, _OK) + frame(HEADERS, 5, 1, b"\x00\x01a\x01b")
    yield "c4-data-before-head", frame(DATA, 0, 1, b"\0\0\0\0\0") + _answered()
    yield "c4-two-answers", _answered() + _answered()
    yield "c4-two-heads", frame(HEADERS, 4, 1, _OK) + _answered()
    yield "c4-head-without-status", frame(HEADERS, 4, 1, b"\x00\x01a\x01b") + _answered()
    yield "c4-http-status", frame(HEADERS, 5, 1, b"\x8d")
    yield "c4-not-http-2", b"HTTP/1.1 400 Bad Request\r\n\r\n"
    yield "c15-frame-before-any-call", settings + frame(HEADERS, 4, 1, _OK)
    yield "c15-push", frame(5, 4, 1, bytes(8))
    yield "c15-index-of-the-table", ack + frame(HEADERS, 4, 1, b"\xbe")
