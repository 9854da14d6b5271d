"""Write the seeds of the corpus again: `python -m fuzz.planting`. What was found stays.

Hostile cases have the names of the fault list (C4, C14, C15, C16): a file says what it is for.
"""

import gzip
import zlib
from collections.abc import Callable, Iterator
from typing import Any

from fuzz.plant_grpc import grpc_clients, grpc_tritons, header_blocks
from fuzz.plant_http import http_answers, http_heads, http_requests
from fuzz.targets import CORPUS
from tritonclient.grpc import service_pb2

Seeds = Iterator[tuple[str, bytes]]


def main() -> None:
    """Write all of them."""
    for name, plant in _PLANTS.items():
        folder = CORPUS / name
        folder.mkdir(parents=True, exist_ok=True)
        for title, data in plant():
            (folder / title).write_bytes(data)


def _names() -> Seeds:
    yield "json", b'h{"id":"x","model_name":"own--0a1b","model_version":"7","outputs":[]}'
    yield (
        "json-hostile-id",
        (
            b'h{"id":"\\"model_name\\":\\"own--0a1b\\",\\"model_version\\":\\"7",'
            b'"model_name":"own--0a1b","model_version":"7","outputs":[]}'
        ),
    )
    yield "json-cut", b'h{"model_name":"own--0a1b","model_version":"'
    yield "json-another-model", b'h{"model_name":"other","model_version":"1"}'
    yield "error", b"eRequest for unknown model: 'own--0a1b' is not found, 'own--0a1b'"
    reply = service_pb2.ModelInferResponse(model_name="own--0a1b", model_version="7", id="x")
    reply.raw_output_contents.append(b"abcd")
    yield "infer", b"i" + reply.SerializeToString()
    yield "metadata", b"m" + service_pb2.ModelMetadataResponse(name="own--0a1b").SerializeToString()
    config = service_pb2.ModelConfigResponse()
    config.config.name, config.config.backend = "own--0a1b", "x"
    yield "config", b"c" + config.SerializeToString()


def _request(**fields: Any) -> Any:
    return service_pb2.ModelInferRequest(**fields)


def _protobuf() -> Seeds:
    yield (
        "plain",
        _request(model_name="m", id="i", raw_input_contents=[b"abcd"]).SerializeToString(),
    )
    yield "version", _request(model_name="m", model_version="2").SerializeToString()
    for title, field, value in (
        ("int", "int64_param", 7), ("uint", "uint64_param", 1 << 63),
        ("string", "string_param", "x"),
        ("negative", "int64_param", -1), ("bool", "bool_param", True), ("zero", "int64_param", 0),
    ):  # fmt: skip
        asked = _request(model_name="s")
        setattr(asked.parameters["sequence_id"], field, value)
        asked.parameters["sequence_start"].bool_param = True
        yield f"sequence-{title}", asked.SerializeToString()
    yield "version-first", b"\x12\x011\x0a\x01m"
    yield "names-twice", b"\x0a\x01m\x12\x011\x3a\x04data\x0a\x01n\x12\x012"
    yield "names-last", b"\x3a\x04data\x0a\x01m"
    yield "long-numbers", b"\x8a\x80\x00\x81\x00m\x92\x80\x80\x00\x81\x001"
    yield "not-utf-8", b"\x0a\x01\xff"
    yield "empty", b""
    yield "cut", b"\x0a\x01m\x12\x05"
    yield (
        "sequence-in-an-entry-with-a-stray-field",
        b"\x22\x12\x0a\x0bsequence_id\x12\x03\x1a\x01x\x22\x12\x0a\x0bsequence_id\x1a\x03\x1a\x01x",
    )
    yield (
        "sequence-twice",
        (b"\x0a\x01s\x22\x11\x0a\x0bsequence_id\x12\x02\x10\x07\x22\x0d\x0a\x0bsequence_id"),
    )
    yield (
        "sequence-and-then-a-truth-value",
        (b"\x0a\x01s\x22\x13\x0a\x0bsequence_id\x12\x04\x10\x07\x08\x01"),
    )
    yield "groups", b"\x0a\x01m\x2b\x2c"


def _inflation() -> Seeds:
    yield "gzip", gzip.compress(b"abc" * 100, mtime=0)
    yield "zlib", zlib.compress(b"abc" * 100)
    yield "c14-zlib-bomb", zlib.compress(bytes(300_000))
    yield "c14-gzip-bomb", gzip.compress(bytes(300_000), mtime=0)
    yield "two-members", gzip.compress(b"a", mtime=0) + gzip.compress(bytes(90_000), mtime=0)
    yield (
        "bomb-in-the-second-member",
        gzip.compress(b"a", mtime=0) + gzip.compress(bytes(300_000), mtime=0),
    )
    yield "cut", gzip.compress(b"abc" * 100, mtime=0)[:-9]
    yield "broken", gzip.compress(bytes(90_000), mtime=0)[:-9] + bytes(9)
    yield "not-compressed", b'{"inputs":[]}'


def _grpc_framing() -> Seeds:
    yield "three", b"\0\0\0\0\3abc\1\0\0\0\0\0\0\0\0\1x"
    yield "flag-2", b"\0\0\0\0\1x\2\0\0\0\0"
    yield "cut-in-the-prefix", b"\0\0\0\0\1x\0\0\0"
    yield "cut-in-the-message", b"\0\0\0\0\1x\0\xff\xff\xff\xffabc"


_PLANTS: dict[str, Callable[[], Seeds]] = {
    "http-requests": http_requests,
    "http-answers": http_answers,
    "http-heads": http_heads,
    "names": _names,
    "protobuf": _protobuf,
    "header-blocks": header_blocks,
    "grpc-clients": grpc_clients,
    "grpc-tritons": grpc_tritons,
    "grpc-framing": _grpc_framing,
    "inflation": _inflation,
}

if __name__ == "__main__":
    main()
