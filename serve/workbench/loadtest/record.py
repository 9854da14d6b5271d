"""What happened: calls by lane, outcome and decision, in windows of a second.

A call belongs to the second in which it was *meant* to start, wherever in time it ended: so a
second in which nothing was answered is seen as such. A worker folds its calls into windows and
tells them as they come; windows of the same second are added, so that any number of workers merge
into the same record.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from serve.workbench.loadtest.histogram import Histogram

RIGHT = ""  # the outcome of a call whose answer is right
NEVER_STARTED = "never_started"  # the run was over before a connection was free
TIMED_OUT = "timeout"
NOT_CONNECTED = "connect"
BROKEN = "reset"  # closed before the answer was whole
WRONG = "wrong_answer"  # well-formed, and not what was expected
MALFORMED = "malformed"
# Others: `http_<status>`, `grpc_<CODE>`, each with `:<code>` behind it where the gateway names one.

LATE = 0.010  # seconds after its intended time at which a start counts as late ("missed")


@dataclass(frozen=True, slots=True)
class CallKey:
    """What calls are told apart by. `lane` is its number in the plan.

    `decision` is the header `servegate-version` as it came (`2; by=split; generation=7`); from a
    bare Triton only the version; empty where no answer told one.
    """

    lane: int
    outcome: str
    decision: str

    @property
    def version(self) -> str:
        """The version that answered, or empty."""
        return self.decision.partition(";")[0].strip()

    @property
    def by(self) -> str:
        """Why that version: `split`, `label:stable`, …; empty without a gateway."""
        for part in self.decision.split(";"):
            name, _, value = part.strip().partition("=")
            if name == "by":
                return value
        return ""


@dataclass(slots=True)
class RecordCell:
    """The calls of one key in one second."""

    latency: Histogram = field(default_factory=Histogram)  # from the intended start to the end
    service: Histogram = field(default_factory=Histogram)  # from the real start to the end
    rows: int = 0

    @property
    def calls(self) -> int:
        """How many."""
        return self.latency.count

    def merge(self, other: RecordCell) -> None:
        """Add another one."""
        self.latency.merge(other.latency)
        self.service.merge(other.service)
        self.rows += other.rows

    def to_json(self) -> dict[str, Any]:
        """For a line or a file."""
        return {
            "latency": self.latency.to_json(),
            "service": self.service.to_json(),
            "rows": self.rows,
        }

    @classmethod
    def from_json(cls, page: Mapping[str, Any]) -> RecordCell:
        """What `to_json` has made."""
        return cls(
            Histogram.from_json(page["latency"]),
            Histogram.from_json(page["service"]),
            int(page["rows"]),
        )


@dataclass(slots=True)
class GeneratorLoad:
    """How the generator itself was, in one second, added up over workers unless told otherwise.

    `lag`: real start − intended start of the calls that were meant to start in this second (open
    loop; empty in the closed one). `ended`: calls that ended in this second of the clock.
    `in_flight`, `waiting`: calls without an answer, and arrivals without a connection, at the
    second's end. `cpu`: CPU seconds that the worker processes used in this second. `busiest`: the
    largest share of one core that a single worker used, 0–1 (the maximum over workers).
    """

    lag: Histogram = field(default_factory=Histogram)
    ended: int = 0
    in_flight: int = 0
    waiting: int = 0
    cpu: float = 0.0
    busiest: float = 0.0

    def merge(self, other: GeneratorLoad) -> None:
        """Add another worker's, or a later message of the same."""
        self.lag.merge(other.lag)
        self.ended += other.ended
        self.in_flight += other.in_flight
        self.waiting += other.waiting
        self.cpu += other.cpu
        self.busiest = max(self.busiest, other.busiest)

    def to_json(self) -> dict[str, Any]:
        """For a line or a file."""
        return {
            "lag": self.lag.to_json(),
            "ended": self.ended,
            "in_flight": self.in_flight,
            "waiting": self.waiting,
            "cpu": self.cpu,
            "busiest": self.busiest,
        }

    @classmethod
    def from_json(cls, page: Mapping[str, Any]) -> GeneratorLoad:
        """What `to_json` has made."""
        return cls(
            Histogram.from_json(page["lag"]),
            int(page["ended"]),
            int(page["in_flight"]),
            int(page["waiting"]),
            float(page["cpu"]),
            float(page["busiest"]),
        )


@dataclass(slots=True)
class RecordWindow:
    """What is known of one second of a run, from one worker or from all."""

    cells: dict[CallKey, RecordCell] = field(default_factory=dict)
    generator: GeneratorLoad = field(default_factory=GeneratorLoad)

    def merge(self, other: RecordWindow) -> None:
        """Add what another worker, or a later message, knows of the same second."""
        for key, cell in other.cells.items():
            self.cells.setdefault(key, RecordCell()).merge(cell)
        self.generator.merge(other.generator)

    def to_json(self) -> dict[str, Any]:
        """For a line or a file."""
        cells = [
            {"lane": key.lane, "outcome": key.outcome, "decision": key.decision, **cell.to_json()}
            for key, cell in self.cells.items()
        ]
        return {"cells": cells, "generator": self.generator.to_json()}

    @classmethod
    def from_json(cls, page: Mapping[str, Any]) -> RecordWindow:
        """What `to_json` has made."""
        cells = {
            CallKey(
                int(one["lane"]), str(one["outcome"]), str(one["decision"])
            ): RecordCell.from_json(one)
            for one in page["cells"]
        }
        return cls(cells, GeneratorLoad.from_json(page["generator"]))


class Record:
    """All windows of a run, by the second; windows of one second are added."""

    def __init__(self) -> None:
        self._windows: dict[int, RecordWindow] = {}

    def __repr__(self) -> str:
        return f"<Record of {len(self._windows)} s>"

    def add(self, second: int, window: RecordWindow) -> None:
        """Take what a worker tells of one second."""
        self._windows.setdefault(second, RecordWindow()).merge(window)

    @property
    def windows(self) -> Mapping[int, RecordWindow]:
        """By second, in order; a second may be missing."""
        return {second: self._windows[second] for second in sorted(self._windows)}

    def cells(self) -> Iterator[tuple[int, CallKey, RecordCell]]:
        """All cells with their seconds."""
        for second, window in self.windows.items():
            for key, cell in window.cells.items():
                yield second, key, cell

    def to_json(self) -> list[dict[str, Any]]:
        """The windows in order, each with its second."""
        return [{"second": second, **each.to_json()} for second, each in self.windows.items()]

    @classmethod
    def from_json(cls, page: Any) -> Record:
        """What `to_json` has made."""
        made = cls()
        for one in page:
            made.add(int(one["second"]), RecordWindow.from_json(one))
        return made
