"""Words for people: data on stdout, talk on stderr, exit codes that mean something."""

import json
import sys
from collections.abc import Sequence
from typing import Any

from serve.core.errors import BadRequest as _BadRequest
from serve.core.errors import (
    CheckFailed,
    Conflict,
    ConversionFailed,
    DeadlineExceeded,
    Forbidden,
    GateRefused,
    Invalid,
    NotFound,
    ServegateError,
    TrialFailed,
    TritonMissing,
    Unauthenticated,
    Unavailable,
)
from serve.core.texts import printable

# The first row that matches decides.
EXIT_CODES: tuple[tuple[type[ServegateError], int], ...] = (
    (CheckFailed, 7),
    (TrialFailed, 7),
    (GateRefused, 7),
    (ConversionFailed, 1),
    (Invalid, 2),
    (_BadRequest, 2),
    (NotFound, 3),
    (Unauthenticated, 4),
    (Forbidden, 4),
    (Conflict, 5),
    (Unavailable, 6),
    (TritonMissing, 6),
    (DeadlineExceeded, 8),
    (ServegateError, 1),
)


def exit_code(error: ServegateError) -> int:
    """The command's exit status for an error."""
    return next(code for kind, code in EXIT_CODES if isinstance(error, kind))


def complain(error: ServegateError) -> None:
    """An error on stderr: what happened, why, what to try, and the stable code."""
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True, highlight=False, soft_wrap=True)
    console.print(Text("error: ", style="bold red") + Text(printable(error.what)))
    if isinstance(error, CheckFailed):
        for finding in error.findings:
            console.print(Text("  why: ", style="bold") + Text(printable(finding)))
    elif error.why:
        console.print(Text("  why: ", style="bold") + Text(printable(error.why)))
    if error.try_this:
        console.print(Text("  try: ", style="bold") + Text(printable(error.try_this)))
    console.print(Text(f"  code: {error.code}", style="dim"))


def say(text: str) -> None:
    """Talk: progress and results of changes, on stderr."""
    print(printable(text), file=sys.stderr, flush=True)


def as_json(value: Any) -> None:
    """Data for programs."""
    print(json.dumps(value, indent=2, ensure_ascii=False))


def _writable(row: Sequence[str]) -> list[str]:
    """Without what steers a terminal, or what the encoding of stdout lacks."""
    encoding = sys.stdout.encoding or "utf-8"
    return [printable(one).encode(encoding, "backslashreplace").decode(encoding) for one in row]


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Data for people; tab-separated without a frame when stdout is not a terminal."""
    columns, rows = _writable(columns), [_writable(row) for row in rows]
    if not sys.stdout.isatty():
        print("\t".join(column.lower() for column in columns))
        for row in rows:
            print("\t".join(cell.replace("\n", " ").replace("\t", " ") for cell in row))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(*columns, box=None, pad_edge=False, header_style="bold")
    for row in rows:
        drawn.add_row(*(Text(cell) for cell in row))
    Console(highlight=False).print(drawn)
