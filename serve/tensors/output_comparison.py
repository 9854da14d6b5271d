"""How far two answers agree, output by output, each by its declared kind.

| kind                    | a row agrees when                            | measures                |
|-------------------------|----------------------------------------------|-------------------------|
| `classes`               | the highest class is the same                | `top_1`, `rank_overlap` |
| `multilabel`            | the labels above the threshold are the same  | `jaccard`               |
| `number`                | all numbers are within 1 % (or 1e-6)         | `max_abs`, `max_rel`    |
| `image`                 | the mean error is below 1 % of the range     | `mean_abs`, `max_abs`   |
| `mask`                  | the mean IoU of the classes is at least 0.9  | `iou`, `equal`          |
| `boxes`                 | each box has a partner of its class with an  | `f1`, `iou`             |
|                         | IoU of at least 0.5, on both sides           |                         |
| `embedding`             | the cosine is at least 0.99                  | `cosine`, `min_cosine`  |
| `text`, `stream`        | the texts are the same                       | `equal`, `similarity`   |

Measures are means over rows, except `max_…` and `min_…`.
"""

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from serve.core.errors import Invalid
from serve.tensors.comparison import Floats, cosine, gaps, largest, top_k
from serve.tensors.datatypes import Array
from serve.tensors.metadata import TensorSpec
from serve.tensors.output_kinds import DeclaredOutput

_TOP = 5  # ranks that are compared
_RELATIVE, _ABSOLUTE = 0.01, 1e-6
_IMAGE, _MASK, _COSINE, _BOX = 0.01, 0.9, 0.99, 0.5
_LONGEST = 2000  # characters of a text that are compared
_Row = tuple[bool, Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class OutputAgreement:
    """`agreement` is the share of rows that agree; `differing` are the others, ascending."""

    kind: str
    agreement: float
    differing: tuple[int, ...]
    measures: Mapping[str, float]


def agreement(
    name: str,
    a: Mapping[str, Array],
    b: Mapping[str, Array],
    declared: DeclaredOutput,
    spec: TensorSpec | None,
) -> OutputAgreement:
    """How far output `name` of two answers agrees; `Invalid` when the rows cannot be paired."""
    left, right = rows_of(a[name], spec), rows_of(b[name], spec)
    has_sizes = declared.kind in ("boxes", "text", "stream")
    if len(left) != len(right) or (not has_sizes and left.shape != right.shape):
        why = f"one has the shape {list(a[name].shape)}, the other {list(b[name].shape)}"
        raise Invalid(f"output '{name}' cannot be compared", why=why)
    if declared.kind == "boxes":
        sides = (boxes_of(name, answer, declared, spec) for answer in (a, b))
        rows = [_matched(one, other) for one, other in zip(*sides, strict=True)]
    else:
        compare = _COMPARISONS[declared.kind]
        rows = [compare(one, other, declared) for one, other in zip(left, right, strict=True)]
    return _summary(declared.kind, rows)


def _summary(kind: str, rows: Sequence[_Row]) -> OutputAgreement:
    measures = {}
    for name in rows[0][1] if rows else ():
        values = [one[name] for _, one in rows]
        ends: dict[str, Callable[[Sequence[float]], float]] = {"max_": max, "min_": min}
        measures[name] = ends.get(name[:4], _mean)(values)
    differing = tuple(number for number, (is_same, _) in enumerate(rows) if not is_same)
    share = 1 - len(differing) / len(rows) if rows else 1.0
    return OutputAgreement(kind, share, differing, MappingProxyType(measures))


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))


def rows_of(array: Array, spec: TensorSpec | None) -> Array:
    """The rows of an output, in the first dimension."""
    return array if array.ndim and (spec is None or spec.has_batch) else array[None]


# --- by kind --------------------------------------------------------------------------------------


def _classes(a: Array, b: Array, declared: DeclaredOutput) -> _Row:
    if declared.values == "indices":
        is_same = bool((a.ravel() == b.ravel()).all())
        return is_same, {"top_1": float(is_same), "rank_overlap": float(is_same)}
    left, right = ([score.index for score in top_k(one, _TOP)] for one in (a, b))
    is_same = left[:1] == right[:1]
    overlap = len(set(left) & set(right)) / max(len(left), 1)
    return is_same, {"top_1": float(is_same), "rank_overlap": overlap}


def _multilabel(a: Array, b: Array, declared: DeclaredOutput) -> _Row:
    left, right = (probabilities(one, declared) >= declared.threshold for one in (a, b))
    both, either = int((left & right).sum()), int((left | right).sum())
    return both == either, {"jaccard": both / either if either else 1.0}


def _number(a: Array, b: Array, declared: DeclaredOutput) -> _Row:
    gap, relative = gaps(_vector(a), _vector(b))
    within = (gap <= _ABSOLUTE) | (relative <= _RELATIVE)
    return bool(within.all()), {"max_abs": largest(gap), "max_rel": largest(relative)}


def _image(a: Array, b: Array, declared: DeclaredOutput) -> _Row:
    gap, _ = gaps(_vector(a), _vector(b))
    mean = float(gap.mean()) if gap.size else 0.0
    scale = abs(declared.range[1] - declared.range[0])
    return mean <= _IMAGE * scale, {"mean_abs": mean, "max_abs": largest(gap)}


def _vector(row: Array) -> Floats:
    return row.astype(np.float64).ravel()


def _mask(a: Array, b: Array, declared: DeclaredOutput) -> _Row:
    found = []
    for value in np.union1d(np.unique(a), np.unique(b)):
        left, right = a == value, b == value
        found.append((left & right).sum() / (left | right).sum())
    iou = float(np.mean(found)) if found else 1.0
    equal = float((a == b).mean()) if a.size else 1.0
    return iou >= _MASK, {"iou": iou, "equal": equal}


def _embedding(a: Array, b: Array, declared: DeclaredOutput) -> _Row:
    found = cosine(_vector(a), _vector(b))
    return found >= _COSINE, {"cosine": found, "min_cosine": found}


def _text(a: Array, b: Array, declared: DeclaredOutput) -> _Row:
    left, right = joined_text(a, declared), joined_text(b, declared)
    if left == right:
        return True, {"equal": 1.0, "similarity": 1.0}
    matcher = difflib.SequenceMatcher(None, left[:_LONGEST], right[:_LONGEST], autojunk=False)
    return False, {"equal": 0.0, "similarity": matcher.ratio()}


def joined_text(texts: Array, declared: DeclaredOutput) -> str:
    """The texts of an output, one per line; those of a stream are parts of one text."""
    elements = np.asarray(texts, dtype=object).ravel().tolist()
    return ("" if declared.kind == "stream" else "\n").join(
        one.decode("utf-8", "replace") if isinstance(one, bytes) else str(one) for one in elements
    )


_COMPARISONS: Mapping[str, Callable[[Array, Array, DeclaredOutput], _Row]] = MappingProxyType(
    {
        "classes": _classes,
        "multilabel": _multilabel,
        "number": _number,
        "image": _image,
        "mask": _mask,
        "embedding": _embedding,
        "text": _text,
        "stream": _text,
    }
)


# --- boxes ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Boxes:
    """The boxes of one row: `corners` [n, 4] as left, top, right, bottom; `scores`; `classes`."""

    corners: Floats
    scores: Floats
    classes: NDArray[np.int64]


def boxes_of(
    name: str, answer: Mapping[str, Array], declared: DeclaredOutput, spec: TensorSpec | None
) -> list[Boxes]:
    """The boxes of each row whose score is at least the threshold, the highest score first."""
    found = []
    others = [answer.get(one) if one else None for one in (declared.scores, declared.classes)]
    for number, row in enumerate(rows_of(answer[name], spec)):
        corners = _corners(row.astype(np.float64).reshape(-1, 4), declared.format)
        scores, classes = (
            None if one is None else rows_of(one, spec)[number].astype(np.float64).ravel()
            for one in others
        )
        scores = np.ones(len(corners)) if scores is None else scores
        classes = np.zeros(len(corners)) if classes is None else classes
        count = min(len(corners), len(scores), len(classes))
        order = np.argsort(-scores[:count], kind="stable")
        kept = [int(one) for one in order if scores[one] >= declared.threshold]
        found.append(Boxes(corners[kept], scores[kept], classes[kept].astype(np.int64)))
    return found


def _corners(boxes: Floats, form: str) -> Floats:
    one, two, three, four = boxes.T
    if form == "yxyx":
        return np.stack([two, one, four, three], axis=1)
    if form == "xywh":
        return np.stack([one, two, one + three, two + four], axis=1)
    if form == "cxcywh":
        sides = (one - three / 2, two - four / 2, one + three / 2, two + four / 2)
        return np.stack(sides, axis=1)
    same: Floats = boxes
    return same


def _matched(a: Boxes, b: Boxes) -> _Row:
    """Each box of A, the highest score first, takes the best free one of its class in B."""
    free, overlaps = set(range(len(b.corners))), []
    for corners, number in zip(a.corners, a.classes, strict=True):
        rivals = [(_iou(corners, b.corners[one]), one) for one in free if b.classes[one] == number]
        best, place = max(rivals, default=(0.0, -1))
        if best >= _BOX:
            free.discard(place)
            overlaps.append(best)
    total = len(a.corners) + len(b.corners)
    f1 = 2 * len(overlaps) / total if total else 1.0
    return f1 == 1.0, {"f1": f1, "iou": float(np.mean(overlaps)) if overlaps else float(not total)}


def _iou(a: Floats, b: Floats) -> float:
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    shared = max(width, 0.0) * max(height, 0.0)
    areas = sum((one[2] - one[0]) * (one[3] - one[1]) for one in (a, b)) - shared
    return float(shared / areas) if areas > 0 else float(np.array_equal(a, b))


# --- values ---------------------------------------------------------------------------------------


def probabilities(row: Array, declared: DeclaredOutput) -> Floats:
    """The probabilities of a row of classes or labels, in float64."""
    values = row.astype(np.float64).ravel()
    if declared.values != "logits":
        return values
    if declared.kind == "multilabel":
        return np.asarray(1 / (1 + np.exp(-np.clip(values, -700, 700))), np.float64)
    with np.errstate(invalid="ignore"):
        powers = np.exp(values - values.max(initial=-np.inf))
        return np.asarray(powers / powers.sum(), np.float64)
