"""Runs a plan in a child process, and gathers what it tells: the asyncio side of a load test.

The child (`child.py`) makes the calls under gevent; this side never imports it. The child and its
own workers die with this process. What they print on stderr is kept and told when they die.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from typing import Any

from serve.core.errors import CannotStart, Invalid
from serve.processes.children import Exit
from serve.processes.kernel import die_with, free_memory
from serve.workbench.loadtest.plan import LoadPlan
from serve.workbench.loadtest.record import Record, RecordWindow

MOST_SENT = 256 << 20  # bytes of bodies that are sent to workers, in one message each
MOST_WORKERS = 256
_COPIES = 4  # of the bodies in a process: as text, decoded, and while it reads one from the other
_LONGEST_LINE = 64 << 20  # bytes
_LAST_LINES = 8
_INTERRUPTED = 130
_NOBODY = 3  # the exit status of a worker that no master has answered, see `child.py`
_BETWEEN_RUNS = 30.0  # seconds in which a worker that has served waits for the next run


async def run(
    plan: LoadPlan,
    *,
    workers: int = 1,
    listen: str = "",
    expect: int = 0,
    on_begin: Callable[[], None],
    on_window: Callable[[int, RecordWindow], None],
    on_problem: Callable[[str], None] = lambda text: None,
    stop: asyncio.Event | None = None,
) -> Record:
    """Make the run, and return all that was recorded.

    `workers`: processes on this machine. `listen` (HOST:PORT) and `expect`: that many workers from
    other machines instead. `on_begin` is called when second 0 begins. Setting `stop` ends the run
    early, with what is recorded so far; calls in flight are lost then. A cancelled run leaves no
    process. Raises `Invalid` or `CannotStart` with the child's words. Call it in the main thread,
    whose death the child notices.
    """
    arguments = _arguments(plan, workers, listen, expect)
    heard = _Heard(on_begin, on_window, on_problem)
    child = await _start(arguments)
    try:
        text = await asyncio.to_thread(lambda: json.dumps(plan.to_json()).encode())
        async with asyncio.TaskGroup() as tasks:
            feeding = tasks.create_task(_feed(child, text))
            talking = tasks.create_task(_keep(child, heard.talk))
            stopping = tasks.create_task(_stop_when(stop or asyncio.Event(), child))
            await heard.listen(child)
            if heard.trouble is not None:
                _signal(child, signal.SIGKILL)
            code = await child.wait()
            await talking
            feeding.cancel()
            stopping.cancel()
    finally:
        await _end(child)
    if heard.trouble is not None:
        raise heard.trouble
    if not heard.has_ended and not (stop is not None and stop.is_set()):
        raise _death(code, heard)
    return heard.record


def serve_worker(
    master: str, *, patience: float = 60.0, between_runs: float = _BETWEEN_RUNS
) -> int:
    """Be a worker of the load test at HOST:PORT, run after run, until nobody answers any more.

    `patience`: seconds until the first answer, or `CannotStart`; `between_runs`: until the next
    one. Returns an exit status: 0 after the last run, 1 after one that failed, 130 after Ctrl-C.
    What happens is told on stderr.
    """
    require_locust()
    _check_address(master, "--master")
    served = False
    while True:
        wait = between_runs if served else patience
        status = _serve_once(master, wait)
        if status == _NOBODY and not served:
            raise CannotStart(
                f"no load test responds at {master}",
                why=f"it sent nothing for {wait:g} s",
                try_this="run 'servegate load run … --listen' on that machine, and check the "
                "network between them",
            )
        if status != 0:
            return 0 if status == _NOBODY else status
        served = True


def _serve_once(master: str, patience: float) -> int:
    with subprocess.Popen(
        [*_command(), "--worker-of", master, "--patience", f"{patience:g}"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        env=_environment(),
        start_new_session=True,
        preexec_fn=partial(die_with, os.getpid()),
    ) as child:
        try:
            return child.wait()
        except KeyboardInterrupt:
            child.kill()
            return _INTERRUPTED


@dataclass(slots=True)
class _Heard:
    """What the child has said. `trouble`: its own error, or what went wrong on this side."""

    on_begin: Callable[[], None]
    on_window: Callable[[int, RecordWindow], None]
    on_problem: Callable[[str], None]
    record: Record = field(default_factory=Record)
    talk: deque[str] = field(default_factory=lambda: deque(maxlen=_LAST_LINES))
    has_ended: bool = False
    trouble: Exception | None = None

    async def listen(self, child: asyncio.subprocess.Process) -> None:
        """Take lines until there are no more, or something is wrong."""
        assert child.stdout is not None
        try:
            while (line := await child.stdout.readline()).endswith(b"\n"):
                self._take(json.loads(line))
        except Exception as error:
            self.trouble = error

    def _take(self, event: dict[str, Any]) -> None:
        match event["type"]:
            case "window":
                second, window = int(event["second"]), RecordWindow.from_json(event)
                self.record.add(second, window)
                self.on_window(second, window)
            case "begun":
                self.on_begin()
            case "problem":
                self.on_problem(str(event["text"]))
            case "ended":
                self.has_ended = True
            case "failed":
                kind = Invalid if event["code"] == Invalid.code else CannotStart
                raise kind(event["what"], why=event["why"], try_this=event["try_this"])


def _arguments(plan: LoadPlan, workers: int, listen: str, expect: int) -> tuple[str, ...]:
    """The child's command line; `Invalid` for what could not run."""
    require_locust()
    if not 1 <= workers <= MOST_WORKERS:
        raise Invalid(
            f"cannot start {workers} workers", why=f"the number has to be from 1 to {MOST_WORKERS}"
        )
    if bool(listen) != (expect > 0):
        raise Invalid(
            "--listen and --expect-workers have to be used together",
            try_this="--listen 0.0.0.0:5557 --expect-workers 2",
        )
    _check_size(plan, workers, is_sent=bool(listen) or workers > 1)
    if listen:
        _check_address(listen, "--listen")
        return ("--listen", listen, "--expect", str(expect))
    return ("--workers", str(workers))


def _check_size(plan: LoadPlan, workers: int, *, is_sent: bool) -> None:
    bodies = sum(
        len(body)
        for lane in plan.lanes
        for each in lane.payloads
        for body in (each.body, each.first, each.last, each.only)
    )
    if is_sent and bodies > MOST_SENT:
        raise Invalid(
            f"the plan contains {bodies >> 20} MiB of request bodies",
            why=f"at most {MOST_SENT >> 20} MiB can be sent to workers",
            try_this="use fewer different bodies; the load test repeats them",
        )
    needed, free = bodies * _COPIES * (1 + workers), free_memory()
    if needed > free:
        raise Invalid(
            f"the request bodies would need {needed >> 20} MiB of memory in {workers} workers",
            why=f"only {free >> 20} MiB are free",
            try_this="use fewer different bodies, or fewer workers",
        )


def require_locust() -> None:
    """`CannotStart` where load tests are not installed."""
    if find_spec("locust") is None:
        raise CannotStart(
            "load tests need locust, which is not installed",
            try_this="run pip install '.[load]' in a checkout of Servegate",
        )


def _check_address(text: str, option: str) -> None:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 1 <= int(port) <= 65535:
        raise Invalid(
            f"'{text}' of {option} is not in the form HOST:PORT", try_this=f"{option} 0.0.0.0:5557"
        )


def _command() -> tuple[str, ...]:
    return (sys.executable, "-P", "-m", "serve.workbench.loadtest.child")


def _environment() -> dict[str, str]:
    """Ours, but for what would change locust."""
    return {name: value for name, value in os.environ.items() if not name.startswith("LOCUST_")}


async def _start(arguments: tuple[str, ...]) -> asyncio.subprocess.Process:
    try:
        return await asyncio.create_subprocess_exec(
            *_command(),
            *arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            limit=_LONGEST_LINE,
            env=_environment(),
            start_new_session=True,
            preexec_fn=partial(die_with, os.getpid()),
        )
    except OSError as error:
        raise CannotStart("the load generator did not start", why=str(error)) from error


async def _feed(child: asyncio.subprocess.Process, text: bytes) -> None:
    """Hand over the plan; a child that does not read it tells why in another way."""
    assert child.stdin is not None
    with suppress(ConnectionError):
        child.stdin.write(text)
        await child.stdin.drain()
        child.stdin.close()
        await child.stdin.wait_closed()


async def _keep(child: asyncio.subprocess.Process, talk: deque[str]) -> None:
    """The last lines that it prints, each of a bearable length."""
    assert child.stderr is not None
    rest = b""
    while data := await child.stderr.read(1 << 16):
        *lines, rest = (rest + data).split(b"\n")
        rest = rest[-1000:]
        talk.extend(line[:1000].decode(errors="replace") for line in lines if line.strip())
    if rest.strip():
        talk.append(rest.decode(errors="replace"))


async def _stop_when(stop: asyncio.Event, child: asyncio.subprocess.Process) -> None:
    await stop.wait()
    _signal(child, signal.SIGKILL)


async def _end(child: asyncio.subprocess.Process) -> None:
    """Nothing of it is left when this returns, also when it is cancelled."""
    _signal(child, signal.SIGKILL)
    await child.wait()


def _signal(child: asyncio.subprocess.Process, number: signal.Signals) -> None:
    """To the child and its workers, which are one group."""
    if child.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, number)


def _death(code: int, heard: _Heard) -> CannotStart:
    said = " | ".join(heard.talk)
    return CannotStart(
        "the load generator died before the end of the run",
        why=f"{Exit(code)}" + (f"; its last output: {said}" if said else ""),
    )
