"""Kill: a replica dies under load. How many calls fail, and how long until it serves again?

A Triton of this machine is killed by its process (SIGKILL), which is found in /proc by the HTTP
port among its arguments. Elsewhere the user says how: `kubectl delete pod …`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from serve.core.errors import Invalid, ServegateError
from serve.core.replicas import Replica
from serve.workbench.loadtest.observations.local_tritons import is_here, triton_on
from serve.workbench.loadtest.observed_run import Action
from serve.workbench.loadtest.plan import Arrivals
from serve.workbench.loadtest.reports.amounts import time_text
from serve.workbench.loadtest.reports.report import LoadRun
from serve.workbench.loadtest.scenarios.admin import Admin
from serve.workbench.loadtest.scenarios.scenario import ScenarioOutcome, ScenarioStage
from serve.workbench.loadtest.scenarios.tallies import (
    between,
    failed_sentence,
    failures,
    is_stopped,
    outcomes,
)
from serve.workbench.loadtest.scenarios.tallies import p99 as p99_of

_SECONDS = 60.0
_RATE = 100.0
_ALLOWED = 0.001  # of all calls may fail
_UNKNOWN = ":outcome_unknown"
_PAUSE = 0.25  # seconds between two looks at the replica
_PATIENCE = 90.0  # seconds after the run for it to be back
_COMMAND = 30.0  # seconds that the user's command may take


async def play(stage: ScenarioStage) -> ScenarioOutcome:
    """One run; the replica dies at a third of it."""
    seconds = stage.seconds or _SECONDS
    at = seconds / 3
    async with Admin(stage.target, reason="load test: kill") as admin:
        victim = await _victim(stage, admin)
        stage.say(f"{victim.name} will be killed after {at:.0f} s: {victim.how}")
        plan = stage.plan(arrivals=Arrivals(stage.rate or _RATE), seconds=seconds)
        watching = asyncio.create_task(victim.watch())
        try:
            run = await stage.perform(
                plan,
                label=f"{victim.name} killed",
                actions=(Action(at, f"{victim.name} killed", victim.die),),
                objective=stage.objective,
            )
            if victim.died:
                if not watching.done():
                    stage.say(f"waiting for {victim.name} to recover")
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_PATIENCE):
                        await asyncio.shield(watching)
        finally:
            watching.cancel()
    findings, passed = judge(run, at, victim.name, victim.away, victim.others, is_dead=victim.died)
    is_open = is_stopped(run) and passed
    return ScenarioOutcome(
        "Kill: a replica dies under load", (run,), findings, None if is_open else passed
    )


class Victim:
    """The replica that dies: `replica` as it was listed, `kill` does it, `ask` lists all again."""

    def __init__(
        self,
        replica: Mapping[str, Any],
        kill: Callable[[], Awaitable[None]],
        ask: Callable[[], Awaitable[list[Mapping[str, Any]]]],
        *,
        how: str,
        others: int,
    ) -> None:
        self.name = str(replica["name"])
        self.how = how
        self.others = others  # replicas that hold the same model
        self.away: float | None = None  # seconds until it was back
        self._held: Mapping[str, Any] = replica["held"]
        self._kill = kill
        self._ask = ask
        self._died: asyncio.Future[float] = asyncio.get_running_loop().create_future()

    def __repr__(self) -> str:
        return f"<Victim {self.name}>"

    @property
    def died(self) -> bool:
        """Whether it was killed."""
        return self._died.done()

    async def die(self) -> str:
        """Kill it."""
        await self._kill()
        self._died.set_result(time.monotonic())
        return f"{self.name} was killed"

    async def watch(self) -> None:
        """Return when it was killed, was seen to be away, and holds again what it had held."""
        begun = await self._died
        was_away = False
        while True:
            is_back = await self._serves()
            was_away = was_away or not is_back
            if was_away and is_back:
                self.away = time.monotonic() - begun
                return
            await asyncio.sleep(_PAUSE)

    async def _serves(self) -> bool:
        try:
            told = {str(one["name"]): one for one in await self._ask()}
        except ServegateError:
            return False  # who does not answer cannot say that it is back
        one = told.get(self.name)
        return one is not None and one["state"] == "up" and self._holds(one["held"])

    def _holds(self, held: Mapping[str, Any]) -> bool:
        return all(
            set(versions) <= set(held.get(name, ())) for name, versions in self._held.items()
        )


def judge(
    run: LoadRun, at: float, name: str, away: float | None, others: int, *, is_dead: bool
) -> tuple[tuple[str, ...], bool]:
    """What the callers saw of it; passed if few calls failed, and the replica came back.

    A call that was in flight on the replica may have run there, so nobody repeats it: so many may
    end with an unknown outcome beyond the few that may fail anyhow.
    """
    if not is_dead:
        return (f"{name} was not killed; see the problems of the run",), False
    windows = list(run.record.windows.values())
    calls, failed = outcomes(windows).total(), failures(windows).total()
    unknown = sum(count for code, count in failures(windows).items() if code.endswith(_UNKNOWN))
    in_flight = max((one.generator.in_flight for one in between(run, at - 1, at + 2)), default=0)
    excused = min(unknown, max(in_flight, 1))
    before, after = p99_of(between(run, 0, at)), p99_of(between(run, at, at + 5))
    if away is None:
        back = f"{name} had not recovered {_PATIENCE:.0f} s after the run"
    else:
        back = f"{name} was usable again {time_text(away)} after it was killed"
    findings = [
        f"{failed_sentence(windows)}; 0.1 % are allowed"
        + (f", and {excused} that were in flight on {name}" if excused else ""),
        back,
        f"p99 was {time_text(before)} before, and {time_text(after)} in the 5 s after",
    ]
    if not others:
        findings.append(
            f"{name} was the only replica with this model, so no other replica could take over"
        )
    return tuple(findings), failed - excused <= _ALLOWED * calls and away is not None


async def _victim(stage: ScenarioStage, admin: Admin) -> Victim:
    """A replica that holds the model: one whose process is here, or which the command kills."""
    detail, replicas = await admin.model(), await admin.replicas()
    holders = {name for one in detail["versions"] for name in one["replicas"]}
    able = [one for one in replicas if one["name"] in holders and one["state"] == "up"]
    if not able:
        raise Invalid(
            f"no replica has loaded {stage.target.model}",
            try_this=admin.command("servegate replica ls"),
        )
    others = len(able) - 1
    if stage.kill_command:
        kill, how = _by_command(stage.kill_command), stage.kill_command
        return Victim(able[0], kill, admin.replicas, how=how, others=others)
    for one in able:
        process = _process(stage.target.admin_url, one)
        if process is not None:
            how = f"SIGKILL to its process {process}; its supervisor has to restart it"
            return Victim(one, _by_signal(process), admin.replicas, how=how, others=others)
    raise Invalid(
        "no replica of this model can be killed from this machine",
        why="none of their processes runs on this machine under your user",
        try_this="use --kill-command 'kubectl delete pod …'",
    )


def _process(admin_url: str, one: Mapping[str, Any]) -> int | None:
    replica = Replica.parse(str(one["address"]), name=str(one["name"]))
    if not is_here(urlsplit(admin_url).hostname or "") or not is_here(replica.host):
        return None
    return triton_on(replica.http_port)


def _by_signal(process: int) -> Callable[[], Awaitable[None]]:
    async def kill() -> None:
        os.kill(process, signal.SIGKILL)

    return kill


def _by_command(command: str) -> Callable[[], Awaitable[None]]:
    async def kill() -> None:
        process = await asyncio.create_subprocess_shell(
            command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            async with asyncio.timeout(_COMMAND):
                output, _ = await process.communicate()
        except TimeoutError:
            process.kill()
            await process.wait()
            raise Invalid(f"the kill command took longer than {_COMMAND:g} s") from None
        if process.returncode:
            text = output.decode(errors="replace").strip()[-300:]
            raise Invalid(f"the kill command exited with status {process.returncode}", why=text)

    return kill
