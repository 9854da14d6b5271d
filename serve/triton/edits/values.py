"""How people write the values of a serving configuration, and what they mean to Triton.

| written                                              | means                                     |
|------------------------------------------------------|-------------------------------------------|
| `500us`, `2ms`, `1.5s`, `1m`, `0`                    | a time; in microseconds                   |
| `4,8`, `none`                                        | preferred batch sizes                     |
| `size=100,timeout=50ms,action=reject,override=yes`   | a queue policy, or some of it             |
| `2:size=10`, `2:none`                                | the policy of one priority                |
| `2`, `cpu:2`, `gpu:1@0,1`                            | a group of instances                      |
| `R:2`, `R:2:global`                                  | a resource of the rate limiter            |
| `batch=8,data=random,count=2,dims=x:3x224x224`       | a sample of warm-up                       |

`flag` is what the value is called where it was written: a flag, or a field of a form.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from serve.core.errors import Invalid

NONE = "none"
_UNITS = {"us": 1, "µs": 1, "ms": 1000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000}
_TIME = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)\s*([a-zµ]*)\Z")
_GROUP = re.compile(r"(?:([a-z]+):)?(\d{1,6})(?:@(\d{1,4}(?:,\d{1,4})*))?\Z")
_KINDS = {"cpu": "KIND_CPU", "gpu": "KIND_GPU", "auto": "KIND_AUTO", "model": "KIND_MODEL"}
_ACTIONS = {"reject": "REJECT", "delay": "DELAY"}
_ANSWERS = {"yes": True, "no": False, "true": True, "false": False}
_DATA = {"zero": "zero_data", "random": "random_data"}


@dataclass(frozen=True, slots=True)
class InstanceGroup:
    """Instances. `kind` is empty where it is to stay as it is, or else Triton's word."""

    count: int
    kind: str = ""
    gpus: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class WarmupSample:
    """A sample of warm-up. `data` is the name of Triton's field; `dims` are sizes by input."""

    batch: int
    data: str = "zero_data"
    count: int = 0
    dims: Mapping[str, Sequence[int]] = field(default_factory=dict)


def microseconds(text: str, flag: str) -> int:
    """A time; `Invalid` when it has no unit."""
    example = f"{flag} 500us, {flag} 2ms or {flag} 0"
    found = _TIME.match(text.strip())
    if found is None or found[2] not in {*_UNITS, ""}:
        raise Invalid(
            f"{flag}: '{text}' is not a time", why="expected a number and a unit", try_this=example
        )
    number, unit = Decimal(found[1]), found[2]
    if not unit and number:
        raise Invalid(
            f"{flag}: '{text}' has no unit",
            why="it could be microseconds, milliseconds or seconds",
            try_this=f"{flag} {text}us, {flag} {text}ms or {flag} {text}s",
        )
    count = number * _UNITS.get(unit, 1)
    if count != int(count):
        raise Invalid(
            f"{flag}: '{text}' is too precise",
            why="Triton's unit is microseconds",
            try_this=example,
        )
    return int(count)


def sizes(text: str, flag: str) -> list[int]:
    """Batch sizes; empty for `none`."""
    if text.strip() == NONE:
        return []
    words = [word.strip() for word in text.split(",")]
    return [whole(word, flag, f"{flag} 4,8 or {flag} none") for word in words]


def policy(text: str, flag: str) -> dict[str, Any] | None:
    """What is said of a queue policy, in the fields of `ModelQueuePolicy`; None for `none`."""
    if text.strip() == NONE:
        return None
    example = f"{flag} size=100,timeout=50ms,action=reject"
    said: dict[str, Any] = {}
    for name, value in _pairs(text, flag, example):
        if name == "size":
            said["max_queue_size"] = whole(value, f"{flag} size", example)
        elif name == "timeout":
            said["default_timeout_microseconds"] = microseconds(value, f"{flag} timeout")
        elif name == "action":
            said["timeout_action"] = _one_of(_ACTIONS, value, f"{flag} action")
        elif name == "override":
            said["allow_timeout_override"] = _one_of(_ANSWERS, value, f"{flag} override")
        else:
            raise _strange(name, flag, "size, timeout, action and override", example)
    return said


def prioritised(text: str, flag: str) -> tuple[int, dict[str, Any] | None]:
    """A priority and what is said of its policy."""
    level, _, rest = text.partition(":")
    example = f"{flag} 2:size=10,timeout=5ms"
    return whole(level, flag, example), policy(rest, flag)


def group(text: str, flag: str) -> InstanceGroup:
    """A group of instances."""
    found = _GROUP.match(text.strip())
    if found is None:
        raise Invalid(
            f"{flag}: '{text}' is not a number of instances",
            why="expected a number, optionally with the device before it",
            try_this=f"{flag} 2, {flag} cpu:2, {flag} gpu:1 or {flag} gpu:1@0,1",
        )
    kind = _one_of(_KINDS, found[1], flag) if found[1] else ""
    gpus = tuple(int(number) for number in found[3].split(",")) if found[3] else ()
    return InstanceGroup(int(found[2]), kind or ("KIND_GPU" if gpus else ""), gpus)


def resource(text: str, flag: str) -> dict[str, Any]:
    """A resource, in the fields of `ModelRateLimiter.Resource`."""
    name, _, rest = text.partition(":")
    count, _, scope = rest.partition(":")
    example = f"{flag} R:1 or {flag} R:1:global"
    if not name or scope not in ("", "global"):
        raise Invalid(
            f"{flag}: '{text}' is not a resource", why="expected NAME:COUNT", try_this=example
        )
    said: dict[str, Any] = {"name": name, "count": whole(count, flag, example)}
    return {**said, "global": True} if scope else said


def sample(text: str, flag: str) -> WarmupSample:
    """A sample of warm-up."""
    example = f"{flag} batch=8,data=zero,count=2 or {flag} none"
    batch, data, count = 1, "zero_data", 0
    dims: dict[str, Sequence[int]] = {}
    for name, value in _pairs(text, flag, example):
        if name == "batch":
            batch = whole(value, f"{flag} batch", example)
        elif name == "count":
            count = whole(value, f"{flag} count", example)
        elif name == "data":
            data = _one_of(_DATA, value, f"{flag} data")
        elif name == "dims":
            tensor, _, shape = value.rpartition(":")
            words = shape.split("x")
            dims[tensor] = [whole(word, f"{flag} dims", f"dims={tensor}:3x224") for word in words]
        else:
            raise _strange(name, flag, "batch, data, count and dims", example)
    return WarmupSample(batch, data, count, dims)


def _pairs(text: str, flag: str, example: str) -> list[tuple[str, str]]:
    found = []
    for part in text.split(","):
        name, equals, value = part.strip().partition("=")
        if not equals:
            raise Invalid(
                f"{flag}: '{part}' has no value", why="expected NAME=VALUE,…", try_this=example
            )
        found.append((name.strip(), value.strip()))
    return found


def whole(text: str, flag: str, example: str) -> int:
    """A number from 0; `Invalid` for anything else."""
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise Invalid(
            f"{flag}: '{text}' is not a number",
            why="expected an integer, 0 or more",
            try_this=example,
        )
    return int(text)


def _one_of(words: Mapping[str, Any], text: str, flag: str) -> Any:
    if text not in words:
        raise Invalid(
            f"{flag}: unknown value '{text}'",
            why=f"the values are {', '.join(words)}",
            try_this=next(iter(words)),
        )
    return words[text]


def _strange(name: str, flag: str, known: str, example: str) -> Invalid:
    return Invalid(f"{flag}: unknown name '{name}'", why=f"the names are {known}", try_this=example)
