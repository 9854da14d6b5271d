"""The child process of a load test: a plan on its stdin, events on its stdout.

| it is called with          | it is                                                          |
|----------------------------|----------------------------------------------------------------|
| nothing                    | the only worker of the run                                     |
| `--workers N`              | a master, whose N workers are processes that it starts         |
| `--listen H:P --expect N`  | a master, whose N workers come from other machines             |
| `--worker-of H:P`          | a worker; its stdin holds the master's token, or nothing       |

It says what happens on its stdout, a line each (`engine/events.py`), and ends when the run has. A
worker says nothing there: it sends its events to the master. gevent comes first of all imports,
because it replaces what would block.
"""

import locust  # noqa: F401, I001  # it patches what blocks, before anything else is imported

import argparse
import json
import os
import secrets
import subprocess
import sys
import time
import traceback
from functools import partial

from serve.core.errors import CannotStart, ServegateError
from serve.workbench.loadtest.engine.follower import Follower, Nobody
from serve.workbench.loadtest.engine.events import Tell, EventWriter, event_of, take_stdout
from serve.workbench.loadtest.engine.worker import LoadWorker
from serve.workbench.loadtest.locust_master import Master
from serve.workbench.loadtest.plan import LoadPlan
from serve.processes.kernel import carry_name, die_with

NOBODY = 3  # the exit status of a worker that no master has answered
_LOCAL = "127.0.0.1"
_STARTING = 60.0  # seconds in which a worker on this machine finds its master
_LAST_WORDS = 1.0  # seconds until the last messages of a process that has ended are here
_PARTING = 2.0  # seconds for a worker to end by itself


def main() -> None:
    """Run, and leave by the shortest way: nothing of this process is of use afterwards."""
    asked = _parser().parse_args()
    carry_name("servegate-load")
    status = _serve(asked) if asked.worker_of else _lead(asked)
    sys.stderr.flush()
    os._exit(status)


def _lead(asked: argparse.Namespace) -> int:
    tell = EventWriter(take_stdout())
    try:
        text = sys.stdin.buffer.read()
        if asked.workers > 1:
            _lead_processes(text, asked.workers, tell)
        elif asked.listen:
            host, port = address_of(asked.listen)
            _lead_master(Master(text, host=host, port=port, expect=asked.expect, tell=tell))
        else:
            LoadWorker(LoadPlan.from_json(json.loads(text)), worker=0, workers=1).run(tell)
        tell({"type": "ended"})
        return 0
    except ServegateError as error:
        tell(event_of(error))
    except Exception as error:
        traceback.print_exc()
        words = f"{type(error).__name__}: {error}".partition("\n")[0]
        tell(event_of(CannotStart("the load generator failed", why=words)))
    finally:
        tell.close()
    return 1


def _lead_processes(text: bytes, workers: int, tell: Tell) -> None:
    """Workers on this machine: nobody else is given the plan, in which a key may stand."""
    token = secrets.token_hex(16)
    family = _Family()
    master = Master(
        text,
        host=_LOCAL,
        port=0,
        expect=workers,
        tell=tell,
        token=token,
        dead=family.dead,
    )
    try:
        for _ in range(workers):
            family.start(f"{_LOCAL}:{master.port}", token)
        _lead_master(master)
    finally:
        family.end()


def _lead_master(master: Master) -> None:
    try:
        master.run()
    finally:
        master.close()


class _Family:
    """The worker processes that this one has started; they die with it, however it dies."""

    def __init__(self) -> None:
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._ended: dict[int, float] = {}

    def __repr__(self) -> str:
        return f"<_Family of {len(self._processes)}>"

    def start(self, master: str, token: str) -> None:
        """One more."""
        one = subprocess.Popen(
            [sys.executable, "-P", "-m", "serve.workbench.loadtest.child", "--worker-of", master],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            preexec_fn=partial(die_with, os.getpid()),
        )
        assert one.stdin is not None
        one.stdin.write(token.encode())
        one.stdin.close()
        self._processes[one.pid] = one

    def dead(self) -> frozenset[int]:
        """The numbers of those that have ended so long ago that their last words have arrived."""
        now = time.monotonic()
        ended = [pid for pid, one in self._processes.items() if one.poll() is not None]
        since = {pid: self._ended.setdefault(pid, now) for pid in ended}
        return frozenset(pid for pid, then in since.items() if now - then > _LAST_WORDS)

    def end(self) -> None:
        """Wait a little, then kill."""
        for one in self._processes.values():
            try:
                one.wait(timeout=_PARTING)
            except subprocess.TimeoutExpired:
                one.kill()
                one.wait()


def _serve(asked: argparse.Namespace) -> int:
    token = sys.stdin.buffer.read().decode()
    host, port = address_of(asked.worker_of)
    patience = _STARTING if token else asked.patience
    try:
        follower = Follower(host, port, patience=patience, token=token)
        if not token:
            print(f"connected to the load test at {host}:{port}", file=sys.stderr, flush=True)
        why = follower.run()
    except Nobody:
        return NOBODY
    except ServegateError as error:
        print(error, file=sys.stderr)
        return 1
    if not token:
        print(f"disconnected: {why}", file=sys.stderr)
    return 0


def address_of(text: str) -> tuple[str, int]:
    """Host and port of `HOST:PORT`; the command has checked it."""
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m serve.workbench.loadtest.child")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--listen", default="")
    parser.add_argument("--expect", type=int, default=0)
    parser.add_argument("--worker-of", default="")
    parser.add_argument("--patience", type=float, default=60.0)
    return parser


if __name__ == "__main__":
    main()
