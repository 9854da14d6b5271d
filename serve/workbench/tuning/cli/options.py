"""What `servegate batching tune` was asked for, and what is refused before anything is measured."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from serve.cli.asked import parse_asked
from serve.cli.client import AdminClient, segment
from serve.cli.output import say
from serve.cli.server import AdminServer
from serve.cli.versions import called_number
from serve.core.errors import Invalid
from serve.core.objectives import Objective
from serve.workbench.loadtest.reports.folder import name_of
from serve.workbench.tuning.measurements import parse_rows
from serve.workbench.tuning.setups import json_of, tunable
from serve.workbench.tuning.state import TuningState, TuningSubject

_LONGEST, _SHORTEST = 8.0, 1.0  # seconds of a short measurement
_SHARE = 60  # short measurements in a budget


@dataclass(frozen=True, slots=True)
class TuningRequest:
    """What was asked. `budget` in seconds; `watch` is None where nothing is to be applied."""

    asked: str
    objective: str
    budget: float
    replica: str
    trace: Path | None
    inputs: tuple[str, ...]
    rows: str
    instances: str
    max_batch: int
    resume: Path | None
    out: Path
    watch: float | None
    admin: AdminServer
    key_file: Path | None
    command: str

    @property
    def unit(self) -> float:
        """Seconds of a short measurement."""
        return min(_LONGEST, max(_SHORTEST, self.budget / _SHARE))


@dataclass(frozen=True, slots=True)
class PreparedTuning:
    """What is known before anything is measured. `page` is the serving configuration."""

    wish: TuningRequest
    admin: AdminClient
    model: str
    number: int
    objective: Objective
    page: Mapping[str, Any]
    resumed: TuningState | None
    folder: Path

    @property
    def path(self) -> str:
        """Of the serving configuration, in the admin API."""
        return f"/api/models/{segment(self.model)}/versions/{self.number}/serving-configuration"

    @property
    def rows(self) -> str:
        """The sizes of calls, as they were asked when it was begun."""
        return self.resumed.subject.rows if self.resumed else self.wish.rows

    def say_how_to_go_on(self) -> None:
        """Tell it where something was measured."""
        if (self.folder / "state.json").exists():
            say(f"to continue this search: servegate batching tune … --resume {self.folder}")


def prepare(wish: TuningRequest, admin: AdminClient) -> PreparedTuning:
    """Everything that can be refused before a Triton is started."""
    if wish.budget <= 0:
        raise Invalid("--budget has to be above 0", try_this="--budget 5m")
    asked = parse_asked(wish.asked)
    resumed = TuningState.read(wish.resume) if wish.resume else None
    number = called_number(admin, asked)
    told = wish.objective or (resumed.subject.objective if resumed else "")
    told = told or str(admin.get(f"/api/models/{segment(asked.model)}")["objective"])
    if not told:
        raise Invalid(
            f"model '{asked.model}' has no objective",
            why="the search needs one",
            try_this="--slo 'p99<50ms'",
        )
    objective = Objective.parse(told)
    parse_rows(wish.rows)
    numbers_of(wish.instances)
    now = datetime.now(UTC)
    folder = wish.resume or wish.out / name_of(now, wish.asked, "tune")
    prepared = PreparedTuning(wish, admin, asked.model, number, objective, {}, resumed, folder)
    page = admin.get(prepared.path)
    tunable(asked.model, json_of(str(page["config"])))
    if resumed is not None:
        _require_same(resumed.subject, prepared, page)
    return PreparedTuning(wish, admin, asked.model, number, objective, page, resumed, folder)


def _require_same(subject: TuningSubject, now: PreparedTuning, page: Mapping[str, Any]) -> None:
    """`Invalid` where a tuning goes on with something else than it began with."""
    other = ""
    if (subject.model, subject.version) != (now.model, now.number):
        other = f"it is for {subject.model}@{subject.version}"
    elif subject.objective != str(now.objective):
        other = f"its objective is {subject.objective}"
    elif dict(subject.fields) != dict(page["fields"]):
        other = "the configuration has changed since"
    if other:
        raise Invalid(
            f"the search in '{now.folder}' cannot continue",
            why=other,
            try_this="start a new one without --resume",
        )


def numbers_of(text: str) -> frozenset[int]:
    """Read `1,2`."""
    try:
        found = frozenset(int(part) for part in text.split(","))
    except ValueError:
        found = frozenset()
    if not found or min(found) < 1:
        raise Invalid(f"--instances cannot be '{text}'", try_this="--instances 1,2")
    return found
