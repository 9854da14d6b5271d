"""Writes the newest results of `loadtests.bench.batching` into docs/batching.md, with pictures."""

import json
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loadtests.bench.pictures import Group, Picture, svg
from loadtests.bench.results import FOLDER
from loadtests.bench.start import ROOT
from serve.pages.charts import Axis, Chart, ChartSeries, draw

PAGE = ROOT / "docs" / "batching.md"
IMAGES = ROOT / "docs" / "images"
GAIN, PREDICTED = IMAGES / "batching-gain.svg", IMAGES / "batching-predicted.svg"
DEFAULTS, GRIDS = "defaults", "grids"  # parts of the page
AGAINST = {"no batching": "no batching", "dynamic_batching {}": "`dynamic_batching { }`"}
Page = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Newest:
    """Of each model, the newest run against the defaults, and the newest over the whole grid."""

    date: str
    machine: str
    defaults: Mapping[str, Page]
    grids: Mapping[str, Page]

    @classmethod
    def of(cls, found: Sequence[Page]) -> "Newest":
        """From the JSON of some runs, the newest last."""
        defaults: dict[str, Page] = {}
        grids: dict[str, Page] = {}
        for run in found:
            for model, page in run["models"].items():
                if any(one in page for one in AGAINST):
                    defaults[model] = page
                if "winners" in page:
                    grids[model] = page
        return cls(found[-1]["date"], found[-1]["machine"], defaults, grids)


@dataclass(frozen=True, slots=True)
class Predicted:
    """How well predictions hold over a grid: median relative errors, and the correlation of ranks.

    `rates` are (measured, predicted), in calls per second.
    """

    rates: tuple[tuple[float, float], ...]
    rate_error: float
    p99_error: float
    correlation: float


def main() -> None:
    """Read, and write; says where."""
    paths = sorted(FOLDER.glob("batching-*.json"), key=lambda path: path.stat().st_mtime)
    if not paths:
        raise SystemExit("there are no results: make bench-batching")
    newest = Newest.of([json.loads(path.read_text()) for path in paths])
    where = f"{newest.date}, {newest.machine}, `make bench-batching`"
    if newest.defaults:
        _write(DEFAULTS, _against_defaults(newest.defaults, where))
        GAIN.write_text(svg(_gain(newest.defaults)))
    if newest.grids:
        _write(GRIDS, _beside_grids(newest.grids, where))
        PREDICTED.write_text(draw(_predictions(newest.grids)))
    print(f"wrote {PAGE.relative_to(ROOT)} and its pictures")


def _write(part: str, lines: Iterator[str]) -> None:
    """Put a part of the page in its place; what nothing was measured of stays as it was."""
    begin, end = f"<!-- measured: {part} -->", f"<!-- /measured: {part} -->"
    text = "\n".join([begin, "", *lines, "", end])
    page = re.sub(f"{begin}.*{end}", lambda _: text, PAGE.read_text(), flags=re.DOTALL)
    PAGE.write_text(page)


def predicted(page: Page) -> Predicted:
    """What was predicted of the grid's setups beside what was measured, where anything was."""
    told = {_key(one["setup"]): one for one in page["search"]["predicted"]}
    pairs = [(row, told[_key(row["setup"])]) for row in page["grid"]["rows"] if row["rate"] > 0]
    rates = tuple((float(row["rate"]), float(one["rate"])) for row, one in pairs)
    both = [(row["p99"], one["p99"]) for row, one in pairs if one["rate"] > 0]
    return Predicted(
        rates,
        statistics.median(abs(guess / true - 1) for true, guess in rates),
        statistics.median(abs(guess / true - 1) for true, guess in both),
        _correlation(np.array(rates)),
    )


def _correlation(pairs: NDArray[np.float64]) -> float:
    """Spearman's, ties sharing their rank."""
    ranks = [_ranks(pairs[:, column]) for column in (0, 1)]
    return float(np.corrcoef(*ranks)[0, 1])


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    below = (values[:, None] > values[None, :]).sum(axis=1)
    equal = (values[:, None] == values[None, :]).sum(axis=1)
    found: NDArray[np.float64] = below + (equal - 1) / 2
    return found


def _key(setup: Page) -> str:
    return json.dumps(setup, sort_keys=True)


def _against_defaults(defaults: Mapping[str, Page], where: str) -> Iterator[str]:
    yield (
        "Calls per second under the objective, tuned ÷ default, of ten interleaved pairs each, "
        f"with the 95 % interval ({where}):"
    )
    yield ""
    yield (
        "| model | objective | best configuration | measurements | compared with "
        + " | compared with ".join(AGAINST.values())
        + " |"
    )
    yield "|---|---|---|---|" + "---|" * len(AGAINST)
    for model, page in defaults.items():
        search = page["search"]
        cells = [model, page["objective"], search["text"], str(search["measurements"])]
        yield "| " + " | ".join([*cells, *(_ratio(page.get(one)) for one in AGAINST)]) + " |"
    yield ""
    yield "![Tuned batching against Triton's defaults](images/batching-gain.svg)"


def _ratio(page: Page | None) -> str:
    if page is None:
        return "not measured"
    found = page["ratio"]
    interval = f"{found['low']:.2f} to {found['high']:.2f}"
    if found["low"] <= 1 <= found["high"]:
        return f"no gain ({found['ratio']:.2f}; {interval})"
    return f"**{found['ratio']:.2f}** ({interval})"


def _beside_grids(grids: Mapping[str, Page], where: str) -> Iterator[str]:
    yield (
        "Compared with a complete grid, in which the highest rate of each configuration "
        f"is measured separately ({where}):"
    )
    yield ""
    yield (
        "| model | objective | configurations | measurements: grid | search | best of "
        "the search ÷ best of the grid | median error of predicted rates | median error "
        "of predicted p99 | rank correlation of rates |"
    )
    yield "|---|---|---|---|---|---|---|---|---|"
    for model, page in grids.items():
        ratio, held = page["winners"]["ratio"], predicted(page)
        cells = [
            model,
            page["objective"],
            str(len(page["grid"]["rows"])),
            str(page["grid"]["measurements"]),
            str(page["search"]["measurements"]),
            f"{ratio['ratio']:.2f} ({ratio['low']:.2f} to {ratio['high']:.2f})",
            f"{100 * held.rate_error:.0f} %",
            f"{100 * held.p99_error:.0f} %",
            f"{held.correlation:.2f}",
        ]
        yield "| " + " | ".join(cells) + " |"
    yield ""
    yield "![Predicted and measured rates of the grid](images/batching-predicted.svg)"


def _predictions(grids: Mapping[str, Page]) -> Chart:
    return Chart(
        "Highest rate under the objective, predicted and measured, of every "
        "configuration of the grid",
        Axis("measured, calls per second", is_log=True),
        Axis("predicted, calls per second", is_log=True),
        tuple(ChartSeries(model, predicted(page).rates) for model, page in grids.items()),
        rule="equal",
    )


def _gain(models: Mapping[str, Page]) -> Picture:
    groups = tuple(
        Group(f"{model}, {page['objective']}", tuple(_value(page.get(one)) for one in AGAINST))
        for model, page in models.items()
    )
    return Picture(
        "Calls per second under the objective, tuned ÷ default",
        tuple(AGAINST),
        groups,
        "the default",
    )


def _value(page: Page | None) -> float | None:
    return None if page is None else float(page["ratio"]["ratio"])


if __name__ == "__main__":
    main()
