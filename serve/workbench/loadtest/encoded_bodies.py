"""The bodies of a run: the rows of its inputs cut into calls, encoded for every lane.

A file of many rows becomes many bodies of `--batch` rows, so that a run sends what users send. All
bodies are in memory, in the plan and in every worker: what is too much is refused before it is
built.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from serve.core.errors import Invalid
from serve.tensors.datatypes import Array
from serve.workbench.loadtest.bodies import path_of, payload_of
from serve.workbench.loadtest.plan import Lane, LaneProtocol, Payload, Sequences
from serve.workbench.loadtest.sequences import sequence_marker

MOST = 256 << 20  # bytes of all bodies of a plan


@dataclass(frozen=True, slots=True)
class PreparedCall:
    """The tensors of one call. `expected`: the class that each row should score highest."""

    tensors: Mapping[str, Array]
    rows: int = 1
    expected: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class CallWay:
    """One way of calling. `prefix` is what stands before the path in its URL, often nothing."""

    protocol: LaneProtocol
    address: str
    weight: float = 1.0
    tls: bool = False
    prefix: str = ""


@dataclass(frozen=True, slots=True)
class RequestedVersion:
    """What every call asks for: `version` is empty, a number or a label.

    `output`: whose top class is checked; empty for none. `sequence`: calls of one sequence, 0 for a
    model without state. `headers` go with every call.
    """

    model: str
    version: str
    datatypes: Mapping[str, str]
    output: str = ""
    sequence: int = 0
    headers: tuple[tuple[str, str], ...] = ()


def cut(
    tensors: Mapping[str, Array],
    batched: Collection[str],
    batch: int,
    classes: Array | None = None,
) -> tuple[PreparedCall, ...]:
    """Requests of `batch` rows each; what is left at the end is no request.

    The inputs in `batched` count rows in their first dimension, and one of a single row is repeated
    in all requests; the others go whole into each. Without `batched` there is one request.
    `classes` is an array [rows]. `Invalid` when rows do not fit.
    """
    rows = _rows(tensors, batched)
    if classes is not None and len(classes) != rows:
        raise Invalid(
            f"{len(classes)} expected classes do not match {rows} rows of input",
            try_this="use --expect with one class per row, in the same order",
        )
    if not batched:
        return (PreparedCall(tensors, 1, _classes(classes)),)
    if rows == 1 < batch:
        tensors = {name: _repeated(one, batch, name in batched) for name, one in tensors.items()}
        classes = None if classes is None else np.repeat(classes, batch)
        rows = batch
    if rows < batch:
        raise Invalid(
            f"--batch {batch} needs {batch} rows of input",
            why=f"the input has {rows}; a single row would be repeated",
        )
    return tuple(
        PreparedCall(
            {
                name: one[first : first + batch]
                if name in batched and len(one) == rows
                else _repeated(one, batch, name in batched)
                for name, one in tensors.items()
            },
            batch,
            _classes(None if classes is None else classes[first : first + batch]),
        )
        for first in range(0, rows - batch + 1, batch)
    )


def lanes(
    ways: Sequence[CallWay], requests: Sequence[PreparedCall], asked: RequestedVersion
) -> tuple[Lane, ...]:
    """A lane for each way, with every request in its encoding; `Invalid` for more than `MOST`."""
    raw = sum(one.nbytes for each in requests for one in each.tensors.values())
    _require_room(raw * len(ways), len(requests), len(ways))
    made: list[Lane] = []
    taken = 0
    for way in ways:
        payloads: list[Payload] = []
        for request in requests:
            one = _payload(way.protocol, request, asked)
            payloads.append(one)
            taken += sum(map(len, (one.body, one.first, one.last, one.only)))
            _require_room(taken, len(requests), len(ways))
        made.append(_lane(way, tuple(payloads), asked))
    return tuple(made)


def _lane(way: CallWay, payloads: tuple[Payload, ...], asked: RequestedVersion) -> Lane:
    length, marker = asked.sequence, sequence_marker
    return Lane(
        name=str(way.protocol),
        protocol=way.protocol,
        address=way.address,
        path=way.prefix + path_of(way.protocol, asked.model, asked.version),
        payloads=payloads,
        weight=way.weight,
        headers=asked.headers,
        tls=way.tls,
        sequences=Sequences(length, marker(way.protocol)) if length else None,
    )


def _payload(protocol: LaneProtocol, request: PreparedCall, asked: RequestedVersion) -> Payload:
    return payload_of(
        protocol,
        asked.model,
        asked.version,
        request.tensors,
        asked.datatypes,
        expected=request.expected,
        output=asked.output,
        sequences=bool(asked.sequence),
        rows=request.rows,
    )


def _require_room(count: int, requests: int, ways: int) -> None:
    if count <= MOST:
        return
    ways_text = f" for {ways} protocols" if ways > 1 else ""
    raise Invalid(
        f"the request bodies of this run need more than {MOST >> 20} MiB",
        why=f"each worker keeps {requests} requests{ways_text} in memory",
        try_this="use fewer rows of input, fewer --random-bodies, or one protocol at a time",
    )


def _rows(tensors: Mapping[str, Array], batched: Collection[str]) -> int:
    """How many rows the inputs have together; inputs of a single row fit any number."""
    counts = {name: len(one) for name, one in tensors.items() if name in batched}
    several = {name: count for name, count in counts.items() if count != 1}
    if len(set(several.values())) > 1:
        told = ", ".join(f"{name} has {count}" for name, count in several.items())
        raise Invalid("the inputs have different numbers of rows", why=told)
    return max(several.values(), default=1)


def _repeated(array: Array, batch: int, is_batched: bool) -> Array:
    return np.repeat(array, batch, axis=0) if is_batched and len(array) == 1 else array


def _classes(array: Any) -> tuple[int, ...] | None:
    return None if array is None else tuple(int(one) for one in array)
