"""Traces: the starts of calls that were made somewhere, from a column of a CSV file.

Public traces look like this (Azure's of 2023, after its header; seconds are as good as dates):

    TIMESTAMP,ContextTokens,GeneratedTokens
    2023-11-16 18:17:03.9799600,4808,10

The first row in which a field reads as a time tells which column it is; one row before it may be
a header.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from serve.core.errors import Invalid

_EXAMPLE = "use a CSV file with a column of seconds, or of dates such as 2023-11-16 18:17:03.98"


def read_trace(path: Path, *, speed: float = 1.0) -> tuple[float, ...]:
    """The starts in seconds from the first of them, in order, `speed` times as fast."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            times = sorted(_times(path, csv.reader(lines)))
    except OSError as error:
        why = error.strerror or str(error)
        raise Invalid(f"cannot read the trace {path}", why=why, try_this=_EXAMPLE) from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise Invalid(
            f"the trace {path} is not a CSV file", why=str(error), try_this=_EXAMPLE
        ) from error
    if not times:
        raise Invalid(
            f"the trace {path} has no times", why="the file has no rows", try_this=_EXAMPLE
        )
    return tuple((each - times[0]) / speed for each in times)


def _times(path: Path, rows: Iterable[list[str]]) -> Iterable[float]:
    column = -1
    for number, row in enumerate(rows, start=1):
        if not any(row):
            continue
        if column < 0:
            column = next((at for at, text in enumerate(row) if _time(text) is not None), -1)
        found = _time(row[column]) if 0 <= column < len(row) else None
        if found is not None:
            yield found
        elif column >= 0 or number > 1:  # no header
            raise Invalid(
                f"row {number} of the trace {path} has no time",
                why=f"the row is {','.join(row)[:60]!r}"
                + (f", and the times are in column {column + 1}" if column >= 0 else ""),
                try_this=_EXAMPLE,
            )


def _time(text: str) -> float | None:
    try:
        seconds = float(text)
    except ValueError:
        try:
            date = datetime.fromisoformat(text.strip())
            # A date without a zone as one of UTC: no clock is put back there.
            seconds = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            return None
    return seconds if math.isfinite(seconds) else None
