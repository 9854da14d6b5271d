"""Traces: when calls came, from a CSV file whose first column tells it."""

import datetime
from collections.abc import Iterable

import numpy as np

from serve.core.errors import Invalid
from serve.workbench.simulator.loads import Floats

_LEAST = 2  # calls


def read_times(lines: Iterable[str], name: str) -> Floats:
    """Seconds from the first call on, ascending.

    The first column is a number of seconds, or a time as ISO 8601 has it, also with more than six
    digits of a second. A first line that is neither is the heading. `Invalid` for anything else.
    """
    found: list[float] = []
    for number, line in enumerate(lines, start=1):
        first = line.partition(",")[0].strip().strip("\"'")
        if not first:
            continue
        seconds = _seconds(first)
        if seconds is not None:
            found.append(seconds)
        elif number > 1:
            raise Invalid(
                f"{name}, line {number}: '{first[:40]}' is not a time",
                why="the first column has to contain seconds, or times such as 2026-01-31 "
                "12:00:00.5",
                try_this="write one line per call, with its time first",
            )
    if len(found) < _LEAST:
        raise Invalid(f"{name} has fewer than {_LEAST} calls")
    times = np.sort(np.array(found, dtype=np.float64))
    return np.asarray(times - times[0], dtype=np.float64)


def _seconds(text: str) -> float | None:
    try:
        seconds = float(text)
    except ValueError:
        return _clock(text)
    return seconds if np.isfinite(seconds) else None


def _clock(text: str) -> float | None:
    whole, dot, rest = text.partition(".")
    digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
    zone = rest[len(digits) :]
    try:
        moment = datetime.datetime.fromisoformat(whole + zone)
        moment = moment.replace(tzinfo=moment.tzinfo or datetime.UTC)
    except ValueError:
        return None
    return moment.timestamp() + (float(f"0.{digits}") if dot and digits else 0.0)
