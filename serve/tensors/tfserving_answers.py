"""Tensors → the JSON answers of TensorFlow Serving's REST API.

    rows     {"predictions": [value, …]}   or, of several outputs, [{name: value, …}, …]
    columns  {"outputs": tensor}           or {name: tensor, …}

Numbers are written as TensorFlow Serving writes them: a float32 in as few digits as give it back,
whole ones with `.0`, and NaN, Infinity and -Infinity as such. Strings pass byte by byte, except
those of an output whose name ends in `_bytes`, which are `{"b64": "…"}`.
Source: `util/json_tensor.cc`, and "RESTful API" of TensorFlow Serving's documentation.
"""

import base64
import json
import math
from array import array
from collections.abc import Iterable, Mapping, Sequence

from serve.core.errors import BadRequest
from serve.tensors.tfserving_tensors import BYTES, FLOATS, RawTensor, Shape, unpack

_SPECIAL = {"nan": "NaN", "-nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def predictions_json(outputs: Mapping[str, RawTensor]) -> bytes:
    """The answer to a request of rows; every output has as many as the others."""
    size = _batch_size(outputs)
    rows = {
        name: _nested(_texts(tensor, name), tensor.shape[1:], size)
        for name, tensor in outputs.items()
    }
    if len(rows) == 1:
        (texts,) = rows.values()
    else:
        names = [_text(name) for name in rows]
        texts = [
            "{"
            + ", ".join(f"{name}: {value}" for name, value in zip(names, row, strict=True))
            + "}"
            for row in zip(*rows.values(), strict=True)
        ]
    return _encoded("predictions", _listed(texts))


def outputs_json(outputs: Mapping[str, RawTensor]) -> bytes:
    """The answer to a request of columns."""
    texts = {
        name: _nested(_texts(tensor, name), tensor.shape, 1)[0] for name, tensor in outputs.items()
    }
    if len(texts) == 1:
        return _encoded("outputs", next(iter(texts.values())))
    items = ", ".join(f"{_text(name)}: {text}" for name, text in texts.items())
    return _encoded("outputs", "{" + items + "}")


def classes_json(scores: RawTensor, labels: Sequence[Sequence[bytes]]) -> bytes:
    """The answer to a classify request: for each example its pairs of label and score."""
    count = scores.shape[1]
    numbers = _texts(scores, "")
    rows = []
    for number, names in enumerate(labels):
        values = numbers[number * count : (number + 1) * count]
        pairs = zip(names, values, strict=True)
        rows.append(_listed(f"[{_text_of(name)}, {value}]" for name, value in pairs))
    return _encoded("results", _listed(rows))


def values_json(values: RawTensor) -> bytes:
    """The answer to a regress request: one number for each example."""
    return _encoded("results", _listed(_texts(values, "")))


def _batch_size(outputs: Mapping[str, RawTensor]) -> int:
    size = -1
    for name, tensor in outputs.items():
        if not tensor.shape:
            raise BadRequest(f"Tensor name: {name} has no shape information ")
        if size not in (-1, tensor.shape[0]):
            raise BadRequest(
                f"Tensor name: {name} has inconsistent batch size: {tensor.shape[0]} "
                f"expecting: {size}"
            )
        size = tensor.shape[0]
    if size < 0:
        raise BadRequest("Cannot convert empty tensor map to JSON")
    return size


def _nested(texts: Sequence[str], shape: Shape, count: int) -> Sequence[str]:
    """So many texts, each of which is nested lists of this shape."""
    for depth in range(len(shape) - 1, -1, -1):
        size, lists = shape[depth], count * math.prod(shape[:depth])
        texts = [_listed(texts[at * size : (at + 1) * size]) for at in range(lists)]
    return texts


def _texts(tensor: RawTensor, name: str) -> Sequence[str]:
    """Each element as JSON."""
    elements = unpack(tensor)
    if tensor.datatype in FLOATS:
        return _decimals(elements, "d" if tensor.datatype == "FP64" else "f")
    if tensor.datatype == "BOOL":
        return ["true" if element else "false" for element in elements]
    if tensor.datatype != BYTES:
        return [str(element) for element in elements]
    if name.endswith("_bytes"):
        return [f'{{"b64": "{base64.b64encode(element).decode()}"}}' for element in elements]
    return [_text_of(element) for element in elements]


def _decimals(values: Sequence[float], code: str) -> list[str]:
    """Six digits where they give the value back, else as many as the datatype needs."""
    digits, texts = 9 if code == "f" else 17, []
    short = [f"{value:g}" for value in values]
    back = array(code, map(float, short))
    for value, text, read in zip(values, short, back, strict=True):
        if read != value:  # NaN is not itself, either
            text = f"{value:.{digits}g}"
        if "." not in text and "e" not in text:
            text = _SPECIAL.get(text) or f"{text}.0"
        texts.append(text)
    return texts


def _text_of(element: bytes) -> str:
    return _text(element.decode("utf-8", "surrogateescape"))


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _listed(texts: Iterable[str]) -> str:
    return f"[{', '.join(texts)}]"


def _encoded(key: str, text: str) -> bytes:
    return f'{{"{key}": {text}}}'.encode("utf-8", "surrogateescape")
