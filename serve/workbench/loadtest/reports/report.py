"""A report: one run, or several that belong together, with everything to draw and compare them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from serve.core.errors import Invalid
from serve.workbench.loadtest.observed import Observed
from serve.workbench.loadtest.record import Record

FORMAT = 1


@dataclass(frozen=True, slots=True)
class LoadRun:
    """One run. `label` tells it from its siblings: `200 calls/s`, `batch 8`, `direct, round 2`.

    `outline` is the plan's. `objective` is the text that was asked (`p99<20ms,errors<0.1%`), or
    empty. `workers`: generator processes.
    """

    label: str
    outline: Mapping[str, Any]
    record: Record
    observed: Observed = field(default_factory=Observed)
    objective: str = ""
    workers: int = 1

    @property
    def seconds(self) -> float:
        """How long it was meant to be."""
        return float(self.outline["seconds"])

    @property
    def is_open(self) -> bool:
        """Whether starts were planned, and latencies are from them."""
        return self.outline["arrivals"] is not None

    def to_json(self) -> dict[str, Any]:
        """For the file."""
        return {
            "label": self.label,
            "outline": dict(self.outline),
            "record": self.record.to_json(),
            "observed": self.observed.to_json(),
            "objective": self.objective,
            "workers": self.workers,
        }

    @classmethod
    def from_json(cls, page: Mapping[str, Any]) -> LoadRun:
        """What `to_json` has made."""
        return cls(
            label=str(page["label"]),
            outline=page["outline"],
            record=Record.from_json(page["record"]),
            observed=Observed.from_json(page["observed"]),
            objective=str(page["objective"]),
            workers=int(page["workers"]),
        )


@dataclass(frozen=True, slots=True)
class Sweep:
    """A value that several runs differ in, against what was measured, with 95 % intervals.

    `runs` of the report are in the order of `xs` where they belong to it. `best`: the x that was
    looked for, None where nothing was, or was found.
    """

    x: str
    y: str
    xs: tuple[float, ...]
    ys: tuple[float, ...]
    lows: tuple[float, ...] = ()
    highs: tuple[float, ...] = ()
    best: float | None = None


@dataclass(frozen=True, slots=True)
class LoadReport:
    """What is kept of a load test.

    `name`: its folder, `20261122-101500-digits-smoke`. `begun`: ISO 8601, UTC. `command`: how to
    do the same again, without secrets. `findings`: sentences, the most important first. `passed`:
    of all objectives and of the scenario's own; None where nothing was asked.
    """

    name: str
    title: str
    scenario: str
    model: str
    begun: str
    command: str
    runs: tuple[LoadRun, ...]
    findings: tuple[str, ...] = ()
    passed: bool | None = None
    sweep: Sweep | None = None
    machine: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """For the file."""
        sweep = self.sweep
        return {
            "format": FORMAT,
            "name": self.name,
            "title": self.title,
            "scenario": self.scenario,
            "model": self.model,
            "begun": self.begun,
            "command": self.command,
            "findings": list(self.findings),
            "passed": self.passed,
            "sweep": sweep
            and {
                "x": sweep.x,
                "y": sweep.y,
                "xs": list(sweep.xs),
                "ys": list(sweep.ys),
                "lows": list(sweep.lows),
                "highs": list(sweep.highs),
                "best": sweep.best,
            },
            "machine": self.machine,
            "versions": dict(self.versions),
            "runs": [each.to_json() for each in self.runs],
        }

    @classmethod
    def from_json(cls, page: Any) -> LoadReport:
        """What `to_json` has made. Raises `Invalid` for anything else."""
        if not isinstance(page, dict) or page.get("format") != FORMAT:
            raise Invalid(
                "this is not a load report of this format",
                why=f'a report contains "format": {FORMAT}',
                try_this="use a report.json that servegate load run wrote",
            )
        try:
            sweep = page.get("sweep")
            return cls(
                name=str(page["name"]),
                title=str(page["title"]),
                scenario=str(page["scenario"]),
                model=str(page["model"]),
                begun=str(page["begun"]),
                command=str(page["command"]),
                runs=tuple(map(LoadRun.from_json, page["runs"])),
                findings=tuple(map(str, page["findings"])),
                passed=page["passed"],
                sweep=sweep and _sweep(sweep),
                machine=str(page["machine"]),
                versions=page["versions"],
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise Invalid("the load report is damaged", why=repr(error)) from error


def _sweep(page: Mapping[str, Any]) -> Sweep:
    xs, ys, lows, highs = (tuple(page[key]) for key in ("xs", "ys", "lows", "highs"))
    return Sweep(str(page["x"]), str(page["y"]), xs, ys, lows, highs, page["best"])
