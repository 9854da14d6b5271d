"""Processes for tests that begin at once: forked from one that has imported everything before.

A Python of its own takes a second until it has the store, the storage and NumPy. What runs here is
a function of a module that can be imported by its name, so not of a test module.
"""

import multiprocessing
import os
from collections.abc import Callable
from typing import Any

Work = Callable[..., None]  # its first argument is a multiprocessing.connection.Connection

PATIENCE = 60.0  # seconds; a bound for what takes one
_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload(
    [  # only what is installed is found: a test's own modules are not
        "pytest",
        "uvloop",
        "serve.app.sync",
        "serve.cli.main",
        "serve.control.inventory",
        "serve.control.publishing.publications",
        "serve.control.reconciling.reconciler",
        "serve.control.storing.postgres",
        "serve.control.artifacts.storage",
        "serve.proxy.gateway",
        "serve.triton.quarantine",
    ]
)


class Forked:
    """A process that does `work(talk, *arguments)`; what it sends, `hear` gives."""

    def __init__(self, work: Work, *arguments: object) -> None:
        self._talk, theirs = _forks.Pipe()
        self._process = _forks.Process(target=work, args=(theirs, *arguments), daemon=True)
        self._process.start()
        theirs.close()

    def __enter__(self) -> "Forked":
        return self

    def __exit__(self, *exc: object) -> None:
        self.kill()
        self._talk.close()

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self._process.is_alive()

    def hear(self) -> Any:
        """The next thing that it says; EOFError when it has ended and said all."""
        assert self._talk.poll(PATIENCE), "it says nothing"
        return self._talk.recv()

    def tell(self, word: object = None) -> None:
        """Let it go on."""
        self._talk.send(word)

    def wait(self) -> int:
        """Its exit status, when it has ended."""
        self._process.join(PATIENCE)
        assert self._process.exitcode is not None, "it does not end"
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        """Whatever it makes of that."""
        assert self._process.pid is not None
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        """As `kill -9` does, and wait for its end."""
        self._process.kill()
        self._process.join()


def status(work: Work, *arguments: object) -> int:
    """How a process ends that does this."""
    with Forked(work, *arguments) as process:
        return process.wait()
