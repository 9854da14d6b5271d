"""Measures the gate: from which size on it refuses wrong models, and whether it refuses right ones.

    python -m loadtests.bench.gate_curve [--seeds N] [--picture FILE.svg]

Small models with random weights get one fault each, from gross to subtle. The fault is felt as the
largest |a - b| of an output relative to the output's size, over 256 ordinary inputs that the gate
does not see. Right models are the same ones computed otherwise. Prints tables in Markdown.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import numpy as np

from loadtests.bench.gate_graphs import Fault, Session, Style
from loadtests.bench.gate_models import CLASSES, MODELS, PLACES, build
from loadtests.bench.pictures import STYLE
from serve.tensors.datatypes import Array
from serve.tensors.signature import ModelSignature
from serve.workbench.conversion.gate import GateVerdict, run_gate
from serve.workbench.conversion.request import ConversionRequest

SIZES = tuple(float(10 ** (power / 2)) for power in range(0, -15, -1))
STATED = 1e-3  # what is felt above it does not pass
HELD_OUT = 256
IDS = 50
BINS = tuple(range(-7, 1))  # powers of ten, of what is felt
LEVELS = ("ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED")
WIDTH, HEIGHT, LEFT, TOP, BOTTOM, RIGHT = 840, 320, 52, 64, 44, 20  # pixels


@dataclass(frozen=True, slots=True)
class Trial:
    """One model that was judged. `felt`: how far it is off, relative to the output's size."""

    model: str
    kind: str
    size: float
    felt: float
    refused: bool


def wrong_ones(seeds: Sequence[int], sizes: Sequence[float] = SIZES) -> Iterator[Trial]:
    """Every class of faults at every size, in every model that can have it."""
    for seed in seeds:
        for kind in CLASSES:
            for name in PLACES[kind]:
                source = Session(build(name, seed))
                inputs = held_out(source.signature, seed)
                for size in sizes:
                    wrong = Session(build(name, seed, Fault(kind, size, seed)))
                    distance = felt(source(inputs), wrong(inputs))
                    refused = not judged(source, wrong, seed).passed
                    yield Trial(name, kind, size, distance, refused)


def right_ones(seeds: Sequence[int]) -> Iterator[Trial]:
    """Every model, computed in other right ways."""
    for seed in seeds:
        for name in MODELS:
            file = build(name, seed)
            source = Session(file)
            inputs = held_out(source.signature, seed)
            others = {level: Session(file, level) for level in LEVELS}
            for style in styles(name):
                others[str(style)] = Session(build(name, seed, style=style))
            for kind, other in others.items():
                distance = felt(source(inputs), other(inputs))
                yield Trial(name, kind, 0, distance, not judged(source, other, seed).passed)


def styles(name: str) -> Iterator[Style]:
    """Other right ways; ONNX Runtime has neither convolution nor Erf in float64."""
    yield from (Style(is_shuffled=True), Style(is_split=True), Style(noise=6e-8))
    yield Style(is_shuffled=True, is_split=True, is_folded=True, noise=6e-8)
    if name == "cnn":
        yield Style(is_folded=True)
    if name == "towers":
        yield Style(is_double=True)


def judged(source: Session, converted: Session, seed: int) -> GateVerdict:
    """What the gate says, with nothing but generated inputs."""
    return run_gate(
        source,
        converted,
        expected=source.signature,
        found=converted.signature,
        request=ConversionRequest("model", golden=1, seed=seed),
        samples=None,
        labelled=None,
        precision=None,
        tell=lambda *_, **__: None,
    )


def held_out(signature: ModelSignature, seed: int) -> Mapping[str, Array]:
    """Ordinary inputs of another seed than the gate's."""
    rng = np.random.default_rng([seed, 99])
    shapes = {spec.name: (HELD_OUT, *(spec.shape or ())[1:]) for spec in signature.inputs}
    return {
        spec.name: rng.standard_normal(shapes[spec.name]).astype(np.float32)
        if spec.datatype == "FP32"
        else rng.integers(0, IDS, shapes[spec.name])
        for spec in signature.inputs
    }


def felt(right: Mapping[str, Array], wrong: Mapping[str, Array]) -> float:
    """The largest |a - b| relative to the root mean square of its output."""
    return max(
        float(np.abs(wrong[name] - one).max() / np.sqrt(np.mean(one.astype(np.float64) ** 2)))
        for name, one in right.items()
    )


def table(trials: Sequence[Trial]) -> str:
    """Markdown: a row for each power of ten that is felt, a column for each class."""
    head = ["error, relative to the output", *CLASSES]
    rows = [head, ["---"] * len(head)]
    for low in (None, *BINS):
        inside = [one for one in trials if _bin(one) == low]
        said = f"{10.0**low:.0e} and more" if low is not None else f"below {10.0 ** BINS[0]:.0e}"
        rows.append([said, *(_share([o for o in inside if o.kind == kind]) for kind in CLASSES)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def table_by_size(trials: Sequence[Trial]) -> str:
    """Markdown: a row for each size of a fault, as the share by which weights and so on are off."""
    head = ["size of the error", *CLASSES]
    rows = [head, ["---"] * len(head)]
    for size in sorted({one.size for one in trials}):
        inside = [one for one in trials if one.size == size]
        shares = [_share([one for one in inside if one.kind == kind]) for kind in CLASSES]
        rows.append([f"{size:.1e}", *shares])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def summary(wrong: Sequence[Trial], right: Sequence[Trial]) -> str:
    """The sentence of the docs."""
    passed = [one.felt for one in wrong if not one.refused]
    above = [one for one in wrong if one.felt >= STATED]
    lost = sum(one.refused for one in right)
    return (
        f"{len(wrong)} wrong models: of {len(above)} with an error of {STATED:g} or more, "
        f"{sum(not one.refused for one in above)} pass. The largest error that passes is "
        f"{max(passed, default=0):.1e}, the smallest that is refused is "
        f"{min((one.felt for one in wrong if one.refused), default=0):.1e}. {len(right)} "
        f"correct models: {lost} are refused (95 % confidence: fewer than "
        f"{3 / len(right):.1%}). Their errors are up to "
        f"{max(one.felt for one in right):.1e}."
    )


def svg(trials: Sequence[Trial]) -> str:
    """The share of refused models by what is felt: all classes together."""
    shares = [(low, [one for one in trials if _bin(one) == low]) for low in BINS]
    points = [(_x(low + 0.5), _y(_refused(inside))) for low, inside in shares if inside]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    title = "Share of wrong models that the gate refuses"
    words = " ".join(f"1e{low}: {_refused(inside):.0%}." for low, inside in shares if inside)
    body = [
        f'<text class="title" x="8" y="20">{escape(title)}</text>',
        '<text class="small" x="8" y="43">largest error of a held-out output, relative '
        "to the size of the output; dashed: the stated size</text>",
        *_axes(),
        f'<polyline class="curve" points="{line}"/>',
        *(f'<circle class="c2" cx="{x:.1f}" cy="{y:.1f}" r="4"/>' for x, y in points),
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
            f'width="{WIDTH}" height="{HEIGHT}" role="img" aria-labelledby="title description">',
            f'<title id="title">{escape(title)}</title>',
            f'<desc id="description">{escape(words)}</desc>',
            f"<style>{STYLE}  .curve {{ fill: none; stroke: #0969da; stroke-width: 2 }}\n</style>",
            *body,
            "</svg>\n",
        ]
    )


def _axes() -> Iterator[str]:
    for share in (0.0, 0.5, 1.0):
        y = _y(share)
        yield f'<text class="small" x="8" y="{y + 4:.1f}">{share:.0%}</text>'
        yield f'<line class="one" x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}"/>'
    for power in (*BINS, BINS[-1] + 1):
        x = _x(power)
        yield f'<text class="small" x="{x - 12:.1f}" y="{HEIGHT - BOTTOM + 22}">1e{power}</text>'
    x = _x(float(np.log10(STATED)))
    yield f'<line class="one" x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{HEIGHT - BOTTOM}"/>'


def _x(power: float) -> float:
    return LEFT + (power - BINS[0]) / len(BINS) * (WIDTH - LEFT - RIGHT)


def _y(share: float) -> float:
    return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)


def _bin(one: Trial) -> int | None:
    """The power of ten below what is felt; None below all of them."""
    power = int(np.floor(np.log10(max(one.felt, 1e-30))))
    return None if power < BINS[0] else min(power, BINS[-1])


def _refused(trials: Sequence[Trial]) -> float:
    return sum(one.refused for one in trials) / max(len(trials), 1)


def _share(trials: Sequence[Trial]) -> str:
    return f"{sum(one.refused for one in trials)} of {len(trials)}" if trials else "–"


def main() -> int:
    """Measure, print, draw. 1 where something above the stated size passes, or right is refused."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--picture", type=Path, help="file for the curve")
    asked = parser.parse_args()
    seeds = range(asked.seeds)
    wrong, right = list(wrong_ones(seeds)), list(right_ones(seeds))
    print(f"{table(wrong)}\n\n{table_by_size(wrong)}\n\n{summary(wrong, right)}")
    if asked.picture is not None:
        asked.picture.write_text(svg(wrong))
    missed = [one for one in wrong if one.felt >= STATED and not one.refused]
    failed = [*missed, *(one for one in right if one.refused)]
    print("\n".join(map(str, failed)), file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
