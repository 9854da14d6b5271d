"""`outputs.json`: how the outputs of a version are to be read.

    {"outputs": {"scores": {"kind": "classes", "values": "logits", "labels": "labels.txt"}}}

| kind         | a row of the output               | further keys                                  |
|--------------|-----------------------------------|-----------------------------------------------|
| `classes`    | a float for each class, or the    | `values`: logits, probabilities or indices;   |
|              | number of one class               | `labels`: a file with a line for each class   |
| `multilabel` | a float for each label            | `values`: logits or probabilities;            |
|              |                                   | `threshold` (0.5), a probability; `labels`    |
| `number`     | numbers                           | `unit`                                        |
| `text`       | BYTES                             |                                               |
| `image`      | pixels                            | `layout`: HW, HWC or CHW; `range`: [black,    |
|              |                                   | white]                                        |
| `mask`       | [height, width] of class numbers  | `labels`                                      |
| `boxes`      | [n, 4]                            | `format`: xyxy, xywh, cxcywh, yxyx;    |
|              |                                   | `scores`, `classes`: outputs of n values;     |
|              |                                   | `threshold` (0.5), a score; `labels`          |
| `embedding`  | a vector                          |                                               |
| `stream`     | BYTES, of a decoupled model, in   |                                               |
|              | parts: they make one text         |                                               |

A row is what the output holds for one row of the batch, or all of it where there are no batches.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from serve.core.errors import Invalid
from serve.tensors.datatypes import Array
from serve.tensors.metadata import TensorSpec

FLOATS = frozenset({"FP16", "BF16", "FP32", "FP64"})
_WHOLE = frozenset(f"{sign}INT{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64))
_NUMBERS = FLOATS | _WHOLE
_CHANNELS = (1, 3, 4)
_WORDS: Mapping[tuple[str, str], tuple[str, ...]] = MappingProxyType(
    {
        ("classes", "values"): ("logits", "probabilities", "indices"),
        ("multilabel", "values"): ("logits", "probabilities"),
        ("image", "layout"): ("HW", "HWC", "CHW"),
        ("boxes", "format"): ("xyxy", "xywh", "cxcywh", "yxyx"),
    }
)
_KEYS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "classes": frozenset({"values", "labels"}),
        "multilabel": frozenset({"values", "threshold", "labels"}),
        "number": frozenset({"unit"}),
        "text": frozenset(),
        "image": frozenset({"layout", "range"}),
        "mask": frozenset({"labels"}),
        "boxes": frozenset({"format", "scores", "classes", "threshold", "labels"}),
        "embedding": frozenset(),
        "stream": frozenset(),
    }
)
KINDS = tuple(_KEYS)


@dataclass(frozen=True, slots=True)
class DeclaredOutput:
    """How one output is to be read; keys that its kind does not have are empty.

    `labels` is a file beside config.pbtxt. `scores` and `classes` are other outputs. `values` is
    also empty for classes that only Triton's configuration tells of.
    """

    kind: str
    values: str = ""
    labels: str = ""
    threshold: float = 0.5
    unit: str = ""
    layout: str = ""
    range: tuple[float, float] = (0.0, 1.0)
    format: str = ""
    scores: str = ""
    classes: str = ""


Declared = Mapping[str, DeclaredOutput]


def parse_outputs(document: Mapping[str, Any]) -> Declared:
    """Read the document of `outputs.json`; an unknown key or a wrong value is `Invalid`."""
    unknown = sorted(str(key) for key in set(document) - {"outputs"})
    if unknown:
        raise _wrong(f"unknown key '{unknown[0]}'", "the only key is 'outputs'")
    outputs = document.get("outputs")
    if not isinstance(outputs, Mapping):
        raise _wrong("'outputs' is missing", "it maps the name of each output to its kind")
    return MappingProxyType({str(name): _declared(str(name), row) for name, row in outputs.items()})


def kinds_of(
    recorded: Mapping[str, Any], labelled: Collection[str], specs: Mapping[str, TensorSpec]
) -> Declared:
    """The `outputs` of a document that was checked, and the outputs that have label texts.

    An output that is not declared holds classes if Triton's configuration names a label file for
    it; what its values are is not known. All others are plain values. `specs` are the outputs as
    metadata describes them.
    """
    found = dict(parse_outputs({"outputs": recorded}))
    for name in labelled:
        if name in specs and name not in found:
            values = "indices" if specs[name].datatype in _WHOLE else ""
            found[name] = DeclaredOutput("classes", values=values)
    return MappingProxyType(found)


def label_files(declared: Declared) -> dict[str, str]:
    """The label file of each output that names one."""
    return {name: one.labels for name, one in declared.items() if one.labels}


def fitting(
    declared: Declared, answer: Mapping[str, Array], specs: Mapping[str, TensorSpec]
) -> Declared:
    """What can be read as declared in an answer.

    A version may leave sizes open, and another version may have answered. `specs` are the outputs
    as metadata describes them.
    """
    found = {}
    for name, one in declared.items():
        if name in answer and name in specs:
            spec = specs[name]
            batch = (-1,) if spec.has_batch else ()
            actual = replace(spec, shape=(*batch, *answer[name].shape[len(batch) :]))
            if _misfit(one, actual, is_decoupled=True) is None:
                found[name] = one
    return MappingProxyType(found)


def check_outputs(
    declared: Declared, outputs: Mapping[str, TensorSpec], *, is_decoupled: bool
) -> list[tuple[str, str]]:
    """What does not fit the model: a sentence that names the output, and how to mend it.

    `outputs` have the batch dimension, -1, where there is one.
    """
    found = []
    for name, one in declared.items():
        spec = outputs.get(name)
        if spec is None:
            known = ", ".join(outputs) or "none"
            found.append((f"'{name}' is not an output of the model", f"use one of: {known}"))
            continue
        wrong = _misfit(one, spec, is_decoupled=is_decoupled)
        if wrong:
            sentence, fix = wrong
            shape = list(spec.shape)
            found.append((f"output '{name}' ({spec.datatype} {shape}) {sentence}", fix))
        for key in ("scores", "classes"):
            other = getattr(one, key)
            if one.kind == "boxes" and other and other not in outputs:
                known = ", ".join(outputs)
                found.append((f"'{key}' of output '{name}' is '{other}'", f"use one of: {known}"))
    return found


def has_stream(declared: Declared) -> bool:
    """Whether an output comes in parts, so that only a gRPC stream has all of them."""
    return any(one.kind == "stream" for one in declared.values())


def row_shape(spec: TensorSpec) -> tuple[int, ...]:
    """The shape of what belongs to one row of a batch."""
    return spec.shape[1:] if spec.has_batch else spec.shape


# --- one entry ------------------------------------------------------------------------------------


def _wrong(what: str, why: str) -> Invalid:
    return Invalid(what, why=why, try_this="correct outputs.json, see docs/outputs.md")


def _declared(name: str, row: Any) -> DeclaredOutput:
    where = f"outputs.{name}"
    if not isinstance(row, Mapping):
        raise _wrong(f"'{where}' is {row!r}", "it must be an object with the key 'kind'")
    kind = row.get("kind")
    if not isinstance(kind, str) or kind not in _KEYS:
        said = f"is {kind!r}" if "kind" in row else "is missing"
        raise _wrong(f"'{where}.kind' {said}", f"the kinds are {', '.join(KINDS)}")
    unknown = sorted(str(key) for key in set(row) - _KEYS[kind] - {"kind"})
    if unknown:
        keys = ", ".join(sorted(_KEYS[kind])) or "none"
        raise _wrong(f"unknown key '{where}.{unknown[0]}'", f"the keys of {kind} are: {keys}")
    read: dict[str, Any] = {}
    for key in _KEYS[kind]:
        if key in row or (kind, key) in _WORDS or key == "range":
            read[key] = _value(where, kind, key, row)
    return DeclaredOutput(kind, **read)


def _value(where: str, kind: str, key: str, row: Mapping[str, Any]) -> Any:
    value: Any = row.get(key)
    said = f"'{where}.{key}' {f'is {value!r}' if key in row else 'is missing'}"
    if words := _WORDS.get((kind, key)):
        if value not in words:
            raise _wrong(said, f"the values are {', '.join(words)}")
    elif key == "threshold":
        if not _is_number(value) or not 0 <= value <= 1:
            raise _wrong(said, "it must be a number from 0 to 1")
        return float(value)
    elif key == "range":
        is_pair = isinstance(value, list | tuple) and len(value) == 2
        if not is_pair or not all(map(_is_number, value or ())) or value[0] == value[1]:
            raise _wrong(said, "it must be the values of black and white, such as [0, 255]")
        return float(value[0]), float(value[1])
    elif not isinstance(value, str) or not value or len(value) > 200:
        raise _wrong(said, "it must be a text of up to 200 characters")
    return value


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e30


# --- kind and tensor ------------------------------------------------------------------------------


def _misfit(one: DeclaredOutput, spec: TensorSpec, *, is_decoupled: bool) -> tuple[str, str] | None:
    """Why the output cannot be of this kind, and what to do; None if it can."""
    row, datatype = row_shape(spec), spec.datatype
    if one.kind in ("text", "stream") and datatype != "BYTES":
        return f"cannot be '{one.kind}', which needs BYTES", "use number, classes or embedding"
    if one.kind == "stream" and not is_decoupled:
        return "cannot be 'stream': the model is not decoupled", 'use "kind": "text"'
    is_scored = one.kind in ("classes", "multilabel") and one.values != "indices"
    if is_scored and (datatype not in FLOATS or len(row) != 1 or row[0] in (0, 1)):
        fix = 'use "values": "indices"' if datatype in _WHOLE else 'use "kind": "number"'
        return f"cannot be '{one.kind}', which needs a vector of floats for each row", fix
    if one.values == "indices" and (datatype not in _WHOLE or row not in ((), (1,), (-1,))):
        return "cannot hold class indices: that needs one integer for each row", "use logits"
    if one.kind == "embedding" and (datatype not in FLOATS or len(row) != 1):
        return "cannot be 'embedding', which needs a vector of floats for each row", "use number"
    if one.kind == "number" and datatype not in _NUMBERS:
        return "cannot be 'number', which needs a numeric data type", 'use "kind": "text"'
    if one.kind == "image":
        return _no_image(one, row, datatype)
    if one.kind == "mask":
        flat = tuple(size for size in row if size != 1) if len(row) == 3 else row
        if datatype not in _WHOLE | {"BOOL"} or len(flat) != 2:
            return "cannot be 'mask', which needs [height, width] of integers", "use image"
    if one.kind == "boxes" and (datatype not in _NUMBERS or len(row) != 2 or row[1] not in (4, -1)):
        return "cannot be 'boxes', which needs [n, 4] for each row", "use number"
    return None


def _no_image(one: DeclaredOutput, row: Sequence[int], datatype: str) -> tuple[str, str] | None:
    if datatype not in _NUMBERS:
        return "cannot be 'image', which needs a numeric data type", 'use "kind": "number"'
    if len(row) != len(one.layout):
        return (
            f"cannot have the layout {one.layout}, which has {len(one.layout)} dimensions",
            "use HW, HWC or CHW",
        )
    channels = row[one.layout.index("C")] if "C" in one.layout else 1
    if channels not in (*_CHANNELS, -1):
        return f"has {channels} channels in the layout {one.layout}", "use the other layout"
    return None
