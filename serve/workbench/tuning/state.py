"""The state of a tuning: every measurement, kept in a folder after each, so that it can go on.

<folder>/state.json     what was measured, and how far the search is
<folder>/report.json    what came out of it, when it is over
<folder>/report.html    the same as a page
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from serve.capacity.measurements import Ask, Calibration, Measured, OpenLoopTrial
from serve.capacity.search import Halving
from serve.capacity.setup import BatchSetup
from serve.core.errors import Invalid, NotFound
from serve.core.objectives import Objective
from serve.workbench.tuning.confirmation import Duel

FORMAT = 1
FOLDER = Path("tune-reports")
_STATE = "state.json"


@dataclass(frozen=True, slots=True)
class TuningSubject:
    """What is tuned: `config` is in force with `fields`, in the JSON form of `ModelConfig`.

    `rows` tells the sizes of calls and their shares, as asked; `load` where calls come from.
    """

    model: str
    version: int
    objective: str
    rows: str
    load: str
    replica: str
    config: Mapping[str, Any]
    fields: Mapping[str, Any]

    @property
    def target(self) -> Objective:
        """The objective as a value."""
        return Objective.parse(self.objective)


@dataclass(frozen=True, slots=True)
class MeasurementEntry:
    """One measurement, for the report. `rate` is what was asked, 0 in a closed loop of `callers`.

    `passed` is None where no objective was asked. `latency` is at its quantile. Times in seconds;
    `at` since the tuning was begun. `why` says why nothing could be measured.
    """

    at: float
    step: str
    setup: BatchSetup
    rate: float = 0.0
    callers: int = 0
    achieved: float = math.nan
    latency: float = math.nan
    p50: float = math.nan
    p99: float = math.nan
    rows_per_execution: float = math.nan
    errors: int = 0
    passed: bool | None = None
    doubt: str = ""
    repeated: bool = False
    why: str = ""

    def to_json(self) -> dict[str, Any]:
        """For a file; JSON has no nan."""
        return {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in asdict(self).items()
        }

    @classmethod
    def from_json(cls, page: Mapping[str, Any]) -> MeasurementEntry:
        """What `to_json` has made."""
        known: dict[str, Any] = {
            name: math.nan if value is None else value for name, value in page.items()
        }
        known["passed"] = page["passed"]
        known["setup"] = setup_from(page["setup"])
        return cls(**known)


@dataclass(slots=True)
class TuningState:
    """How far it is. `spent`: seconds of all sessions. `notes` are sentences for the report.

    `rival` is the setup that the duel holds against the present one.
    """

    subject: TuningSubject
    search: Halving
    begun: str
    duel: Duel | None = None
    rival: BatchSetup | None = None
    entries: list[MeasurementEntry] = field(default_factory=list)
    spent: float = 0.0
    notes: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """For the file."""
        return {
            "format": FORMAT,
            "subject": asdict(self.subject),
            "begun": self.begun,
            "search": self.search.to_json(),
            "duel": self.duel and self.duel.to_json(),
            "rival": self.rival and asdict(self.rival),
            "entries": [each.to_json() for each in self.entries],
            "spent": self.spent,
            "notes": self.notes,
        }

    def save(self, folder: Path) -> None:
        """Write it, whole or not at all."""
        folder.mkdir(parents=True, exist_ok=True)
        draft = folder / f".{_STATE}.{os.getpid()}"
        draft.write_text(json.dumps(self.to_json(), separators=(",", ":")))
        draft.replace(folder / _STATE)

    @classmethod
    def read(cls, folder: Path) -> TuningState:
        """Go on with what is in a folder; `NotFound` or `Invalid` where nothing can be read."""
        try:
            page = json.loads((folder / _STATE).read_text())
        except OSError as error:
            raise NotFound(
                f"{folder} contains no tuning to resume",
                why=error.strerror or str(error),
                try_this="leave out --resume",
            ) from error
        except ValueError as error:
            raise Invalid(f"the state in {folder} is damaged", why=str(error)) from error
        try:
            if page["format"] != FORMAT:
                raise Invalid(
                    f"the state in {folder} was written by another version of Servegate",
                    try_this="leave out --resume",
                )
            return cls(
                TuningSubject(**page["subject"]),
                Halving.from_json(page["search"]),
                str(page["begun"]),
                page["duel"] and Duel.from_json(page["duel"]),
                page["rival"] and setup_from(page["rival"]),
                [MeasurementEntry.from_json(each) for each in page["entries"]],
                float(page["spent"]),
                [str(each) for each in page["notes"]],
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise Invalid(f"the state in {folder} is damaged", why=repr(error)) from error


def entry_of(at: float, ask: Ask, measured: Measured, objective: Objective) -> MeasurementEntry:
    """A measurement as an entry."""
    entry = MeasurementEntry(
        at,
        step_of(ask),
        ask.setup,
        achieved=measured.rate,
        latency=measured.latency,
        p50=measured.p50,
        p99=measured.p99,
        rows_per_execution=measured.rows_per_execution,
        errors=measured.errors,
    )
    page = {name: getattr(entry, name) for name in MeasurementEntry.__slots__}
    if isinstance(ask, Calibration):
        return MeasurementEntry(**(page | {"callers": ask.callers}))
    if not isinstance(ask, OpenLoopTrial):
        return MeasurementEntry(**(page | {"rate": ask.rate}))
    return MeasurementEntry(
        **(page | {"rate": ask.rate, "passed": measured.passes(ask.rate, objective)})
    )


def step_of(ask: Ask) -> str:
    """What an ask is for, for people."""
    return ask.step or "trial" if isinstance(ask, OpenLoopTrial) else "calibration"


def setup_from(page: Mapping[str, Any]) -> BatchSetup:
    """A setup that was written as JSON."""
    return BatchSetup(**(dict(page) | {"preferred": tuple(page["preferred"])}))
