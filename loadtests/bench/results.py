"""Everything that one run has found, and its JSON form under `loadtests/results/`."""

import dataclasses
import datetime
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loadtests.bench import machine
from loadtests.bench.footprint import Footprint
from loadtests.bench.measuring import Measured, Plan
from loadtests.bench.rounds import Line, Ratio
from loadtests.bench.rows import Row
from loadtests.bench.start import ROOT
from loadtests.bench.streaming import Streamed

FOLDER = ROOT / "loadtests" / "results"


@dataclass(frozen=True, slots=True)
class Results:
    """One run. `problems` are sentences; a run with any is not to be published."""

    date: str
    machine: str
    software: tuple[str, ...]
    plan: Plan
    duties: tuple[str, ...]
    measured: tuple[Measured, ...]
    streamed: tuple[Streamed, ...]
    footprints: tuple[Footprint, ...]
    shares: Mapping[int, int]
    problems: tuple[str, ...]

    def save(self, path: Path) -> None:
        """Write the JSON form; the folder is made."""
        write_page(path, dataclasses.asdict(self))

    @classmethod
    def load(cls, path: Path) -> "Results":
        """Read what `save` has written."""
        return cls.parse(json.loads(path.read_text()))

    @classmethod
    def parse(cls, page: dict[str, Any]) -> "Results":
        """From the JSON form."""
        return cls(
            **{
                **page,
                "software": tuple(page["software"]),
                "duties": tuple(page["duties"]),
                "plan": Plan(**page["plan"]),
                "measured": tuple(_measured(one) for one in page["measured"]),
                "streamed": tuple(Streamed(**one) for one in page["streamed"]),
                "footprints": tuple(Footprint(**one) for one in page["footprints"]),
                "shares": {int(version): calls for version, calls in page["shares"].items()},
                "problems": tuple(page["problems"]),
            }
        )


def save_measured(measured: Measured, path: Path) -> None:
    """Write a single row, with its date and machine."""
    page = {"date": today(), "machine": machine.describe(), **dataclasses.asdict(measured)}
    write_page(path, page)


def load_measured(path: Path) -> Measured:
    """Read what `save_measured` has written."""
    return _measured(json.loads(path.read_text()))


def today() -> str:
    """The date, as ISO 8601 writes it."""
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def latest(kind: str) -> Path | None:
    """The newest results of "dataplane" or "kserve"; None when there are none."""
    found = sorted(FOLDER.glob(f"{kind}-*.json"), key=lambda path: path.stat().st_mtime)
    return found[-1] if found else None


def write_page(path: Path, page: dict[str, Any]) -> None:
    """Write any results; the folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(page, indent=1) + "\n")


def _measured(page: dict[str, Any]) -> Measured:
    lines = tuple(_line(line) for line in page["lines"])
    return Measured(Row(**page["row"]), lines, page["others"])


def _line(page: dict[str, Any]) -> Line:
    ratios = {name: page[name] and Ratio(**page[name]) for name in ("rate_ratio", "cpu_ratio")}
    return Line(**{**page, **ratios})
