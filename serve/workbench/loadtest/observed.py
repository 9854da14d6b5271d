"""What the other side says of a run: the gateway, its Tritons, the control plane.

Times are seconds since the run's second 0. What could not be asked is empty, and says why in
`problems`: a run is never refused because somebody does not answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class TritonTimes:
    """What Triton counted during the run for one version of the model, over all replicas.

    Times are means over a request (`queue`, `input`, `infer`, `output`: its compute parts), in
    seconds. `batches`: executions by batch size. Source: Triton's statistics extension.
    """

    version: str
    requests: int
    failures: int
    rows: int
    executions: int
    queue: float
    input: float
    infer: float
    output: float
    batches: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class GatewayTimes:
    """Of the gateway during the run, from its metrics port.

    `whole`: mean seconds from a call's complete head to its complete answer, Triton's share
    included. `added`: `whole` minus Triton's own mean time per request (queue and compute): what
    gateway, network and Triton's front end add. `errors`: failed calls by code. `cpu`: CPU seconds
    of the gateway's processes, `resident`: their largest resident bytes.
    """

    calls: int
    whole: float
    added: float | None
    errors: Mapping[str, int]
    retries: int
    cpu: float
    resident: int


@dataclass(frozen=True, slots=True)
class ObservedSeries:
    """A reading over time: `replica local-0`, `calls in flight`, of `unit`."""

    group: str  # replica | gpu | gateway | control | pool
    of: str  # which replica, GPU, process or pool
    name: str
    unit: str
    seconds: tuple[float, ...]
    values: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class ObservedEvent:
    """Something that happened: an action of the scenario, a change in force, a replica's state."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class ObservedHint:
    """How many replicas a pool should have from a moment on, and why: `reasons` are code and text.

    `what` is the number in words; `is_held`: it is only kept, because too little is known.
    """

    at: float
    pool: str
    desired: int
    what: str
    is_held: bool
    reasons: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Observed:
    """All of it."""

    triton: tuple[TritonTimes, ...] = ()
    gateway: GatewayTimes | None = None
    series: tuple[ObservedSeries, ...] = ()
    marks: tuple[ObservedEvent, ...] = ()
    hints: tuple[ObservedHint, ...] = ()
    problems: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)  # versions of gateway and Tritons, …

    def to_json(self) -> dict[str, Any]:
        """For the report."""
        return asdict(self)

    @classmethod
    def from_json(cls, page: Mapping[str, Any]) -> Observed:
        """What `to_json` has made (keys of mappings are texts in JSON)."""
        return cls(
            triton=tuple(
                TritonTimes(
                    **(one | {"batches": {int(size): n for size, n in one["batches"].items()}})
                )
                for one in page["triton"]
            ),
            gateway=page["gateway"] and GatewayTimes(**page["gateway"]),
            series=tuple(
                ObservedSeries(**(one | {key: tuple(one[key]) for key in ("seconds", "values")}))
                for one in page["series"]
            ),
            marks=tuple(ObservedEvent(**one) for one in page["marks"]),
            hints=tuple(_advice(one) for one in page.get("hints", ())),  # older reports have none
            problems=tuple(page["problems"]),
            facts=dict(page["facts"]),
        )


def _advice(page: Mapping[str, Any]) -> ObservedHint:
    reasons = tuple((str(code), str(text)) for code, text in page["reasons"])
    return ObservedHint(**{**page, "reasons": reasons})
