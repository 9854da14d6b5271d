"""The recorded preprocessing in words, a sentence for each step, in the order of the steps."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

_COLOURS = {
    "grey": "as shades of grey",
    "rgb": "as red, green, blue",
    "bgr": "as blue, green, red",
}
_LAYOUTS = {
    "HWC": "height, width, channels",
    "CHW": "channels, height, width",
}
_FORMS = {
    "bytes": "one element of BYTES",
    "codepoints": "a number for each character",
    "utf8": "a number for each byte of UTF-8",
}
_HIDDEN = frozenset({"kind", "resample", "std", "pad"})  # told with another step


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
    yield {"image": "A picture is read", "text": "A text is read"}.get(
        str(steps.get("kind")), f"{steps.get('kind')} is read"
    )
    told = [name for name in _WORDS if name in steps]
    for name in (*told, *(each for each in steps if each not in _WORDS and each not in _HIDDEN)):
        sentence = _WORDS[name](steps[name], steps) if name in _WORDS else f"{name}: {steps[name]}"
        if sentence:
            yield sentence


def _colour(value: Any, steps: Mapping[str, Any]) -> str:
    return _COLOURS.get(str(value), f"in colours {value}")


def _resized(value: Any, steps: Mapping[str, Any]) -> str:
    filtered = f" with the filter {steps['resample']}" if "resample" in steps else ""
    if isinstance(value, Mapping):
        return f"made {value.get('shortest')} pixels long on the shortest side{filtered}"
    return f"made {_by(value)} pixels{filtered}"


def _cropped(value: Any, steps: Mapping[str, Any]) -> str:
    return f"{_by(value)} pixels cut out of the middle"


def _scaled(value: Any, steps: Mapping[str, Any]) -> str:
    first, *rest = value if isinstance(value, list) else [value]
    return f"pixels times {first}" + "".join(f" / {each}" for each in rest)


def _divided(value: Any, steps: Mapping[str, Any]) -> str:
    return f"pixels divided by {value}"


def _normalised(value: Any, steps: Mapping[str, Any]) -> str:
    std = steps.get("std", [1])
    if _flat(value) == [0] and _flat(std) == [1]:
        return ""
    return f"minus the mean {_listed(value)}, divided by {_listed(std)}"


def _flat(value: Any) -> list[Any]:
    return sorted(set(value)) if isinstance(value, list) else [value]


def _listed(value: Any) -> str:
    return ", ".join(str(each) for each in (value if isinstance(value, list) else [value]))


def _by(value: Any) -> str:
    sizes = value if isinstance(value, list) else [value]
    return " × ".join(str(size) for size in sizes)


def _laid_out(value: Any, steps: Mapping[str, Any]) -> str:
    return f"laid out as {_LAYOUTS.get(str(value), value)}"


def _typed(value: Any, steps: Mapping[str, Any]) -> str:
    return f"as {value}"


def _encoded(value: Any, steps: Mapping[str, Any]) -> str:
    return f"decoded as {value}"


def _unicode(value: Any, steps: Mapping[str, Any]) -> str:
    return "" if value == "none" else f"normalised to Unicode's {value}"


def _lower(value: Any, steps: Mapping[str, Any]) -> str:
    return "in lower case" if value else ""


def _stripped(value: Any, steps: Mapping[str, Any]) -> str:
    return "without white space at both ends" if value else ""


def _formed(value: Any, steps: Mapping[str, Any]) -> str:
    return f"as {_FORMS.get(str(value), value)}"


def _long(value: Any, steps: Mapping[str, Any]) -> str:
    return f"cut to {value} numbers, or filled up with {steps.get('pad', 0)}"


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
