"""What a run does: which calls, to where, when they should start, and for how long.

A plan is complete: a worker on another machine needs nothing but its JSON. Times are in seconds.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class LaneProtocol(StrEnum):
    """How a lane speaks."""

    HTTP_JSON = "http-json"  # KServe v2, tensors as JSON
    HTTP_BINARY = "http-binary"  # KServe v2, tensors as bytes behind the JSON
    GRPC = "grpc"  # KServe v2, ModelInfer
    GRPC_STREAM = "grpc-stream"  # KServe v2, ModelStreamInfer, one call after the other
    TFSERVING = "tfserving"  # TensorFlow Serving's REST predict


@dataclass(frozen=True, slots=True)
class Payload:
    """One request body, encoded for its lane's protocol.

    `headers`: what belongs to the body (`Inference-Header-Content-Length`); empty for gRPC.
    `rows`: rows of its batch, at least 1. `expected`: the class of each row that `output` should
    score highest, None where answers are not checked. `first` and `last` are the same body with
    the flags of a sequence's start and end, `only` with both, for sequences of one call; they are
    as long as `body`, and empty unless the lane has sequences.
    """

    body: bytes
    headers: tuple[tuple[str, str], ...] = ()
    rows: int = 1
    expected: tuple[int, ...] | None = None
    output: str = ""
    first: bytes = b""
    last: bytes = b""
    only: bytes = b""

    def to_json(self) -> dict[str, Any]:
        """Bodies are base64."""
        return {
            "body": _text(self.body),
            "headers": [list(pair) for pair in self.headers],
            "rows": self.rows,
            "expected": None if self.expected is None else list(self.expected),
            "output": self.output,
            "first": _text(self.first),
            "last": _text(self.last),
            "only": _text(self.only),
        }

    @classmethod
    def from_json(cls, page: Mapping[str, Any]) -> Payload:
        """What `to_json` has made."""
        return cls(
            body=base64.b64decode(page["body"]),
            headers=tuple((str(name), str(value)) for name, value in page["headers"]),
            rows=int(page["rows"]),
            expected=None if page["expected"] is None else tuple(map(int, page["expected"])),
            output=str(page["output"]),
            first=base64.b64decode(page["first"]),
            last=base64.b64decode(page["last"]),
            only=base64.b64decode(page["only"]),
        )


@dataclass(frozen=True, slots=True)
class Sequences:
    """Calls that belong together: so many in a row, with one id, to a model with state.

    `marker` stands in every body where the id belongs, encoded as `sequence_marker` says in
    `serve/workbench/loadtest/sequences.py`, and is replaced by an id of the same length.
    """

    length: int
    marker: bytes


@dataclass(frozen=True, slots=True)
class Lane:
    """One way of calling: of so many calls of a run, `weight` in proportion go this way.

    `address`: host:port. `path`: of the URL for HTTP, of the method for gRPC. `headers`: sent with
    every call, or as gRPC metadata: a key, for example. `tls`: whether the port speaks TLS.
    """

    name: str
    protocol: LaneProtocol
    address: str
    path: str
    payloads: tuple[Payload, ...]
    weight: float = 1.0
    headers: tuple[tuple[str, str], ...] = ()
    tls: bool = False
    sequences: Sequences | None = None

    def to_json(self) -> dict[str, Any]:
        """For a worker."""
        sequences = self.sequences
        return {
            "name": self.name,
            "protocol": str(self.protocol),
            "address": self.address,
            "path": self.path,
            "payloads": [each.to_json() for each in self.payloads],
            "weight": self.weight,
            "headers": [list(pair) for pair in self.headers],
            "tls": self.tls,
            "sequences": sequences
            and {"length": sequences.length, "marker": _text(sequences.marker)},
        }

    @classmethod
    def from_json(cls, page: Mapping[str, Any]) -> Lane:
        """What `to_json` has made."""
        found = page["sequences"]
        return cls(
            name=str(page["name"]),
            protocol=LaneProtocol(page["protocol"]),
            address=str(page["address"]),
            path=str(page["path"]),
            payloads=tuple(map(Payload.from_json, page["payloads"])),
            weight=float(page["weight"]),
            headers=tuple((str(name), str(value)) for name, value in page["headers"]),
            tls=bool(page["tls"]),
            sequences=found and Sequences(int(found["length"]), base64.b64decode(found["marker"])),
        )


class RateShape(StrEnum):
    """How the intended rate moves over a run; `rate` is the plan's rate, d its seconds."""

    CONSTANT = "constant"  # rate
    RAMP = "ramp"  # in a line from `levels[0]` to `levels[1]`
    STEP = "step"  # `levels` one after the other, each for d ÷ len(levels)
    SPIKE = "spike"  # rate, but `levels[0]` × rate from second `at` for `lasting` seconds
    DIURNAL = "diurnal"  # a sine with period `lasting`; mean rate, peak ÷ trough = `levels[0]`
    TRACE = "trace"  # the seconds in `times`, as they are


class Spacing(StrEnum):
    """How starts are laid under the rate."""

    EVEN = "even"  # at equal steps of the rate's integral
    POISSON = "poisson"  # by a Poisson process of that rate: users who know nothing of each other


@dataclass(frozen=True, slots=True)
class Arrivals:
    """When calls should start. `rate` is in calls per second, over all workers."""

    rate: float
    shape: RateShape = RateShape.CONSTANT
    spacing: Spacing = Spacing.POISSON
    levels: tuple[float, ...] = ()
    at: float = 0.0
    lasting: float = 0.0
    times: tuple[float, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """For a worker, and for the report (there without `times`)."""
        return {
            "rate": self.rate,
            "shape": str(self.shape),
            "spacing": str(self.spacing),
            "levels": list(self.levels),
            "at": self.at,
            "lasting": self.lasting,
            "times": list(self.times),
        }

    @classmethod
    def from_json(cls, page: Mapping[str, Any]) -> Arrivals:
        """What `to_json` has made."""
        return cls(
            rate=float(page["rate"]),
            shape=RateShape(page["shape"]),
            spacing=Spacing(page["spacing"]),
            levels=tuple(map(float, page["levels"])),
            at=float(page["at"]),
            lasting=float(page["lasting"]),
            times=tuple(map(float, page.get("times", ()))),
        )


@dataclass(frozen=True, slots=True)
class Closed:
    """The closed loop: `users` who wait for each answer, think, and call again.

    With `rate` the users together aim at so many calls per second, and start late when answers
    are late (locust's constant throughput); 0 means at once after `think` seconds.
    """

    users: int
    think: float = 0.0
    rate: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """For a worker."""
        return {"users": self.users, "think": self.think, "rate": self.rate}

    @classmethod
    def from_json(cls, page: Mapping[str, Any]) -> Closed:
        """What `to_json` has made."""
        return cls(int(page["users"]), float(page["think"]), float(page["rate"]))


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """A whole run: open with `arrivals`, or closed with `closed`; exactly one is set.

    `warm_up`: seconds before second 0, in which calls are made and not recorded. `most`:
    connections or calls in flight of one worker; what arrives beyond waits, and is told as a late
    start. `timeout`: of a call, from its real start.
    """

    lanes: tuple[Lane, ...]
    seconds: float
    arrivals: Arrivals | None = None
    closed: Closed | None = None
    timeout: float = 30.0
    most: int = 1000
    warm_up: float = 0.0
    seed: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)  # for the report: model, …

    def to_json(self) -> dict[str, Any]:
        """Everything, with the bodies."""
        return {
            "lanes": [each.to_json() for each in self.lanes],
            "seconds": self.seconds,
            "arrivals": self.arrivals and self.arrivals.to_json(),
            "closed": self.closed and self.closed.to_json(),
            "timeout": self.timeout,
            "most": self.most,
            "warm_up": self.warm_up,
            "seed": self.seed,
            "labels": dict(self.labels),
        }

    @classmethod
    def from_json(cls, page: Mapping[str, Any]) -> LoadPlan:
        """What `to_json` has made."""
        return cls(
            lanes=tuple(map(Lane.from_json, page["lanes"])),
            seconds=float(page["seconds"]),
            arrivals=page["arrivals"] and Arrivals.from_json(page["arrivals"]),
            closed=page["closed"] and Closed.from_json(page["closed"]),
            timeout=float(page["timeout"]),
            most=int(page["most"]),
            warm_up=float(page["warm_up"]),
            seed=int(page["seed"]),
            labels={str(name): str(value) for name, value in page["labels"].items()},
        )

    def outline(self) -> dict[str, Any]:
        """What a report keeps of it: no bodies, no times, no headers (a key may be in them)."""
        arrivals = self.arrivals and {**self.arrivals.to_json(), "times": []}
        lanes = [
            {
                "name": each.name,
                "protocol": str(each.protocol),
                "address": each.address,
                "path": each.path,
                "weight": each.weight,
                "payloads": len(each.payloads),
                "bytes": max((len(one.body) for one in each.payloads), default=0),
                "rows": max((one.rows for one in each.payloads), default=0),
                "sequence_length": each.sequences.length if each.sequences else 0,
                "checked": any(one.expected is not None for one in each.payloads),
            }
            for each in self.lanes
        ]
        return self.to_json() | {"lanes": lanes, "arrivals": arrivals}


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
