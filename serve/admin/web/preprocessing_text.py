"""The recorded preprocessing in words, a sentence for each step, in the order of the steps."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

_COLOURS = {
    "grey": "greyscale",
    "rgb": "RGB",
    "bgr": "BGR",
}
_LAYOUTS = {
    "HWC": "HWC (height, width, channels)",
    "CHW": "CHW (channels, height, width)",
}
_FORMS = {
    "bytes": "one BYTES element",
    "codepoints": "Unicode code points, one number per character",
    "utf8": "UTF-8, one number per byte",
}
_HIDDEN = frozenset({"kind", "resample", "std", "pad"})  # described with another step


def in_words(preprocessing: Mapping[str, Any]) -> dict[str, list[str]]:
    """What happens to each raw input; of steps that are not known, their names and values."""
    inputs = preprocessing.get("inputs")
    if not isinstance(inputs, Mapping):
        return {}
    return {
        str(name): list(_sentences(steps)) for name, steps in inputs.items() if _is_steps(steps)
    }


def _is_steps(steps: Any) -> bool:
    return isinstance(steps, Mapping) and bool(steps)


def _sentences(steps: Mapping[str, Any]) -> Iterator[str]:
    yield {"image": "Decode the picture", "text": "Read the text"}.get(
        str(steps.get("kind")), f"Read the input ({steps.get('kind')})"
    )
    told = [name for name in _WORDS if name in steps]
    for name in (*told, *(each for each in steps if each not in _WORDS and each not in _HIDDEN)):
        sentence = _WORDS[name](steps[name], steps) if name in _WORDS else f"{name}: {steps[name]}"
        if sentence:
            yield sentence


def _colour(value: Any, steps: Mapping[str, Any]) -> str:
    return f"Convert to {_COLOURS.get(str(value), value)}"


def _resized(value: Any, steps: Mapping[str, Any]) -> str:
    filtered = f" ({steps['resample']} filter)" if "resample" in steps else ""
    if isinstance(value, Mapping):
        return f"Resize the shorter side to {value.get('shortest')} pixels{filtered}"
    return f"Resize to {_by(value)}{filtered}"


def _cropped(value: Any, steps: Mapping[str, Any]) -> str:
    return f"Crop the centre to {_by(value)}"


def _scaled(value: Any, steps: Mapping[str, Any]) -> str:
    first, *rest = value if isinstance(value, list) else [value]
    return f"Scale by {first}" + "".join(f"/{each}" for each in rest)


def _divided(value: Any, steps: Mapping[str, Any]) -> str:
    return f"Divide by {value}"


def _normalised(value: Any, steps: Mapping[str, Any]) -> str:
    std = steps.get("std", [1])
    if _flat(value) == [0] and _flat(std) == [1]:
        return ""
    return (
        f"Subtract the mean ({_listed(value)}), divide by the standard deviation ({_listed(std)})"
    )


def _flat(value: Any) -> list[Any]:
    return sorted(set(value)) if isinstance(value, list) else [value]


def _listed(value: Any) -> str:
    return ", ".join(str(each) for each in (value if isinstance(value, list) else [value]))


def _by(value: Any) -> str:
    sizes = value if isinstance(value, list) else [value]
    return " × ".join(str(size) for size in sizes)


def _laid_out(value: Any, steps: Mapping[str, Any]) -> str:
    return f"Arrange as {_LAYOUTS.get(str(value), value)}"


def _typed(value: Any, steps: Mapping[str, Any]) -> str:
    return f"Convert to {value}"


def _encoded(value: Any, steps: Mapping[str, Any]) -> str:
    return f"Decode as {value}"


def _unicode(value: Any, steps: Mapping[str, Any]) -> str:
    return "" if value == "none" else f"Normalise to Unicode {value}"


def _lower(value: Any, steps: Mapping[str, Any]) -> str:
    return "Convert to lower case" if value else ""


def _stripped(value: Any, steps: Mapping[str, Any]) -> str:
    return "Remove leading and trailing whitespace" if value else ""


def _formed(value: Any, steps: Mapping[str, Any]) -> str:
    return f"Encode as {_FORMS.get(str(value), value)}"


def _long(value: Any, steps: Mapping[str, Any]) -> str:
    return f"Truncate to {value} values, or pad with {steps.get('pad', 0)}"


_WORDS: dict[str, Callable[[Any, Mapping[str, Any]], str]] = {
    "color": _colour,
    "resize": _resized,
    "crop": _cropped,
    "scale": _scaled,
    "divide": _divided,
    "mean": _normalised,
    "layout": _laid_out,
    "encoding": _encoded,
    "normalize": _unicode,
    "lower": _lower,
    "strip": _stripped,
    "as": _formed,
    "length": _long,
    "dtype": _typed,
}
