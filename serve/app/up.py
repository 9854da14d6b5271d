"""`servegate up`: control plane, data plane and local Tritons on one machine, as child processes.

The parent does no work of its own: it starts, watches, restarts and stops. So killing any child,
control included, leaves the others serving.

The control plane as its own parent asks it: over the socket inside, with the shared secret.

What goes wrong is an `OSError`: the control plane is away, stands by, or answers what makes no
sense.
"""

import asyncio
import contextlib
import dataclasses
import json
import logging
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from serve.app.addresses import require_safe_addresses
from serve.app.internal_http import INSIDE, InternalConnection, InternalResponse
from serve.app.local_autoscaler import Autoscaler, following
from serve.app.open_files import allow_open_files
from serve.app.paths import DELIVERY_FOLDER, FORKS, LEDGER_FILE, LOCK_FILE, control_socket
from serve.app.ports import reserve, stop_on_signals
from serve.app.proxy import DataPlane, child_program, running
from serve.app.secret import shared_secret
from serve.app.tls import Tls
from serve.app.watchdog import Watched, watching
from serve.core.errors import CannotStart, Invalid
from serve.core.replicas import Replica
from serve.processes import Backoff, Ledger, Program, Supervised, hold_lock
from serve.settings import Settings
from serve.triton.installation import Installation, MachineFacts
from serve.triton.launcher import Launcher
from serve.triton.repository_url import triton_url

# --- the control plane as its own parent asks it --------------------------------------------------


_LINE_POLL = 40.0  # seconds; the control plane answers after 25 at the latest
_TOLD = 90.0  # seconds for a list of replicas to be answered, at most 60 of which it was asked for


class ControlLine:
    """Two connections: one waits for hints, one tells of replicas."""

    def __init__(self, settings: Settings) -> None:
        where = f"{INSIDE}{control_socket(settings)}"
        self._hints, self._members = InternalConnection(where), InternalConnection(where)
        self._headers = {"authorization": f"Bearer {shared_secret(settings)}"}

    def __repr__(self) -> str:
        return f"<ControlLine {self._hints!r}>"

    async def hints(self, after: int) -> tuple[int, list[dict[str, Any]]]:
        """Wait for a round of hints that is newer than `after`, as long as that takes."""
        while True:
            async with asyncio.timeout(_LINE_POLL):
                answer = await self._hints.get(f"/api/hints?after={after}", self._headers)
            if answer.status == 204:
                continue
            told = _read(answer)
            try:
                number = int(told["number"])
                hints = [dict(one) for one in told["hints"]]
            except (KeyError, TypeError, ValueError) as error:
                raise ConnectionError(f"the response has no valid hints: {error!r}") from error
            if number != after:
                return number, hints

    async def become(
        self,
        replicas: Collection[Replica],
        starting: Mapping[str, int],
        *,
        leaving: Collection[str],
        within: float,
    ) -> Mapping[str, float | None]:
        """Tell the whole list; gives those that are still on their way out, as `Membership` does.

        `within`: seconds to wait for those that are `leaving`.
        """
        body = {
            "replicas": [f"{one.name}={one.address}@{one.pool}" for one in replicas],
            "starting": dict(starting),
            "leaving": list(leaving),
            "within": within,
        }
        headers = {**self._headers, "content-type": "application/json"}
        async with asyncio.timeout(_TOLD):
            answer = await self._members.put(
                "/internal/replicas", headers, json.dumps(body).encode()
            )
        try:
            return dict(_read(answer)["leaving"])
        except (KeyError, TypeError, ValueError) as error:
            raise ConnectionError(f"the response has no valid replicas: {error!r}") from error

    def close(self) -> None:
        """Close the connections."""
        self._hints.close()
        self._members.close()


def _read(answer: InternalResponse) -> Any:
    if answer.status != 200:
        raise ConnectionError(f"status {answer.status}: {answer.body[:500]!r}")
    try:
        return json.loads(answer.body)
    except ValueError as error:
        raise ConnectionError("the response is not JSON") from error


# --- `servegate up` -------------------------------------------------------------------------------


CONTROL_GRACE = 4.0
# A control plane that has answered for two seconds and dies is started again at once. A pause of
# three seconds keeps one that dies earlier, again and again, to half a core: a start takes about
# two seconds of CPU time, which the calls on this machine lack.
CONTROL_BACKOFF = Backoff(longest=3.0, healthy=2.0)
_POLL = 0.1  # seconds between two looks at a control plane that starts
TRITON_DRAIN = 3

if TYPE_CHECKING:
    from serve.app.readiness import ReadyModels

Say = Callable[[str], None]


async def run_up(
    settings: Settings, *, say: Say, on_ready: "Callable[[ReadyModels], None]"
) -> None:
    """Run everything until SIGINT or SIGTERM; `say` gets progress, `on_ready` the end of it."""
    stop = stop_on_signals()
    _require_own_tritons(settings)
    if warning := allow_open_files(settings, data=True):
        say(warning)
    with contextlib.ExitStack() as stack:
        stack.enter_context(hold_lock(settings.state_path / LOCK_FILE))
        await require_safe_addresses(settings, data=True, admin=True)
        ledger = Ledger(settings.state_path / LEDGER_FILE)
        for entry in ledger.sweep():
            say(f"stopped a process of an earlier run: {entry.name} ({entry.pid})")
        stack.enter_context(_reserve(settings))
        shared_secret(settings)
        if warning := warning_of_management(settings):
            say(warning)
        plane = DataPlane(
            dataclasses.replace(settings, control=f"{INSIDE}{control_socket(settings)}"),
            ledger,
            sources={"control": control_socket(settings)},
        )
        plane.reserve()
        async with _tritons(settings, ledger) as local:
            control = partial(_control_program, local)
            async with (
                running(
                    "control",
                    control,
                    ledger,
                    probe=partial(_until_control_answers, local),
                    backoff=CONTROL_BACKOFF,
                ) as supervised,
                plane,
                watching({"control": Watched(supervised, partial(_control_answers, local))}),
            ):
                ready = asyncio.create_task(_until_ready(local, supervised, say))
                if await _unless(stop, ready):
                    on_ready(ready.result())
                async with following(local.autoscale(say)):
                    await stop.wait()
                    say("stopping")


async def run_control(settings: Settings, *, say: Say) -> None:
    """`servegate control`: the control plane alone, in this process."""
    os.environ.setdefault(*FORKS)
    from serve.app.control import ControlPlane

    allow_open_files(settings, data=False)
    with hold_lock(settings.state_path / LOCK_FILE):
        await require_safe_addresses(settings, admin=True)
        with _reserve(settings):
            plane = ControlPlane(settings, tls=Tls.for_start(settings))
            found = "".join(f", and those of {one}" for one in settings.discover)
            say(f"control plane: {settings.control_url}/ ({len(settings.triton)} Tritons{found})")
            await plane.run(stop_on_signals())


def _require_own_tritons(settings: Settings) -> None:
    """Refuse to follow hints where Tritons are somebody else's, before anything is begun."""
    if settings.autoscale_bounds is None or not (settings.triton or settings.discover):
        return
    raise Invalid(
        "--autoscale needs local Tritons",
        why="--triton names Tritons that Servegate did not start"
        if settings.triton
        else f"'discover' is set to {', '.join(settings.discover)}",
        try_this="use their own autoscaler; servegate hints show prints the desired replicas",
    )


def warning_of_management(settings: Settings) -> str:
    """What `--allow-management` cannot open; empty where it opens everything, or is not given."""
    decides = settings.model_repo or settings.publishes or not settings.triton
    if decides or not settings.allow_management:
        return ""
    return (
        "warning: without --model-repo, --allow-management does not allow loading and unloading; "
        "only trace settings, log settings and shared memory are available"
    )


class Local:
    """The Tritons behind this gateway: those that were given, or those that are started here."""

    def __init__(self, settings: Settings, launcher: Launcher | None) -> None:
        self._settings = settings
        self.launcher = launcher
        self._autoscaler: Autoscaler | None = None

    @property
    def settings(self) -> Settings:
        """The settings with the addresses of all replicas as they are now."""
        if self.launcher is None:
            return self._settings
        following = self._autoscaler
        replicas = self.launcher.replicas if following is None else following.members
        addresses = tuple(f"{one.name}={one.address}" for one in replicas)
        return dataclasses.replace(self._settings, triton=addresses)

    def autoscale(self, say: Say) -> Autoscaler | None:
        """What starts and stops Tritons by the hints; None where their number is fixed."""
        if self.launcher is None or self._settings.autoscale_bounds is None:
            return None
        self._autoscaler = Autoscaler(
            self.launcher,
            ControlLine(self._settings),
            say=say,
            within=self._settings.start_timeout,
            patience=self._settings.call_timeout,
            clock=time.monotonic,
        )
        return self._autoscaler

    async def wait_ready(self, control: Supervised, say: Say) -> None:
        """Until the local Tritons answer; a control plane that knows old addresses starts anew."""
        if self.launcher is None:
            return
        told = self.settings.triton
        await self.launcher.wait_ready(say, within=self._settings.start_timeout)
        if self.settings.triton != told and control.condition.pid is not None:
            os.kill(control.condition.pid, signal.SIGTERM)


@contextlib.asynccontextmanager
async def _tritons(settings: Settings, ledger: Ledger) -> AsyncIterator[Local]:
    if settings.triton:
        yield Local(settings, None)
        return
    settings = dataclasses.replace(
        settings,
        model_repo=_repository(settings),
        delivery_folder=settings.delivery_folder or str(settings.state_path / DELIVERY_FOLDER),
    )
    bounds = settings.autoscale_bounds
    launcher = Launcher(
        settings.replicas if bounds is None else bounds[0],
        [*filter(None, [settings.model_repo]), await _published(settings)],
        state=settings.state_path,
        installation=Installation.find(MachineFacts.here()),
        ledger=ledger,
        logger=logging.getLogger("servegate.triton"),
        extra_args=settings.triton_args,
        drain=TRITON_DRAIN,
    )
    async with launcher:
        yield Local(settings, launcher)


async def _published(settings: Settings) -> str:
    """Where Triton finds published versions; it is there when this returns."""
    if settings.delivery == "bucket":
        from serve.app.publication import storage_of  # what few need
        from serve.control.deliveries.bucket import BucketDelivery

        await BucketDelivery(storage_of(settings), settings.storage).prepare()
        return triton_url(settings.storage, os.environ)
    os.makedirs(settings.delivery_folder, exist_ok=True)  # noqa: PTH103
    return settings.delivery_folder


async def _control_answers(local: Local) -> bool:
    from serve.app.metrics import answers  # imported by then

    return await answers(control_socket(local.settings))


async def _until_control_answers(local: Local) -> None:
    while not await _control_answers(local):  # noqa: ASYNC110 - another process
        await asyncio.sleep(_POLL)


def _reserve(settings: Settings) -> socket.socket:
    """Make sure that the control plane's ports are free; the claim to the admin API's.

    KEDA's port is no longer claimed: gRPC binds to it alone, once this control plane leads.
    """
    claim = reserve(settings.admin_host, settings.admin_port, "admin-port")
    try:
        if settings.keda_port:
            reserve(settings.admin_host, settings.keda_port, "keda-port").close()
    except CannotStart:
        claim.close()
        raise
    return claim


def _control_program(local: Local) -> Program:
    return child_program(local.settings, "control", grace=CONTROL_GRACE)


def _repository(settings: Settings) -> str:
    """The plain model repository, absolute; empty where there is none and nobody asked for one."""
    repository = Path(settings.model_repo).absolute()
    if settings.model_repo and repository.is_dir():
        return str(repository)
    if settings.model_repo in ("", Settings().model_repo):
        return ""  # models come by `servegate model push`
    raise CannotStart(
        f"the model repository '{settings.model_repo}' is not a folder",
        try_this="pass --model-repo DIR in Triton's layout: DIR/<model>/<version>/…",
    )


async def _unless(stop: asyncio.Event, work: "asyncio.Task[ReadyModels]") -> bool:
    """Wait for the work to be done, whose error is raised here; False when `stop` came first."""
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait((work, stopped), return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if work.done():
        work.result()
        return True
    work.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await work
    return False


async def _until_ready(local: Local, control: Supervised, say: Say) -> "ReadyModels":
    from serve.app.readiness import until_ready  # takes a while: the children start meanwhile

    await local.wait_ready(control, say)
    return await until_ready(local.settings, control, say)
