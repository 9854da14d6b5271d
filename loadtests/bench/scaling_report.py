"""Writes the newest results of `loadtests.bench.scaling` into docs/autoscaling.md, with a picture.

python -m loadtests.bench.scaling_report [RESULTS.json] [--print]
"""

import argparse
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from loadtests.bench.results import latest
from loadtests.bench.scaling_goals import goals
from loadtests.bench.start import ROOT
from serve.capacity.fleets.comparing import ORACLE, OURS, Result
from serve.capacity.fleets.fronts import Point, points
from serve.cli.hints.fronts_picture import svg

PAGE = ROOT / "docs" / "autoscaling.md"
PICTURE = ROOT / "docs" / "images" / "scaling-fronts.svg"
BEGIN, END = "<!-- measured -->", "<!-- /measured -->"
TITLE = "Late calls against GPU-hours ÷ the oracle's"


def main() -> None:
    """Read, write, and say where."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("results", nargs="?", type=Path, default=None)
    parser.add_argument("--print", action="store_true", help="only print it")
    asked = parser.parse_args()
    path = asked.results or latest("scaling")
    if path is None:
        raise SystemExit("there are no results: python -m loadtests.bench.scaling")
    found = json.loads(path.read_text())
    those = points(Result(**one) for one in found["results"])
    section = "\n".join([BEGIN, *_section(found, those), END])
    if asked.print:
        print(section)
        return
    PICTURE.write_text(svg(those, TITLE))
    text = PAGE.read_text()
    if BEGIN not in text:
        raise SystemExit(f"{PAGE.name} has no line {BEGIN}")
    PAGE.write_text(re.sub(f"{BEGIN}.*{END}", lambda _: section, text, flags=re.DOTALL))
    print(f"wrote {PAGE.relative_to(ROOT)} and {PICTURE.relative_to(ROOT)}")


def _section(found: Mapping[str, Any], those: Sequence[Point]) -> Iterator[str]:
    seeds = found["seeds"]
    yield ""
    yield (
        f"Seeds {min(seeds)} to {max(seeds)}, {found['date']}, {found['machine']}. "
        f"{_scene(found['scene'])}"
    )
    yield ""
    yield "![Late calls against GPU-hours](images/scaling-fronts.svg)"
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
        f"·b ms, with a scatter of {100 * service['scatter']:g} %; batches of at most "
        f"{server['largest']}, objective {server['limit']:g} s, cold start "
        f"{server['cold_start']:g} s; {scene['mean']:g} calls/s on average for "
        f"{scene['seconds'] / 60:g} min."
    )


def _goals(those: Sequence[Point]) -> Iterator[str]:
    yield "| load | goal | found | |"
    yield "|---|---|---|---|"
    words = {True: "met", False: "**missed**", None: "nothing to compare"}
    for one in goals(those):
        yield f"| {one.load} | {one.wanted} | {one.found} | {words[one.is_met]} |"


def _cells(those: Sequence[Point]) -> Iterator[str]:
    """Late % @ × the oracle; the usual parameters are bold."""
    loads = list(dict.fromkeys(one.load for one in those))
    rows = list(dict.fromkeys((one.scaler, one.parameter) for one in those))
    found = {(one.load, one.scaler, one.parameter): one for one in those}
    yield "Late calls in per cent @ GPU-hours ÷ the oracle's; **bold** at the usual parameter:"
    yield ""
    yield "| scaler | " + " | ".join(loads) + " |"
    yield "|---|" + "---|" * len(loads)
    for scaler, parameter in rows:
        cells = [_cell(found.get((load, scaler, parameter))) for load in loads]
        yield f"| {scaler} {parameter} | " + " | ".join(cells) + " |"


def _cell(one: Point | None) -> str:
    if one is None:
        return ""
    text = f"{100 * one.late:.2f} @ {one.cost:.2f}"
    return f"**{text}**" if one.is_usual and one.scaler not in (OURS, ORACLE) else text


if __name__ == "__main__":
    main()
