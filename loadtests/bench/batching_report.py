"""Writes the newest results of `loadtests.bench.batching` into docs/batching.md, with a picture."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from loadtests.bench.pictures import Group, Picture, svg
from loadtests.bench.results import latest
from loadtests.bench.start import ROOT

PAGE = ROOT / "docs" / "batching.md"
PICTURE = ROOT / "docs" / "images" / "batching-gain.svg"
BEGIN, END = "<!-- measured -->", "<!-- /measured -->"
AGAINST = {"no batching": "no batching", "dynamic_batching {}": "`dynamic_batching { }`"}


def main() -> None:
    """Read, write, and say where."""
    path = latest("batching")
    if path is None:
        raise SystemExit("there are no results: make bench-batching")
    found = json.loads(path.read_text())
    PICTURE.write_text(svg(_picture(found["models"])))
    text = PAGE.read_text()
    section = "\n".join([BEGIN, *_section(found), END])
    PAGE.write_text(re.sub(f"{BEGIN}.*{END}", lambda _: section, text, flags=re.DOTALL))
    print(f"wrote {PAGE.relative_to(ROOT)} and {PICTURE.relative_to(ROOT)}")


def _section(found: Mapping[str, Any]) -> Iterator[str]:
    models = found["models"]
    yield ""
    yield (
        "Calls per second under the objective, tuned ÷ default, of ten interleaved pairs each, "
        f"with the 95 % interval ({found['date']},"
    )
    yield f"{found['machine']}, `make bench-batching`):"
    yield ""
    yield (
        "| model | objective | found | measurements | against "
        + " | against ".join(AGAINST.values())
        + " |"
    )
    yield "|---|---|---|---|" + "---|" * len(AGAINST)
    for model, page in models.items():
        search = page["search"]
        cells = [model, page["objective"], search["text"], str(search["measurements"])]
        yield "| " + " | ".join([*cells, *(_ratio(page.get(one)) for one in AGAINST)]) + " |"
    yield ""
    yield "![Tuned batching against Triton's defaults](images/batching-gain.svg)"
    for model, page in models.items():
        if "winners" in page:
            yield ""
            yield from _beside_grid(model, page)
    yield ""


def _ratio(page: Mapping[str, Any] | None) -> str:
    if page is None:
        return "not measured"
    found = page["ratio"]
    interval = f"{found['low']:.2f} to {found['high']:.2f}"
    if found["low"] <= 1 <= found["high"]:
        return f"no gain ({found['ratio']:.2f}; {interval})"
    return f"**{found['ratio']:.2f}** ({interval})"


def _beside_grid(model: str, page: Mapping[str, Any]) -> Iterator[str]:
    grid, winners = page["grid"], page["winners"]["ratio"]
    yield (
        f"For {model} a whole grid of {len(grid['rows'])} setups took {grid['measurements']} "
        f"measurements, the search {page['search']['measurements']}; its winner bears "
        f"{winners['ratio']:.2f} times what the grid's bears "
        f"({winners['low']:.2f} to {winners['high']:.2f})."
    )


def _picture(models: Mapping[str, Any]) -> Picture:
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


def _value(page: Mapping[str, Any] | None) -> float | None:
    return None if page is None else float(page["ratio"]["ratio"])


if __name__ == "__main__":
    main()
