"""Texts through their steps: Unicode in, one element of BYTES or a row of numbers out."""

import unicodedata
from typing import Literal, cast

import numpy as np

from serve.core.errors import Invalid
from serve.tensors.datatypes import Array, numpy_dtype
from serve.tensors.preprocessing.steps import TextSteps

NORMAL_FORMS = ("NFC", "NFKC")


def text_tensor(data: bytes, steps: TextSteps) -> Array:
    """The tensor of one text, without a batch dimension: [] for BYTES, else [length]."""
    text = _cleaned(_decoded(data), steps)
    if steps.becomes == "bytes":
        element: Array = np.empty((), dtype=object)
        element[()] = text.encode()
        return element
    numbers = list(text.encode()) if steps.becomes == "utf8" else [ord(each) for each in text]
    if steps.length:
        numbers = numbers[: steps.length]
        numbers += [steps.pad] * (steps.length - len(numbers))
    return np.array(numbers, dtype=numpy_dtype(steps.dtype))


def _decoded(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise Invalid(
            "the text cannot be read", why=str(error), try_this="save it as UTF-8"
        ) from error


def _cleaned(text: str, steps: TextSteps) -> str:
    """Steps 2 to 4."""
    if steps.normalize:
        form = cast(Literal["NFC", "NFKC"], steps.normalize)
        text = unicodedata.normalize(form, text)
    if steps.lower:
        text = text.lower()
    return text.strip() if steps.strip else text
