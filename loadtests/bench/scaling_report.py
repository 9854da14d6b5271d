"""Writes the newest results of `loadtests.bench.scaling` into docs/autoscaling.md, with a picture.

    python -m loadtests.bench.scaling_report [RESULTS.json] [--print]
    python -m loadtests.bench.scaling_report --equal RESULTS.json…

The second writes what others cost at equal lateness, a table for each file.
"""

import argparse
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from loadtests.bench.results import latest
from loadtests.bench.scaling_goals import Equal, equals, goals
from loadtests.bench.start import ROOT
from serve.workbench.simulator.cli.fronts_picture import svg
from serve.workbench.simulator.comparison import ORACLE, OURS, SimulationResult
from serve.workbench.simulator.fronts import FrontPoint, points

PAGE = ROOT / "docs" / "autoscaling.md"
PICTURE = ROOT / "docs" / "images" / "scaling-fronts.svg"
TITLE = "Late calls by GPU-hours ÷ the oracle's"


def main() -> None:
    """Read, write, and say where."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("results", nargs="?", type=Path, default=None)
    parser.add_argument("--print", action="store_true", help="print the page, and do not write it")
    parser.add_argument(
        "--equal", nargs="*", type=Path, default=(), help="results of the runs at equal lateness"
    )
    asked = parser.parse_args()
    if asked.equal:
        _write("equal", [line for path in asked.equal for line in _equal(path)], asked.print)
        return
    path = asked.results or latest("scaling")
    if path is None:
        raise SystemExit("there are no results: python -m loadtests.bench.scaling")
    found = json.loads(path.read_text())
    those = points(SimulationResult(**one) for one in found["results"])
    if not asked.print:
        PICTURE.write_text(svg(those, TITLE))
        print(f"wrote {PICTURE.relative_to(ROOT)}")
    _write("measured", _section(found, those), asked.print)


def _write(name: str, lines: Iterable[str], is_print: bool) -> None:
    """Between the page's marks of this name, or only to the terminal."""
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    section = "\n".join([begin, *lines, end])
    if is_print:
        print(section)
        return
    text = PAGE.read_text()
    if begin not in text:
        raise SystemExit(f"{PAGE.name} has no line {begin}")
    PAGE.write_text(re.sub(f"{begin}.*{end}", lambda _: section, text, flags=re.DOTALL))
    print(f"wrote {PAGE.relative_to(ROOT)}")


def _equal(path: Path) -> Iterator[str]:
    """What everybody else costs with as few late calls as this policy had."""
    found = json.loads(path.read_text())
    yield ""
    yield _measured(found)
    yield ""
    yield (
        "| load | servegate: late @ cost | oracle: late | hpa-calls | hpa-utilisation "
        "| fixed, in hindsight | fixed, by the first half |"
    )
    yield "|---|---|---|---|---|---|---|"
    for one in equals(points(SimulationResult(**each) for each in found["results"])):
        yield _equal_row(one)
    yield ""


def _equal_row(one: Equal) -> str:
    ours = one.ours
    cells = [
        one.load,
        f"{100 * ours.late:.2f} % @ {ours.cost:.2f}",
        f"{100 * one.oracle_late:.2f} %",
        *(_ratio(each) for each in (one.calls, one.utilisation, one.hindsight)),
        f"{100 * one.chosen_late:.2f} % @ × {one.chosen:.2f}",
    ]
    return f"| {' | '.join(cells)} |"


def _ratio(ratio: float) -> str:
    if math.isnan(ratio):
        return "none"
    return f"**× {ratio:.2f}**" if ratio < 1 else f"× {ratio:.2f}"


def _measured(found: Mapping[str, Any]) -> str:
    seeds = found["seeds"]
    return (
        f"Seeds {min(seeds)} to {max(seeds)}, {found['date']}, {found['machine']}. "
        f"{_scene(found['scene'])}"
    )


def _section(found: Mapping[str, Any], those: Sequence[FrontPoint]) -> Iterator[str]:
    yield ""
    yield _measured(found)
    yield ""
    yield "![Late calls by GPU-hours](images/scaling-fronts.svg)"
    yield ""
    yield from _goals(those)
    yield ""
    yield from _cells(those)
    yield ""


def _scene(scene: Mapping[str, Any]) -> str:
    server = scene["server"]
    service = server["service"]
    return (
        f"An execution of b rows takes {1000 * service['fixed']:g} + {1000 * service['per_row']:g}"
        f"·b ms, with {100 * service['scatter']:g} % random variation. A batch has at most "
        f"{server['largest']} rows, the objective is {server['limit']:g} s, a cold start takes "
        f"{server['cold_start']:g} s, and {scene['mean']:g} calls/s arrive on average for "
        f"{scene['seconds'] / 60:g} min."
    )


def _goals(those: Sequence[FrontPoint]) -> Iterator[str]:
    yield "| load | goal | result | |"
    yield "|---|---|---|---|"
    words = {True: "met", False: "**missed**", None: "nothing to compare"}
    for one in goals(those):
        yield f"| {one.load} | {one.wanted} | {one.found} | {words[one.is_met]} |"


def _cells(those: Sequence[FrontPoint]) -> Iterator[str]:
    """Late % @ × the oracle; the usual parameters are bold."""
    loads = list(dict.fromkeys(one.load for one in those))
    rows = list(dict.fromkeys((one.scaler, one.parameter) for one in those))
    found = {(one.load, one.scaler, one.parameter): one for one in those}
    yield (
        "Late calls in per cent @ GPU-hours ÷ the oracle's GPU-hours; "
        "**bold**: the usual parameter."
    )
    yield ""
    yield "| scaler | " + " | ".join(loads) + " |"
    yield "|---|" + "---|" * len(loads)
    for scaler, parameter in rows:
        cells = [_cell(found.get((load, scaler, parameter))) for load in loads]
        yield f"| {scaler} {parameter} | " + " | ".join(cells) + " |"


def _cell(one: FrontPoint | None) -> str:
    if one is None:
        return ""
    text = f"{100 * one.late:.2f} @ {one.cost:.2f}"
    return f"**{text}**" if one.is_usual and one.scaler not in (OURS, ORACLE) else text


if __name__ == "__main__":
    main()
