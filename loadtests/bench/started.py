"""Programs that a benchmark starts: each with its log, all ended when the block is left."""

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

PATIENCE = 60.0  # seconds for anything that starts


class Programs:
    """A context manager; programs end in the reverse order of their start."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = contextlib.ExitStack()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}  # by name

    def __enter__(self) -> "Programs":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    def start(
        self, name: str, argv: Sequence[str], environment: Mapping[str, str] = os.environ
    ) -> "subprocess.Popen[bytes]":
        """Start one; what it says goes to a log in the folder."""
        log = self._stack.enter_context((self._folder / f"{name}.log").open("ab"))
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=dict(environment)
        )
        self._stack.callback(_end, process)
        self.processes[name] = process
        return process

    def wait(
        self, name: str, process: "subprocess.Popen[bytes]", ready: Callable[[], bool]
    ) -> None:
        """Until it is ready; RuntimeError with its log when it ends before, or is late."""
        until = time.monotonic() + PATIENCE
        while not ready():
            if process.poll() is not None or time.monotonic() > until:
                said = (self._folder / f"{name}.log").read_text(errors="replace")[-2000:]
                raise RuntimeError(f"{name} did not start:\n{said}")
            time.sleep(0.05)


def listening(*ports: int) -> bool:
    """Whether somebody accepts connections on all these ports of loopback."""
    for port in ports:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            return False
    return True


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
