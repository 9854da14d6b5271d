"""Puts the newest results into `docs/performance.md`, between its markers, and draws the pictures.

    python -m loadtests.bench.report [RESULTS.json]

Results with problems in them are refused.
"""

import argparse
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from loadtests.bench import goals, pictures
from loadtests.bench.footprint import Footprint
from loadtests.bench.gateway import SHARES
from loadtests.bench.measuring import Measured
from loadtests.bench.results import Results, latest, load_measured
from loadtests.bench.rounds import Line, Ratio
from loadtests.bench.start import ROOT
from loadtests.bench.tables import number, spread
from loadtests.bench.targets import DIRECT

PAGE = ROOT / "docs" / "performance.md"
IMAGES = ROOT / "docs" / "images"
BEGIN, END = "<!-- dataplane: written by make bench-report -->", "<!-- /dataplane -->"
NAMES = {"nginx": "nginx", "haproxy": "haproxy", "envoy": "Envoy", "servegate": "Servegate"}
GIB = {"request": "1 GiB sent", "answer": "1 GiB received"}


def page(results: Results, against_kserve: Measured | None = None) -> str:
    """The whole part between the markers."""
    names = [name for name in NAMES if name in _targets(results)]
    others = [name for name in names if name != results.plan.reference]
    parts = [_kserve(against_kserve)] if against_kserve is not None else []
    return "\n\n".join(
        [
            _about(results),
            "![CPU time per call](images/dataplane-cpu.svg)",
            "**CPU time per call, relative to nginx** (in parentheses the lowest and the highest "
            "round):\n\n" + _table(results, others, _cpu, goals.CPU, "≤"),
            "**Calls per second, relative to nginx:**\n\n"
            + _table(results, others, _rate, goals.RATE, "≥"),
            "![Calls per second](images/dataplane-rate.svg)",
            "**Added median latency, relative to nginx:**\n\n"
            + _table(results, others, _added, goals.ADDED_P50, "≤"),
            "**One body of 1 GiB, and memory at rest:**\n\n" + _memory(results, names),
            *parts,
        ]
    )


def replace_between(text: str, new: str) -> str:
    """The page with the part between the markers replaced; ValueError when they are not there."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"the page lacks {BEGIN} or {END}")
    return f"{before}{BEGIN}\n\n{new}\n\n{END}{after}"


def picture(results: Results, title: str, read: Callable[[Line], float | None]) -> str:
    """Bars for every row, relative to nginx."""
    names = [name for name in NAMES if name in _targets(results) and name != results.plan.reference]
    groups = []
    for one in results.measured:
        found = {line.target: read(line) for line in one.lines}
        groups.append(pictures.Group(one.row.title, tuple(found.get(name) for name in names)))
    shown = tuple(NAMES[name] for name in names)
    return pictures.svg(
        pictures.Picture(title, shown, tuple(groups), NAMES[results.plan.reference])
    )


def _targets(results: Results) -> set[str]:
    return {line.target for one in results.measured for line in one.lines} - {DIRECT}


def _about(results: Results) -> str:
    plan = results.plan
    calls = sum(results.shares.values())
    split = ", ".join(
        f"version {version} got {count / calls:.2%} (configured: {SHARES[version]} %)"
        for version, count in results.shares.items()
        if calls
    )
    strange = [one.others for one in results.measured if one.others is not None]
    shared = (
        f" Other processes used {statistics.median(strange):.0%} of the proxy's core."
        if strange
        else ""
    )
    lines = [
        f"Measured on {results.date}: {results.machine}; {', '.join(results.software)}. "
        f"{plan.rounds} rounds of {plan.seconds:g} s each.{shared}",
        f"Features active in Servegate in all rows: {', '.join(results.duties)}.",
        f"Of the {calls:,} calls that the gateway routed in this run, {split}." if calls else "",
    ]
    return "\n".join(line for line in lines if line)


def _table(
    results: Results,
    names: Sequence[str],
    show: Callable[[Line], str],
    wanted: Mapping[str, float],
    sign: str,
) -> str:
    head = ["", *(NAMES[name] for name in names), "goal"]
    rows = [_row(one, names, show, wanted, sign) for one in results.measured]
    return _markdown([head, *(row for row in rows if any(cell != "–" for cell in row[1:-1]))])


def _row(
    one: Measured,
    names: Sequence[str],
    show: Callable[[Line], str],
    wanted: Mapping[str, float],
    sign: str,
) -> list[str]:
    found = {line.target: show(line) for line in one.lines}
    goal = f"{sign} {wanted[one.row.name]}" if one.row.name in wanted else ""
    return [one.row.title, *(found.get(name, "–") for name in names), goal]


def _cpu(line: Line) -> str:
    ratio = line.cpu_ratio
    return "–" if ratio is None else f"{ratio.median:.2f} {spread(ratio)}"


def _middle(ratio: Ratio | None) -> float | None:
    return None if ratio is None else ratio.median


def _rate(line: Line) -> str:
    return "–" if line.rate_ratio is None else f"{line.rate_ratio.median:.2f}"


def _added(line: Line) -> str:
    return number(line.added_p50_ratio, 2)


def _memory(results: Results, names: Sequence[str]) -> str:
    head = ["", *(NAMES[name] for name in names), "goal"]
    rows = [head]
    for direction, title in GIB.items():
        found = {one.target: one for one in results.streamed if one.direction == direction}
        seconds = [f"{found[name].seconds:.2f} s" if name in found else "–" for name in names]
        grown = [number(found[name].growth, 1) if name in found else "–" for name in names]
        rows.append([f"{title}: time", *seconds, ""])
        rows.append([f"{title}: memory growth, MiB", *grown, f"≤ {goals.BODY:g}"])
    rows += _footprints(results, names)
    return _markdown(rows)


def _footprints(results: Results, names: Sequence[str]) -> Iterator[list[str]]:
    found = {one.target: one for one in results.footprints}

    def row(title: str, read: Callable[[Footprint], float | None], goal: str) -> list[str]:
        cells = [number(read(found[name]), 1) if name in found else "–" for name in names]
        return [title, *cells, goal]

    yield row("the worker, MiB", lambda one: one.worker, f"≤ {goals.FIRST_WORKER:g}")
    yield row("supervising processes, MiB", lambda one: one.above, "")
    yield row("each further worker, MiB", lambda one: one.further, f"≤ {goals.FURTHER_WORKER:g}")


def _kserve(one: Measured) -> str:
    """The row of `make bench-peers`, of a run of its own."""
    lines = {line.target: line for line in one.lines}
    head = ["", "calls per second, × nginx's", "CPU time per call, × nginx's"]
    rows = [
        [title, _rate(lines[name]), _cpu(lines[name])]
        for name, title in {**NAMES, "kserve": "a KServe transformer"}.items()
        if name in lines and name != "nginx"
    ]
    ours, theirs = lines["servegate"].cpu, lines["kserve"].cpu
    share = f" The gateway needs 1/{theirs / ours:.0f} of the CPU time." if ours and theirs else ""
    title = f"**{one.row.title}, compared with a KServe transformer**"
    manner = "that forwards every request unchanged, in a separate run."
    return f"{title} {manner}{share}\n\n{_markdown([head, *rows])}"


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    head, *rest = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([head, "|" + "---|" * len(rows[0]), *rest])


def main() -> int:
    """Write the page and the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "results", type=Path, nargs="?", help="results to use (default: the newest)"
    )
    path = parser.parse_args().results or latest("dataplane")
    if path is None:
        print("error: there are no results\n  try: make bench", file=sys.stderr)
        return 2
    results = Results.load(path)
    if results.problems:
        print("error: these results have problems and are not published:", file=sys.stderr)
        print("\n".join(results.problems), file=sys.stderr)
        return 1
    IMAGES.mkdir(exist_ok=True)
    cpu = picture(results, "CPU time per call", lambda line: _middle(line.cpu_ratio))
    rate = picture(results, "Calls per second", lambda line: _middle(line.rate_ratio))
    (IMAGES / "dataplane-cpu.svg").write_text(cpu)
    (IMAGES / "dataplane-rate.svg").write_text(rate)
    beside = latest("kserve")
    new = page(results, load_measured(beside) if beside else None)
    PAGE.write_text(replace_between(PAGE.read_text(), new))
    print(f"wrote the results of {path.name} to {PAGE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
