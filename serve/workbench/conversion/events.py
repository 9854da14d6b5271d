"""What the child process of a conversion says while it works: one line of JSON per event.

| type     | fields                                                | when                         |
|----------|-------------------------------------------------------|------------------------------|
| `stage`  | `stage`, `text`                                       | it begins, the last is over  |
| `share`  | `stage`, `done`, `total`                              | how far a long stage is      |
| `note`   | `text`                                                | something to know            |
| `failed` | `code`, `what`, `why`, `try_this`, `operator`, `node` | last: there is no model      |
| `done`   | `passed`                                              | last: all is in the folder   |

A line of an event begins with `>`. Everything else that the process says is talk of libraries. A
model can print such lines as well, so no more is taken of an event than these fields.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from serve.core.errors import ConversionFailed, GateRefused
from serve.workbench.conversion.faults import FAULTS

MARK = ">"
Tell = Callable[..., None]  # tell("stage", stage="convert", text="…")
OnEvent = Callable[[Mapping[str, Any]], None]  # hears them on the other side
_TYPES = ("stage", "share", "note", "failed", "done")
_TEXTS = ("stage", "text", "code", "what", "why", "try_this", "operator", "node")
_NUMBERS = ("done", "total", "passed")

STAGES: Mapping[str, str] = {
    "open": "reading the source",
    "import": "importing TensorFlow",
    "prepare": "preparing the graph",
    "convert": "converting to ONNX",
    "finish": "simplifying and checking",
    "precision": "changing the precision",
    "determinism": "running the source twice",
    "contract": "comparing signatures",
    "numbers": "comparing results",
    "batch": "checking batch independence",
    "write": "writing the result",
    "serving": "loading the model in Triton",
}


def line_of(kind: str, facts: Mapping[str, Any]) -> str:
    """One event as a line."""
    return MARK + json.dumps({"type": kind, **facts})


def event_of(line: str) -> dict[str, Any] | None:
    """The event of a line, with the fields of the table; None for talk."""
    if not line.startswith(MARK):
        return None
    try:
        page = json.loads(line.removeprefix(MARK))
    except (ValueError, RecursionError):
        return None
    if not isinstance(page, dict) or page.get("type") not in _TYPES:
        return None
    texts = {name: visible(page[name]) for name in _TEXTS if isinstance(page.get(name), str)}
    numbers = {name: page[name] for name in _NUMBERS if isinstance(page.get(name), int)}
    if page["type"] == "share" and not {"done", "total"} <= numbers.keys():
        return None
    return {"type": page["type"], **texts, **numbers}


def visible(text: str) -> str:
    """A text in one line, without what steers a terminal or is no character: `\\x1b` for Escape."""
    if text.isprintable():
        return text
    lines = " | ".join(line.strip() for line in text.strip().splitlines())
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in lines
    )


def failure_facts(error: ConversionFailed) -> dict[str, Any]:
    """The fields of `failed`."""
    names = ("code", "what", "why", "try_this", "operator", "node")
    return {name: getattr(error, name) for name in names}


def failure_of(event: Mapping[str, Any]) -> ConversionFailed:
    """The error that a `failed` event tells."""
    row = FAULTS.get(str(event.get("code")))
    kind = GateRefused if row is not None and row.is_gate else ConversionFailed
    words = {name: str(event.get(name, "")) for name in ("why", "try_this", "operator", "node")}
    return kind(str(event.get("code", "")), str(event.get("what", "")), **words)
