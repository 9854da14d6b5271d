"""Mutation that knows the structure: units are moved, doubled and changed, and lengths made right.

A `Grammar` cuts an input into units (lines, frames, fields) and knows words that
often matter. Most mutants still get past the first check, which random bytes never do.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass

Mutate = Callable[[bytes, int], bytes]


@dataclass(frozen=True, slots=True)
class Grammar:
    """How inputs of a target are cut into units; `mend` makes lengths right again."""

    split: Callable[[bytes], list[bytes]]
    words: tuple[bytes, ...] = ()
    mend: Callable[[bytes], bytes] = bytes


def mutator(grammar: Grammar, mutate: Mutate) -> Callable[[bytes, int, int], bytes]:
    """The function that libFuzzer calls: bytes, the largest size, and a seed."""

    def change(data: bytes, largest: int, seed: int) -> bytes:
        chance = random.Random(seed)
        if chance.random() < 0.2:
            return mutate(data, largest)
        units = grammar.split(data)
        for _ in range(chance.choice((1, 1, 1, 2, 3))):
            _step(units, grammar, chance, mutate)
        out = b"".join(units)
        if chance.random() < 0.7:
            out = grammar.mend(out)
        return out[:largest]

    return change


def _step(units: list[bytes], grammar: Grammar, chance: random.Random, mutate: Mutate) -> None:
    at = chance.randrange(len(units) + 1)
    what = chance.randrange(6)
    if what == 0 and grammar.words:
        units.insert(at, chance.choice(grammar.words))
    elif not units:
        return
    elif what == 1:
        units.insert(at, chance.choice(units))
    elif what == 2:
        units.pop(at % len(units))
    elif what == 3:
        other = chance.randrange(len(units))
        units[at % len(units)], units[other] = units[other], units[at % len(units)]
    elif what == 4 and grammar.words:
        units[at % len(units)] = chance.choice(grammar.words)
    else:
        one = units[at % len(units)]
        units[at % len(units)] = mutate(one, len(one) + 64)


# --- HTTP/1.1: lines -----------------------------------------------------------------------------


def _lines(data: bytes) -> list[bytes]:
    return data.splitlines(keepends=True)


def _mend_length(data: bytes) -> bytes:
    """The last Content-Length counts what stands behind its head."""
    head, blank, rest = data.rpartition(b"\r\n\r\n")
    name, colon, value = head.rpartition(b"Content-Length: ")
    if not blank or not colon:
        return data
    return name + colon + b"%d" % len(rest) + value.lstrip(b"0123456789") + blank + rest


HTTP = Grammar(
    _lines,
    (
        b"POST /v2/models/m/infer HTTP/1.1\r\n", b"POST /v2/models/s/infer HTTP/1.1\r\n",
        b"POST /v2/models/r/versions/3/infer HTTP/1.0\r\n", b"GET /v2/models/m HTTP/1.1\r\n",
        b"Host: x\r\n", b"\r\n", b"\n", b"0\r\n\r\n", b"2\r\n{}\r\n", b"2;a=b\r\n{}\r\n",
        b"Content-Length: 0\r\n", b"Content-Length: 2\r\n", b"Content-Length: +2\r\n",
        b"Content-Length: 2, 2\r\n", b"Content-Length: 18446744073709551617\r\n",
        b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: gzip, chunked\r\n",
        b"Transfer-Encoding: identity\r\n", b"Transfer-Encoding : chunked\r\n",
        b"Transfer-Encoding:\r\n chunked\r\n", b"Transfer-Encoding: xchunked\r\n",
        b"Connection: close\r\n", b"Connection: keep-alive\r\n", b"Connection: content-length\r\n",
        b"Connection: host, x-a\r\n", b"Connection: Upgrade, HTTP2-Settings\r\n",
        b"Upgrade: h2c\r\n", b"Upgrade: websocket\r\n", b"Expect: 100-continue\r\n",
        b"Content-Encoding: gzip\r\n", b"Inference-Header-Content-Length: 2\r\n",
        b"Inference-Header-Content-Length: -1\r\n", b"X-A: b\r\n", b" folded\r\n",
        b"Content-Type: application/x-www-form-urlencoded\r\n", b"TE: trailers\r\n",
        b"@stop", b"@unknown", b"@eof", b"@short", b"@chunks", b"@close", b'{"id":"1"}',
        b'{"parameters":{"sequence_id":7}}', b"ffffffffffffffff\r\n", b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 503 X\r\n", b"HTTP/1.1 204 X\r\n",
        b"HTTP/1.0 200 OK\r\n", b'{"model_name":"r--0a1b","model_version":"3"}',
    ),
    _mend_length,
)  # fmt: skip

# --- HTTP/2: frames ------------------------------------------------------------------------------

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def _frames(data: bytes) -> list[bytes]:
    units = []
    if data.startswith(_PREFACE):
        units.append(_PREFACE)
        data = data[len(_PREFACE) :]
    while len(data) >= 9:
        size = 9 + int.from_bytes(data[:3], "big")
        units.append(data[:size])
        data = data[size:]
    return [*units, data] if data else units


def _frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    head = len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big")
    return head + payload


_INFER = (
    b"\x83\x86\x00\x05:path\x25/inference.GRPCInferenceService/ModelInfer"
    b"\x00\x02te\x08trailers\x00\x0ccontent-type\x10application/grpc"
)
_OK = b"\x88\x00\x0ccontent-type\x10application/grpc"
FRAMES = Grammar(
    _frames,
    (
        *(_frame(1, flags, stream, _INFER) for flags in (4, 5, 0) for stream in (1, 3, 5, 7)),
        *(_frame(1, 4, stream, _OK) for stream in (1, 3)),
        *(_frame(1, 5, stream, b"\x00\x0bgrpc-status\x010") for stream in (1, 3)),
        *(_frame(1, 5, stream, _OK + b"\x00\x0bgrpc-status\x0214") for stream in (1, 3)),
        *(_frame(0, flags, stream, b"\0\0\0\0\3\x0a\1m") for flags in (0, 1) for stream in (1, 3)),
        *(_frame(0, 1, stream) for stream in (1, 3)),
        *(_frame(0, 9, stream, b"\2\0\0\0\0\3\x0a\1m\0\0") for stream in (1, 3)),
        *(_frame(3, 0, stream, bytes((0, 0, 0, code))) for stream in (1, 3) for code in (0, 7, 8)),
        *(_frame(8, 0, stream, bytes((0, 0, 1, 0))) for stream in (0, 1, 3)),
        *(_frame(8, 0, stream, b"\x7f\xff\xff\xff") for stream in (0, 1, 3)),
        _frame(4, 0, 0), _frame(4, 1, 0), _frame(4, 0, 0, b"\0\4\0\0\0\0"),
        _frame(4, 0, 0, b"\0\4\0\0\0\x10"), _frame(4, 0, 0, b"\0\4\x7f\xff\xff\xff"),
        _frame(4, 0, 0, b"\0\1\0\0\0\0"), _frame(4, 0, 0, b"\0\5\0\0\x40\0"),
        _frame(4, 0, 0, b"\0\3\0\0\0\1"), _frame(6, 0, 0, bytes(8)), _frame(6, 1, 0, bytes(8)),
        _frame(7, 0, 0, bytes(8)), _frame(7, 0, 0, b"\0\0\0\1\0\0\0\0"),
        _frame(7, 0, 0, b"\x7f\xff\xff\xff\0\0\0\0"), _frame(9, 4, 1, b"\x88"), _frame(9, 0, 1),
        _frame(2, 0, 1, b"\0\0\0\1\0"), _frame(2, 0, 3, b"\0\0\0\0\0"), _frame(5, 4, 1, bytes(4)),
        _frame(99, 0, 0, b"unknown"),
    ),
    lambda data: b"".join(map(_mend_frame, _frames(data))),
)  # fmt: skip


def _mend_frame(unit: bytes) -> bytes:
    return (
        unit if unit == _PREFACE or len(unit) < 9 else (len(unit) - 9).to_bytes(3, "big") + unit[3:]
    )


# --- protobuf: fields ----------------------------------------------------------------------------


def _fields(data: bytes) -> list[bytes]:
    """Top-level fields of protobuf with short lengths; what is not such a field is one unit."""
    units = []
    while len(data) >= 2:
        kind = data[0] & 7
        size = {0: 2, 1: 9, 2: 2 + data[1], 5: 5}.get(kind, len(data))
        units.append(data[:size])
        data = data[size:]
    return [*units, data] if data else units


def _mend_field(unit: bytes) -> bytes:
    is_short = len(unit) >= 2 and unit[0] & 7 == 2 and len(unit) < 130
    return unit[:1] + bytes((len(unit) - 2,)) + unit[2:] if is_short else unit


PROTOBUF = Grammar(
    _fields,
    (b"\x0a\1m", b"\x12\0011", b"\x12\0", b"\x1a\2id", b"\x8a\0\1n", b"\x92\x80\0\0012",
     b"\x22\x11\x0a\x0bsequence_id\x12\2\x10\7", b"\x22\x12\x0a\x0bsequence_id\x12\3\x1a\1x",
     b"\x22\x0d\x0a\x0bsequence_id", b"\x3a\4data", b"\x08\1", b"\x2b\x2c", b"\x0d1234"),
    lambda data: b"".join(map(_mend_field, _fields(data))),
)  # fmt: skip

GRAMMARS = {
    "http-requests": HTTP,
    "http-answers": HTTP,
    "http-paths": HTTP,
    "grpc-clients": FRAMES,
    "grpc-tritons": FRAMES,
    "protobuf": PROTOBUF,
    "names": PROTOBUF,
}
