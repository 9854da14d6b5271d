"""`servegate` within the test's process: its own streams and environment, and no start to wait for.

What is about processes (signals, terminals, streams that are pipes) starts the real program.
"""

import contextlib
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from serve.cli.main import main

SERVEGATE = Path(sys.executable).parent / "servegate"


@dataclass(frozen=True, slots=True)
class Done:
    """A command that has ended."""

    returncode: int
    stdout: str
    stderr: str

    @property
    def events(self) -> list[dict[str, Any]]:
        """What `--json` printed, an event on each line."""
        return [json.loads(line) for line in self.stdout.splitlines()]


def servegate(*words: object, folder: Path | None = None, **environment: str) -> Done:
    """One command, in a folder, with these variables and no others of ours.

    Without a folder there is no state folder either: a checkout may have one, of its own gateway.
    """
    if folder is None:
        environment = {"SERVEGATE_STATE": "/nonexistent"} | environment
    none_of_ours = {name: None for name in os.environ if name.startswith("SERVEGATE_")}
    with (
        contextlib.chdir(folder or Path.cwd()),
        CliRunner().isolation(env=none_of_ours | environment) as (out, err, *_),
    ):
        code = _status([str(word) for word in words])
        sys.stdout.flush()
        sys.stderr.flush()
        return Done(code, out.getvalue().decode(), err.getvalue().decode())


def _status(words: list[str]) -> int:
    """How the process would end. Errors that would be a traceback pass."""
    try:
        main(words)
    except SystemExit as exited:
        assert isinstance(exited.code, int | None), exited.code
        return exited.code or 0
    return 0
