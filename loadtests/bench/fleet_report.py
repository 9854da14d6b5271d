"""Writes the newest results of `fleet_scale` into docs/operations.md, with pictures.

python -m loadtests.bench.fleet_report [RESULTS.json] [--print]
"""

import argparse
import json
import math
import re
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from loadtests.bench.fleet_growth import Point, growth
from loadtests.bench.results import latest
from loadtests.bench.start import ROOT
from serve.control.snapshots import POLL, REST
from serve.pages.charts import Axis, Chart, ChartSeries, draw

PAGE = ROOT / "docs" / "operations.md"
IMAGES = ROOT / "docs" / "images"
BEGIN, END = "<!-- measured -->", "<!-- /measured -->"
EVENTS = {
    "came": "a replica joins",
    "went": "a replica leaves",
    "died": "a replica dies",
    "moved": "a label moves",
}
CELL_CALLS, WORKER_CALLS, SPARE = 1_000_000, 5_000, 4 / 3
Page = Mapping[str, Any]
Of = Callable[[Page], float | None]

TIMES: dict[str, Of] = {
    "an empty fleet is loaded": lambda one: one["cold"],
    "a control plane starts": lambda one: one["called"],
    **{
        text: lambda one, kind=kind: statistics.median(one[kind])  # type: ignore[misc]
        for kind, text in EVENTS.items()
    },
}
COSTS: dict[str, Of] = {
    "CPU of the idle control plane": lambda one: one["rest"]["control"],
    "memory of the control plane": lambda one: one["control_memory"],
    "memory of a worker": lambda one: one["worker_memory"],
    "size of a snapshot": lambda one: one["snapshot"],
}
PARTS: dict[str, Of] = {
    text: lambda one, name=name: one[name]  # type: ignore[misc]
    for name, text in (
        ("compile", "compile"),
        ("write", "write"),
        ("read", "read"),
        ("call", "a call"),
        ("avoid", "a call while one replica is ejected"),
    )
}


def main() -> None:
    """Read, write, and say where."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("results", nargs="?", type=Path, default=None)
    parser.add_argument("--print", action="store_true", help="print the page, and do not write it")
    asked = parser.parse_args()
    path = asked.results or latest("fleet")
    if path is None:
        raise SystemExit("there are no results: make bench-fleet")
    found = json.loads(path.read_text())
    text = "\n".join([BEGIN, "", *section(found), "", END])
    if asked.print:
        print(text)
        return
    for name, chart in charts(found).items():
        (IMAGES / name).write_text(draw(chart))
    PAGE.write_text(re.sub(f"{BEGIN}.*{END}", lambda _: text, PAGE.read_text(), flags=re.DOTALL))
    print(f"wrote {PAGE.relative_to(ROOT)} and its pictures")


def section(found: Page) -> Iterator[str]:
    """What is written between the marks."""
    sizes, parts = found["sizes"], found["parts"]
    yield (
        f"{found['date']}, {found['machine']}, {sizes[0]['models']} models, "
        f"{sizes[0]['planes']} data planes of one worker; loading a model takes "
        f"{found['load_seconds']:g} s. Fakes, control plane and data planes share the machine "
        "(`make bench-fleet`)."
    )
    if found.get("others") is None or found["others"] > 0.05:
        share = "" if found.get("others") is None else f" ({100 * found['others']:.0f} % of it)"
        yield (
            f"Other work had a part of the machine meanwhile{share}: times are longer than they "
            "would be, CPU times less so."
        )
    yield from ("", "Seconds: the median of the events, and the worst one in parentheses:", "")
    yield from _times(sizes)
    yield from ("", "![Time until all data planes have the change](images/fleet-time.svg)", "")
    yield from _uses(sizes)
    yield from ("", "![Cost of a fleet, relative to 200 replicas](images/fleet-cost.svg)", "")
    yield "CPU time of the steps, each measured separately in one process (`fleet_parts`):"
    yield ""
    yield from _parts(parts)
    yield from ("", "![CPU time of the steps](images/fleet-parts.svg)", "")
    yield from _growth(sizes, parts)
    yield from ("", "### Example: the size of a cell", "")
    yield from _cell(sizes[-1], parts[-1])


def _times(sizes: Sequence[Page]) -> Iterator[str]:
    yield "| replicas | " + " | ".join(TIMES) + " |"
    yield "|---:|" + "---:|" * len(TIMES)
    for one in sizes:
        cells = ["–" if one["cold"] is None else f"{one['cold']:.1f}", f"{one['called']:.1f}"]
        cells += [f"{statistics.median(one[kind]):.2f} ({max(one[kind]):.2f})" for kind in EVENTS]
        yield f"| {one['replicas']:,} | " + " | ".join(cells) + " |"
    cold, rest = [one for one in sizes if one["cold"] is not None], sizes[-1]
    counts = ", ".join(f"{len(rest[kind])} × {text}" for kind, text in EVENTS.items())
    yield ""
    yield (
        f"At {rest['replicas']:,} replicas: {counts}. With more than {cold[-1]['replicas']:,} "
        "replicas, the fakes have all models loaded from the start."
        if cold
        else f"At {rest['replicas']:,} replicas: {counts}."
    )


def _uses(sizes: Sequence[Page]) -> Iterator[str]:
    yield (
        "| replicas | idle control plane, cores | per replica | polls per second | control plane's "
        "memory | of one replica | worker's memory | snapshot "
        "| compressed | admin API requests when idle |"
    )
    yield "|---:|" + "---:|" * 9
    least = sizes[0]
    for one in sizes:
        rest, more = one["rest"], one["replicas"] - least["replicas"]
        each = (one["control_memory"] - least["control_memory"]) * 1024 / more if more else None
        cells = [
            f"{100 * rest['control']:.0f} %",
            f"{1e6 * rest['control'] / one['replicas']:.0f} µs/s",
            f"{rest['looks']:.0f}",
            f"{one['control_memory']:.0f} MiB",
            "" if each is None else f"{each:.0f} KiB",
            f"{one['worker_memory']:.0f} MiB",
            f"{one['snapshot'] / 1000:.0f} kB",
            f"{one['compressed'] / 1000:.0f} kB",
            f"{rest['api']} in {rest['seconds']:.0f} s",
        ]
        yield f"| {one['replicas']:,} | " + " | ".join(cells) + " |"


def _parts(parts: Sequence[Page]) -> Iterator[str]:
    yield (
        "| replicas | compile a snapshot | write it | read it, in each worker | a call in the "
        "gateway | … while one replica is ejected |"
    )
    yield "|---:|" + "---:|" * 5
    for one in parts:
        cells = [f"{1e3 * one[name]:.2f} ms" for name in ("compile", "write", "read")]
        cells += [f"{1e6 * one[name]:.1f} µs" for name in ("call", "avoid")]
        yield f"| {one['replicas']:,} | " + " | ".join(cells) + " |"


def _growth(sizes: Sequence[Page], parts: Sequence[Page]) -> Iterator[str]:
    """Exponents: 0 is constant, 1 in proportion to the replicas."""
    yield (
        "Exponent of the growth with the number of replicas, from 200 on "
        "(0: constant, 1: proportional):"
    )
    yield ""
    yield "| | exponent | R² |"
    yield "|---|---:|---:|"
    for rows, ofs in ((sizes, TIMES), (sizes, COSTS), (parts, PARTS)):
        for name, of in ofs.items():
            found = growth(points(rows, of))
            if found is not None:
                yield f"| {name} | {round(found.exponent, 2) + 0.0:.2f} | {found.explained:.2f} |"


def _cell(size: Page, part: Page) -> Iterator[str]:
    """How far one control plane goes with as many replicas as were measured: arithmetic."""
    workers = math.ceil(CELL_CALLS * SPARE / WORKER_CALLS)
    apart = (1 + REST) * (part["compile"] + part["write"] + POLL * workers)
    fanned = size["snapshot"] * workers
    yield (
        f"Take {CELL_CALLS:,} calls per second on {size['replicas']:,} replicas, workers that "
        f"handle {WORKER_CALLS:,} each (use the number that `make bench` measures on your "
        "machines), and a third to spare:"
    )
    yield ""
    yield "| what | how | |"
    yield "|---|---|---:|"
    rows = (
        ("workers", f"{CELL_CALLS:,} × 4/3 ÷ {WORKER_CALLS:,}", f"{workers:,}"),
        (
            "choosing a replica, share of a worker's time",
            f"{1e6 * part['call']:.1f} µs × {WORKER_CALLS:,}",
            f"{100 * part['call'] * WORKER_CALLS:.1f} %",
        ),
        (
            "time until the last worker has a change",
            f"{1e3 * (part['compile'] + part['write']):.0f} ms + {workers:,} × {1e3 * POLL:g} ms",
            f"{part['compile'] + part['write'] + POLL * workers:.2f} s",
        ),
        (
            "continuous changes: time between snapshots",
            f"that × {1 + REST:g}, because it pauses {REST:g} × as long",
            f"{apart:.1f} s",
        ),
        (
            "bandwidth for snapshots",
            f"{size['snapshot'] / 1000:.0f} kB × {workers:,} ÷ {apart:.1f} s",
            f"{8 * fanned / apart / 1e6:.0f} Mbit/s",
        ),
        (
            "reading snapshots, share of a worker's time",
            f"{1e3 * part['read']:.0f} ms ÷ {apart:.1f} s",
            f"{100 * part['read'] / apart:.1f} %",
        ),
        (
            "idle control plane",
            "measured above",
            f"{100 * size['rest']['control']:.0f} % of a core",
        ),
        (
            "memory of the control plane",
            "measured above",
            f"{size['control_memory'] / 1024:.1f} GiB",
        ),
    )
    for row in rows:
        yield "| " + " | ".join(row) + " |"
    many = 4
    yield ""
    yield (
        f"{many} such cells are {many * size['replicas']:,} replicas and {many * CELL_CALLS:,} "
        "calls per second. No process knows all cells, so no shared resource grows with "
        "their number."
    )


def points(rows: Sequence[Page], of: Of) -> list[Point]:
    """What was measured, by replicas."""
    found = ((float(one["replicas"]), of(one)) for one in rows)
    return [(size, float(value)) for size, value in found if value is not None]


def charts(found: Page) -> dict[str, Chart]:
    """The pictures by the names of their files."""
    sizes, parts = found["sizes"], found["parts"]
    replicas = Axis("replicas", is_log=True)
    return {
        "fleet-time.svg": Chart(
            "Time until all data planes have the change, medians",
            replicas,
            Axis("seconds", is_log=True),
            tuple(_line(name, points(sizes, of)) for name, of in TIMES.items()),
        ),
        "fleet-cost.svg": Chart(
            "Cost of a fleet, relative to 200 replicas",
            replicas,
            Axis("relative to 200 replicas", is_log=True),
            tuple(_line(name, _relative(points(sizes, of))) for name, of in COSTS.items()),
        ),
        "fleet-parts.svg": Chart(
            "CPU time of the steps",
            replicas,
            Axis("milliseconds", is_log=True),
            tuple(
                _line(name, [(size, 1e3 * value) for size, value in points(parts, of)])
                for name, of in PARTS.items()
            ),
        ),
    }


def _line(name: str, found: Sequence[Point]) -> ChartSeries:
    return ChartSeries(name, tuple(found), "line")


def _relative(found: Sequence[Point]) -> list[Point]:
    """To the size of 200 replicas, or the first."""
    base = next((value for size, value in found if size == 200), found[0][1])
    return [(size, value / base) for size, value in found]


if __name__ == "__main__":
    main()
