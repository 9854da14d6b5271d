"""One output as people read it, row by row, by its declared kind: plain values for `json.dumps`.

| kind                | a row                                                                      |
|---------------------|----------------------------------------------------------------------------|
| `classes`           | `top`: `index`, `label` and `value` of the highest                         |
| `multilabel`        | the same of those above the threshold                                      |
| `number`            | `values`, `unit`                                                           |
| `text`, `stream`    | `text`                                                                     |
| `image`             | `height`, `width`, `channels`                                              |
| `mask`              | `height`, `width`, `areas`: `index`, `label` and `value`, a share          |
| `boxes`             | `boxes`: `corners` (left, top, right, bottom), `score`, `index`, `label`   |
| `embedding`         | `size`, `norm`                                                             |
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from serve.tensors.comparison import Score, top_k
from serve.tensors.datatypes import Array, to_json
from serve.tensors.metadata import TensorSpec
from serve.tensors.output_comparison import boxes_of, joined_text, probabilities, rows_of
from serve.tensors.output_kinds import DeclaredOutput

_MOST_VALUES, _MOST_BOXES, _LONGEST = 64, 100, 1000  # of a row; characters


def scored_rows(
    array: Array,
    declared: DeclaredOutput,
    spec: TensorSpec | None,
    *,
    labels: Sequence[str] = (),
    k: int = 5,
    most: int | None = None,
) -> list[list[Score]] | None:
    """The k highest classes, or the labels above the threshold, of the first `most` rows.

    None for an output of another kind.
    """
    if declared.kind not in ("classes", "multilabel"):
        return None
    return [_scores(row, declared, labels, k) for row in rows_of(array, spec)[:most]]


def described(
    name: str,
    answer: Mapping[str, Array],
    declared: DeclaredOutput,
    spec: TensorSpec | None,
    *,
    labels: Sequence[str] = (),
    k: int = 5,
    most: int | None = None,
) -> list[dict[str, Any]]:
    """The first `most` rows of an output of an answer."""
    scores = scored_rows(answer[name], declared, spec, labels=labels, k=k, most=most)
    if scores is not None:
        return [{"top": [score_json(score) for score in row]} for row in scores]
    if declared.kind == "boxes":
        found = boxes_of(name, answer, declared, spec)[:most]
        return [{"boxes": _boxes(one.corners, one.scores, one.classes, labels)} for one in found]
    rows = rows_of(answer[name], spec)[:most]
    return [_row(row, declared, labels) for row in rows]


def in_words(row: Mapping[str, Any]) -> Iterator[str]:
    """One of these rows as lines for people."""
    if "top" in row:
        yield from (_named(one, _share(one["value"])) for one in row["top"])
        if not row["top"]:
            yield "no label is above the threshold"
    elif "boxes" in row:
        for one in row["boxes"]:
            sides = ", ".join("nan" if side is None else f"{side:.6g}" for side in one["corners"])
            yield _named(one, f"{_share(one['score'])}  [{sides}]")
        if not row["boxes"]:
            yield "no box is above the threshold"
    elif "areas" in row:
        yield f"{row['height']} × {row['width']}"
        yield from (_named(one, f"{100 * one['value']:.1f} %") for one in row["areas"])
    elif "values" in row:
        texts = ["nan" if one is None else f"{one:.6g}" for one in row["values"]]
        unit = f" {row['unit']}" if row["unit"] else ""
        yield ", ".join(texts) + unit
    elif "text" in row:
        yield from row["text"].splitlines() or [""]
    elif "norm" in row:
        yield f"vector of {row['size']}, norm {_share(row['norm'])}"
    else:
        count = row["channels"]
        yield f"{row['height']} × {row['width']}, {count} channel{'s' if count > 1 else ''}"


def _named(one: Mapping[str, Any], rest: str) -> str:
    return f"{one['label'] or 'class ' + str(one['index'])}  {rest}"


def _share(value: float | None) -> str:
    return "nan" if value is None else f"{value:.4g}"


def score_json(score: Score) -> dict[str, Any]:
    """A score for programs."""
    return {"index": score.index, "label": score.label, "value": _finite(score.value)}


def _scores(row: Array, declared: DeclaredOutput, labels: Sequence[str], k: int) -> list[Score]:
    if declared.values == "indices":  # a class that was chosen, without a score
        return [_score(int(one), labels, 1.0) for one in row.ravel()[:1]]
    if declared.kind == "classes":
        return top_k(probabilities(row, declared), k, labels)
    found = top_k(probabilities(row, declared), row.size, labels)
    return [one for one in found if one.value >= declared.threshold][:_MOST_VALUES]


def _row(row: Array, declared: DeclaredOutput, labels: Sequence[str]) -> dict[str, Any]:
    kind = declared.kind
    if kind == "number":
        return {"values": _numbers(row), "unit": declared.unit}
    if kind in ("text", "stream"):
        return {"text": joined_text(row, declared)[:_LONGEST]}
    if kind == "image":
        return _size(row, declared.layout) | {"channels": _channels(row, declared.layout)}
    if kind == "mask":
        classes, counts = np.unique(row, return_counts=True)
        order = np.argsort(-counts, kind="stable")[:_MOST_VALUES]
        areas = [_score(int(classes[one]), labels, counts[one] / row.size) for one in order]
        return _size(row, "HW") | {"areas": [score_json(one) for one in areas]}
    vector = row.astype(np.float64).ravel()
    return {"size": vector.size, "norm": _finite(float(np.linalg.norm(vector)))}


def _score(index: int, labels: Sequence[str], value: float) -> Score:
    return Score(index, labels[index] if 0 <= index < len(labels) else "", float(value))


def _numbers(row: Array) -> list[Any]:
    values = to_json(row.ravel()[:_MOST_VALUES])
    return [_finite(one) if isinstance(one, float) else one for one in values]


def _size(row: Array, layout: str) -> dict[str, Any]:
    shape = row.shape if len(row.shape) == len(layout) else [n for n in row.shape if n != 1]
    sizes = dict(zip(layout, shape, strict=False))
    return {"height": sizes.get("H"), "width": sizes.get("W")}


def _channels(row: Array, layout: str) -> int:
    return row.shape[layout.index("C")] if "C" in layout else 1


def _boxes(
    corners: Array, scores: Array, classes: Array, labels: Sequence[str]
) -> list[dict[str, Any]]:
    found = []
    for place, score, index in list(zip(corners, scores, classes, strict=True))[:_MOST_BOXES]:
        one = score_json(_score(int(index), labels, score))
        sides = [_finite(float(side)) for side in place]
        found.append({"corners": sides, "score": one.pop("value"), **one})
    return found


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
