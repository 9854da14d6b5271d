"""The report of a tuning: one JSON file with everything, and the page that is made from it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from serve.workbench.tuning.outcome import TuningOutcome
from serve.workbench.tuning.state import FORMAT, TuningState

REPORT, PAGE = "report.json", "report.html"


def document(
    state: TuningState,
    outcome: TuningOutcome,
    *,
    command: str,
    machine: str,
    versions: Mapping[str, str],
) -> dict[str, Any]:
    """All of it, as JSON: nan and infinity are null."""
    subject, best, service = state.subject, outcome.best, state.search.service
    page = {
        "format": FORMAT,
        "model": subject.model,
        "version": subject.version,
        "objective": subject.objective,
        "rows": subject.rows,
        "load": subject.load,
        "replica": subject.replica,
        "begun": state.begun,
        "seconds": state.spent,
        "measurements": len(state.entries),
        "verdict": outcome.verdict,
        "gain": outcome.is_gain,
        "present": asdict(outcome.present) | {"text": str(outcome.present)},
        "best": best and asdict(best) | {"setup": asdict(best.setup) | {"text": str(best.setup)}},
        "compared": asdict(outcome.compared),
        "change": {
            "fields": dict(outcome.fields) if outcome.is_gain else {},
            "command": outcome.command(subject),
            "config.pbtxt": list(outcome.lines(subject)),
        },
        "service": service
        and {"fixed": service.fixed, "per_row": service.per_row, "scatter": service.scatter},
        "overhead": state.search.overhead,
        "standings": [
            asdict(each) | {"setup": asdict(each.setup) | {"text": str(each.setup)}}
            for each in state.search.standings
        ],
        "entries": [
            each.to_json() | {"setup": asdict(each.setup) | {"text": str(each.setup)}}
            for each in state.entries
        ],
        "notes": [*state.notes, *(best.notes if best else ())],
        "command": command,
        "machine": machine,
        "versions": dict(versions),
    }
    found: dict[str, Any] = _finite(page)
    return found


def keep(page: Mapping[str, Any], folder: Path) -> Path:
    """Write both files; the page's path."""
    from serve.workbench.tuning.page import render

    folder.mkdir(parents=True, exist_ok=True)
    (folder / REPORT).write_text(json.dumps(page, indent=1), "utf-8")
    (folder / PAGE).write_text(render(page), "utf-8")
    return folder / PAGE


def _finite(value: Any) -> Any:
    """The same without what JSON cannot say."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): _finite(each) for name, each in value.items()}
    return [_finite(each) for each in value] if isinstance(value, list | tuple) else value
