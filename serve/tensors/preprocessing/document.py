"""`preprocessing.json` as steps; what is wrong in it is told with its field, why, and the fix.

The fields of `preprocessing.json`, each read as what it has to be; `where` is their path.
"""

from collections.abc import Mapping, Set
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from serve.core.errors import Invalid
from serve.tensors.datatypes import BYTES, numpy_dtype
from serve.tensors.preprocessing.images import FILTERS, MODES
from serve.tensors.preprocessing.steps import (
    MAX_PIXELS,
    ImageSteps,
    Preprocessing,
    Steps,
    TextSteps,
)
from serve.tensors.preprocessing.texts import NORMAL_FORMS

# --- fields ---------------------------------------------------------------------------------------


def wrong(what: str, why: str) -> Invalid:
    """The error for one field."""
    return Invalid(
        f"the recorded preprocessing is wrong: {what}",
        why=why,
        try_this="correct the model's preprocessing.json",
    )


def require_known(where: str, row: Mapping[str, Any], known: Set[str]) -> None:
    """Refuse a key that means nothing: it may be a slip of one that does."""
    unknown = sorted(str(key) for key in set(row) - known)
    if unknown:
        raise wrong(
            f"unknown key '{where}.{unknown[0]}'", f"the keys are {', '.join(sorted(known))}"
        )


def word(where: str, row: Mapping[str, Any], key: str, allowed: tuple[str, ...]) -> str:
    """One of these words, which must be there."""
    value = row.get(key)
    if not isinstance(value, str) or value not in allowed:
        said = f"is {value!r}" if key in row else "is missing"
        raise wrong(f"'{where}.{key}' {said}", f"the values are {', '.join(allowed)}")
    return value


def choice(where: str, row: Mapping[str, Any], key: str, allowed: tuple[str, ...]) -> str:
    """One of these words, or empty where there is none."""
    return word(where, row, key, allowed) if row.get(key) is not None else ""


def truth(where: str, row: Mapping[str, Any], key: str) -> bool:
    """True or false; false where it is missing."""
    value = row.get(key, False)
    if not isinstance(value, bool):
        raise wrong(f"'{where}.{key}' is {value!r}", "it must be true or false")
    return value


def length(
    where: str, row: Mapping[str, Any], key: str, *, least: int, most: int = MAX_PIXELS
) -> int:
    """A whole number between these."""
    value = row.get(key)
    if type(value) is not int or not least <= value <= most:
        said = f"is {value!r}" if key in row else "is missing"
        raise wrong(f"'{where}.{key}' {said}", f"it must be an integer from {least} to {most}")
    return value


def size(where: str, row: Mapping[str, Any], key: str) -> tuple[int, int] | None:
    """[height, width], or None where it is missing."""
    value = row.get(key)
    if value is None:
        return None
    if (
        not isinstance(value, list | tuple)
        or len(value) != 2
        or not all(type(side) is int and side > 0 for side in value)
        or value[0] * value[1] > MAX_PIXELS
    ):
        raise wrong(f"'{where}.{key}' is {value!r}", "it must be [height, width] in pixels")
    return value[0], value[1]


def floats(
    where: str, row: Mapping[str, Any], key: str, default: tuple[float, ...]
) -> tuple[float, ...]:
    """A list of numbers."""
    if key not in row:
        return default
    value = row[key]
    if not isinstance(value, list | tuple) or not all(is_number(each) for each in value):
        raise wrong(f"'{where}.{key}' is {value!r}", "it must be a list of numbers")
    return tuple(float(each) for each in value)


def is_number(value: object) -> bool:
    """Whether a float32 holds it without being rounded to 0 or infinity."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    limits = np.finfo(np.float32)
    return value == 0 or float(limits.tiny) <= abs(value) <= float(limits.max)


# --- document -------------------------------------------------------------------------------------


_KINDS = ("image", "text")
_LAYOUTS = ("HWC", "CHW")
_IMAGE_DTYPES = ("FP32", "FP16", "BF16", "FP64", "UINT8")
_IMAGE_KEYS = frozenset(
    {"kind", "color", "resize", "resample", "crop"}
    | {"scale", "divide", "mean", "std", "layout", "dtype"}
)
_TEXT_DTYPES = {
    "bytes": (BYTES,),
    "codepoints": ("INT32", "INT64"),
    "utf8": ("INT32", "INT64", "UINT8"),
}
_TEXT_KEYS = frozenset(
    {"kind", "encoding", "normalize", "lower", "strip", "as", "length", "pad", "dtype"}
)
_LONGEST_TEXT = 1 << 20


def parse(document: Mapping[str, Any]) -> Preprocessing:
    """Read the document of `preprocessing.json`; an unknown key or a wrong value is `Invalid`."""
    unknown = sorted(str(key) for key in set(document) - {"inputs"})
    if unknown:
        raise wrong(f"unknown key '{unknown[0]}'", "the only key is 'inputs'")
    inputs = document.get("inputs")
    if not isinstance(inputs, Mapping):
        raise wrong("'inputs' is missing", "it maps each input's name to its steps")
    return Preprocessing(
        MappingProxyType({str(name): _steps(f"inputs.{name}", row) for name, row in inputs.items()})
    )


def _steps(where: str, row: Any) -> Steps:
    """One entry of `inputs`."""
    if not isinstance(row, Mapping):
        raise wrong(f"'{where}' is {row!r}", "it must be an object with the steps")
    if row.get("kind") == "text":
        require_known(where, row, _TEXT_KEYS)
        return _text_steps(where, row)
    require_known(where, row, _IMAGE_KEYS)
    word(where, row, "kind", _KINDS)
    return _image_steps(where, row)


def _image_steps(where: str, row: Mapping[str, Any]) -> ImageSteps:
    color = word(where, row, "color", tuple(MODES))
    channels = 1 if color == "grey" else 3
    resize, shortest = _resize(where, row)
    is_resized = resize is not None or shortest > 0
    steps = ImageSteps(
        color=color,
        layout=word(where, row, "layout", _LAYOUTS),
        dtype=word(where, row, "dtype", _IMAGE_DTYPES),
        resize=resize,
        shortest=shortest,
        resample=word(where, row, "resample", tuple(FILTERS)) if is_resized else "",
        crop=size(where, row, "crop"),
        scale=_scale(where, row),
        divide=_divide(where, row),
        mean=_per_channel(where, row, "mean", channels, (0.0,)),
        std=_per_channel(where, row, "std", channels, (1.0,)),
    )
    _require_consistent(where, row, steps)
    return steps


def _require_consistent(where: str, row: Mapping[str, Any], steps: ImageSteps) -> None:
    """What no step is wrong about alone."""
    if any(std <= 0 for std in steps.std):
        raise wrong(f"'{where}.std' is {list(steps.std)}", "the numbers must be above 0")
    left = steps.resize or ((steps.shortest,) * 2 if steps.shortest else None)
    if steps.crop is not None and left is not None:
        beyond = [cut > side for cut, side in zip(steps.crop, left, strict=True)]
        if any(beyond) if steps.resize else all(beyond):  # of the longer side nothing is known
            raise wrong(
                f"'{where}.crop' is {row['crop']!r}",
                "it is larger than the result of 'resize'",
            )
    plain = (
        steps.scale[0] == steps.scale[1],
        steps.divide == 1,
        set(steps.mean) == {0},
        set(steps.std) == {1},
    )
    if steps.dtype == "UINT8":
        if not all(plain):
            raise wrong(
                f"'{where}.dtype' is UINT8",
                "UINT8 allows no scale, divide, mean or std",
            )
        return
    _require_in_range(where, steps)


def _require_in_range(where: str, steps: ImageSteps) -> None:
    """No pixel may become infinite."""
    dtype = np.dtype(np.float32) if steps.dtype == "FP64" else numpy_dtype(steps.dtype)
    single, largest = float(np.finfo(np.float32).max), float(np.finfo(dtype).max)
    scaled = 255 * steps.scale[0] / steps.scale[1] / steps.divide
    channels = max(len(steps.mean), len(steps.std))
    means, stds = (list(each) * (channels // len(each)) for each in (steps.mean, steps.std))
    between = [abs(pixel - mean) for pixel in (0.0, scaled) for mean in means]
    ends = [
        abs(pixel - mean) / std
        for pixel in (0.0, scaled)
        for mean, std in zip(means, stds, strict=True)
    ]
    if max(abs(scaled), *between) > single or max(ends) > largest:
        raise wrong(f"'{where}.dtype' is {steps.dtype}", "white or black does not fit its range")


def _resize(where: str, row: Mapping[str, Any]) -> tuple[tuple[int, int] | None, int]:
    """The exact size, or the length of the shortest side."""
    value = row.get("resize")
    if not isinstance(value, Mapping):
        return size(where, row, "resize"), 0
    require_known(f"{where}.resize", value, frozenset({"shortest"}))
    return None, length(f"{where}.resize", value, "shortest", least=1)


def _scale(where: str, row: Mapping[str, Any]) -> tuple[float, float]:
    scale = floats(where, row, "scale", (1.0, 1.0))
    if len(scale) != 2 or scale[1] == 0:
        raise wrong(f"'{where}.scale' is {row['scale']!r}", "it must be [a, b], and b not 0")
    a, b = scale
    if not is_number(a / b):
        raise wrong(f"'{where}.scale' is {row['scale']!r}", "a / b must be a float32")
    return a, b


def _divide(where: str, row: Mapping[str, Any]) -> float:
    value = row.get("divide", 1)
    if not is_number(value) or value == 0:
        raise wrong(f"'{where}.divide' is {value!r}", "it must be a number other than 0")
    if "divide" in row and "scale" in row:
        raise wrong(f"'{where}' has both 'scale' and 'divide'", "they are one step: keep one")
    return float(value)


def _per_channel(
    where: str, row: Mapping[str, Any], key: str, channels: int, default: tuple[float, ...]
) -> tuple[float, ...]:
    values = floats(where, row, key, default)
    if len(values) not in (1, channels):
        raise wrong(
            f"'{where}.{key}' has {len(values)} numbers",
            f"color {row['color']} needs 1 or {channels}",
        )
    return values


def _text_steps(where: str, row: Mapping[str, Any]) -> TextSteps:
    becomes = word(where, row, "as", tuple(_TEXT_DTYPES))
    choice(where, row, "encoding", ("utf-8",))
    is_element = becomes == "bytes"
    if is_element:
        for key in sorted({"length", "pad"} & set(row)):
            raise wrong(f"'{where}.{key}' is {row[key]!r}", "an element of BYTES has any length")
    dtypes = _TEXT_DTYPES[becomes]
    dtype = BYTES if is_element and "dtype" not in row else word(where, row, "dtype", dtypes)
    steps = TextSteps(
        becomes,
        dtype,
        normalize=choice(where, row, "normalize", NORMAL_FORMS),
        lower=truth(where, row, "lower"),
        strip=truth(where, row, "strip"),
        length=length(where, row, "length", least=1, most=_LONGEST_TEXT) if "length" in row else 0,
    )
    return steps if "pad" not in row else _padded(where, row, steps)


def _padded(where: str, row: Mapping[str, Any], steps: TextSteps) -> TextSteps:
    pad = row["pad"]
    limits = np.iinfo(numpy_dtype(steps.dtype))
    if not steps.length:
        raise wrong(f"'{where}.pad' is {pad!r}", "'pad' needs 'length'")
    if type(pad) is not int or not limits.min <= pad <= limits.max:
        raise wrong(f"'{where}.pad' is {pad!r}", f"it must be an integer of {steps.dtype}")
    return replace(steps, pad=pad)
