"""How the child process of a conversion speaks, and what it measures while it does.

Only the child uses it. Each event is one line on stdout. It stands between two line ends, because a
library may have left half a line there.
"""

import json
import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from serve.workbench.conversion.events import STAGES, line_of
from serve.workbench.conversion.report import ConversionStage

_LONGEST = 2000  # characters of one text
_WIDEST = 2500  # bytes of a text as JSON: six of them fit into a line, which ends at 16 KiB
_STDOUT = 1


class EventTeller:
    """`telling("stage", stage="convert")` tells, and takes the time; it is a `Tell`.

    `stage` is the one that goes on, `warnings` are the texts of all notes.
    """

    def __init__(
        self,
        write: Callable[[str], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.stage = ""
        self.warnings: list[str] = []
        self._write = write or _print
        self._clock = clock
        self._began = clock()
        self._seconds: dict[str, float] = {}

    def __repr__(self) -> str:
        return f"<EventTeller {self.stage} {self._seconds}>"

    def __call__(self, kind: str, **facts: Any) -> None:
        if kind == "stage":
            self._turn(str(facts.get("stage", "")))
            facts.setdefault("text", STAGES.get(self.stage, self.stage))
        elif kind == "note":
            self.warnings.append(str(facts.get("text", "")))
        self._write(line_of(kind, _short(facts)))

    @property
    def stages(self) -> tuple[ConversionStage, ...]:
        """All stages up to now with their times, in the order in which they first began."""
        self._turn(self.stage)
        return tuple(
            ConversionStage(name, round(seconds, 3)) for name, seconds in self._seconds.items()
        )

    def _turn(self, stage: str) -> None:
        now = self._clock()
        if self.stage:
            self._seconds[self.stage] = self._seconds.get(self.stage, 0.0) + now - self._began
        if stage:
            self._seconds.setdefault(stage, 0.0)
        self.stage, self._began = stage, now


def _short(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _cut(value) if isinstance(value, str) else value for name, value in facts.items()}


def _cut(text: str) -> str:
    kept = text[:_LONGEST]
    while len(json.dumps(kept)) > _WIDEST:
        kept = kept[: len(kept) * 3 // 4]
    return kept if kept == text else f"{kept}…"


def _print(line: str) -> None:
    os.write(_STDOUT, f"\n{line}\n".encode())
