"""The rows of the table: what is sent, how many at a time, by which generator, to which upstream.

Most HTTP calls go to a cheap upstream: a real Triton answers a third as many a second, so it would
be the bottleneck and hide the differences between the proxies. gRPC goes to a real Triton with a
backend that does nothing, and once to a cheap upstream.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from loadtests.bench import payloads
from loadtests.bench.clients import Clients
from loadtests.bench.generators import Generator, H2load, Wrk
from loadtests.bench.replay import Replay

KIB, MIB = 1 << 10, 1 << 20
IMAGE = 3 * 224 * 224 * 4  # bytes: one picture as FP32, the 602 KB of the table


@dataclass(frozen=True, slots=True)
class Row:
    """One row; sizes in bytes, of the tensor that is sent or of the answer's body."""

    name: str
    title: str
    protocol: str  # "http" or "grpc"
    size: int
    concurrency: int = 16
    encoding: str = "binary"  # of the tensor over HTTP: "binary" or "json"
    answer: int = 0  # 0: the small answer
    trace: bool = False  # a fresh traceparent for every call
    by: str = "tool"  # wrk or h2load; "clients": Triton's own; "replay": recorded frames
    upstream: str = "cheap"  # or "triton"
    quick: bool = False  # whether it belongs to the quick run, too
    stretch: int = 1  # of a run's length: what is in flight at its end is paid for and not counted


def _http(name: str, title: str, size: int, **more: object) -> Row:
    return Row(f"http-{name}", f"HTTP {title}", "http", size, **more)  # type: ignore[arg-type]


def _grpc(name: str, title: str, size: int, **more: object) -> Row:
    more = {"upstream": "triton", **more}
    return Row(f"grpc-{name}", f"gRPC {title}", "grpc", size, **more)  # type: ignore[arg-type]


ROWS: tuple[Row, ...] = (
    _http("64B", "64 B", 64, quick=True),
    _http("64B-json", "64 B, JSON", 64, encoding="json"),
    _http("64B-trace", "64 B, fresh traceparent", 64, trace=True),
    _http("64B-clients", "64 B, tritonclient × 4", 64, by="clients", concurrency=4),
    _http("16KiB", "16 KiB", 16 * KIB, quick=True),
    _http("16KiB-json", "16 KiB, JSON", 16 * KIB, encoding="json"),
    _http("602KB", "602 KB", IMAGE, quick=True),
    _http("4MiB", "4 MiB", 4 * MIB, concurrency=8, stretch=2, quick=True),
    _http("64MiB", "64 MiB", 64 * MIB, concurrency=2, stretch=3),
    _http("answer-602KB", "answer of 602 KB", 64, answer=IMAGE),
    _http("answer-4MiB", "answer of 4 MiB", 64, answer=4 * MIB, concurrency=8, stretch=2),
    _http("answer-64MiB", "answer of 64 MiB", 64, answer=64 * MIB, concurrency=2, stretch=3),
    _grpc("64B-cheap", "64 B, cheap upstream", 64, upstream="cheap"),
    _http("64B-triton", "64 B to a real Triton", 64, upstream="triton"),
    _grpc("64B", "64 B", 64, quick=True),
    _grpc("64B-trace", "64 B, fresh traceparent", 64, trace=True, by="replay", quick=True),
    _grpc("64B-clients", "64 B, grpcio × 4", 64, by="clients", concurrency=4),
    _grpc("64B-clients-trace", "64 B, grpcio × 4, fresh traceparent", 64, by="clients",
          concurrency=4, trace=True),
    _grpc("64KiB", "64 KiB", 64 * KIB, quick=True),
    _grpc("4MiB", "4 MiB", 4 * MIB, concurrency=8, quick=True),
)  # fmt: skip


def choose(only: Sequence[str], *, quick: bool) -> tuple[Row, ...]:
    """The rows to run; a name that is not known raises ValueError."""
    known = {row.name: row for row in ROWS}
    if unknown := [name for name in only if name not in known]:
        raise ValueError(f"unknown rows: {', '.join(unknown)}; allowed: {', '.join(known)}")
    if only:
        return tuple(row for row in ROWS if row.name in only)
    return tuple(row for row in ROWS if row.quick or not quick)


def payload(row: Row) -> payloads.Payload:
    """What the row sends over HTTP."""
    make = payloads.json_tensor if row.encoding == "json" else payloads.binary_tensor
    made = make(row.size)
    if not row.answer:
        return made
    return payloads.Payload(made.body, (*made.fields, ("answer-bytes", str(row.answer))))


def generator(row: Row, folder: Path, pin: tuple[str, ...]) -> Generator:
    """What makes the row's calls; `folder` is for its files, `pin` goes before its command."""
    if row.by == "clients":
        return Clients(row.protocol, row.size, row.concurrency, pin=pin, trace=row.trace)
    if row.by == "replay":
        return Replay(row.size, row.concurrency, pin=pin)
    if row.protocol == "grpc":
        message = payloads.grpc_message(row.size)
        return H2load(message, folder, row.concurrency, pin=pin)
    return Wrk(payload(row), folder, row.concurrency, pin=pin, trace=row.trace)
