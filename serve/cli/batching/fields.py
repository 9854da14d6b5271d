"""`--field PATH=VALUE`: any field of a serving configuration by its path, with a value in JSON.

dynamic_batching.max_queue_delay_microseconds=500
dynamic_batching.priority_queue_policy.2.max_queue_size=10
instance_group[0].kind=KIND_CPU
sequence_batching=null
"""

import json
import re
from typing import Any

from serve.core.errors import Invalid

_PART = re.compile(r"\[(\d{1,6})\]|\.?([^.\[\]]+)")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*\Z")
_EXAMPLE = "--field dynamic_batching.max_queue_delay_microseconds=500"


def put_field(fields: dict[str, Any], text: str) -> None:
    """Set one field within `fields`, or remove it: its value is `null` then."""
    from serve.triton.config_revisions import FIELDS

    path, equals, said = text.partition("=")
    steps = _steps(path)
    if not (equals and steps):
        raise Invalid(
            f"--field: '{text}' is not valid", why="expected PATH=VALUE", try_this=_EXAMPLE
        )
    if steps[0] not in FIELDS:
        raise Invalid(
            f"--field: '{steps[0]}' cannot be changed",
            why=f"the serving configuration has only the fields {', '.join(FIELDS)}",
            try_this=_EXAMPLE,
        )
    value = _value(said, path)
    *outer, last = steps
    inside: Any = fields
    for step in outer:
        inside = _entered(inside, step, path)
    if isinstance(inside, list):
        _put_at(inside, last, value, path)
    elif value is None:
        inside.pop(last, None)
    else:
        inside[last] = value


def _steps(path: str) -> list[str]:
    """The names and numbers of a path; none when it cannot be read."""
    found = list(_PART.finditer(path))
    if "".join(each[0] for each in found) != path:
        return []
    return [each[1] or each[2] for each in found]


def _value(said: str, path: str) -> Any:
    """JSON, or one bare word, as the words of enumerations are."""
    try:
        return json.loads(said)
    except (ValueError, RecursionError) as error:
        if _WORD.match(said):
            return said
        raise Invalid(
            f"--field: the value of '{path}' is not valid JSON", why=str(error), try_this=_EXAMPLE
        ) from error


def _entered(inside: Any, step: str, path: str) -> Any:
    """What lies below; made where there is nothing yet."""
    if isinstance(inside, list):
        at = _index(step, len(inside), path)
        if at == len(inside):
            inside.append({})
        inside = inside[at]
    else:
        empty: Any = [] if step in ("instance_group", "model_warmup", "resources") else {}
        inside = inside.setdefault(step, empty)
    if not isinstance(inside, dict | list):
        raise Invalid(
            f"--field: '{path}' does not exist", why=f"'{step}' is a value without fields"
        )
    return inside


def _put_at(inside: list[Any], step: str, value: Any, path: str) -> None:
    at = _index(step, len(inside), path)
    if value is None:
        del inside[at : at + 1]
    else:
        inside[at : at + 1] = [value]


def _index(step: str, count: int, path: str) -> int:
    """A place in a list, or the one behind its end."""
    if not step.isdigit() or int(step) > count:
        raise Invalid(
            f"--field: there is no '{step}' in '{path}'",
            why=f"expected an index from 0 to {count}",
            try_this="--field instance_group[0].count=2",
        )
    return int(step)
