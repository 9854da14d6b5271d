"""One Triton server of this machine: its command line, its ports, its first answer, its remains.

The ports are chosen once, so a Triton that is restarted has the address that everybody knows. There
is one exception: a Triton that has never answered and finds a port taken gets new ones.

Its Python stubs and its shared memory are part of it. The stubs stand in its process group, which
is ended as a whole; the segments carry a prefix of their own, so that they are unlinked before
every start and after every end.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from serve.core.errors import TritonDidNotStart
from serve.core.replicas import Replica
from serve.processes import (
    Backoff,
    Clock,
    Hopeless,
    Ledger,
    ProcessCondition,
    Program,
    Supervised,
    SupervisedState,
    sweep_shared_memory,
)
from serve.triton.installation import Installation
from serve.triton.log_relay import LogRelay
from serve.triton.ports import LOOPBACK, free_ports
from serve.triton.probe import ProbeResult, look

_PORT_TAKEN = "already in use"  # "… Unavailable - Socket '127.0.0.1:8000' already in use"
_PORT_CHOICES = 5  # so often a Triton may find its ports taken before that is a failure
_PROBE_PAUSE = 0.05  # seconds between two looks at a Triton that is starting
_OWN_VARIABLES = "SERVEGATE_"  # may hold secrets; models can read Triton's environment


@dataclass(frozen=True, slots=True)
class LauncherSetup:
    """What all Tritons of one launcher have in common."""

    installation: Installation
    backends: Path  # the backend directory
    repositories: tuple[str, ...]  # absolute paths, or URLs
    folder: Path  # the working directory
    mark: str  # tells the Tritons of one state folder from those of others
    extra_args: tuple[str, ...]
    environ: Mapping[str, str]
    drain: int  # seconds


class LocalTriton:
    """A supervised Triton; it runs while `supervised.run()` runs."""

    def __init__(
        self,
        index: int,
        setup: LauncherSetup,
        *,
        ledger: Ledger,
        logger: logging.Logger,
        on_change: Callable[[str, ProcessCondition], None],
        backoff: Backoff,
        clock: Clock,
        draw: Callable[[], float],
        given: set[int],
    ) -> None:
        self.name = f"local-{index}"
        self.server_id = f"servegate-{setup.mark}-{index}"
        self.has_answered = False
        self.failure: TritonDidNotStart | None = None
        self._setup = setup
        self._tell = on_change
        self._clock = clock
        self._draw = draw
        self._given = given  # ports that other Tritons of this process have, running or not
        self._choices_left = _PORT_CHOICES
        self._log = LogRelay(self.name, logger)
        self.replica = self._choose_replica()
        self.supervised = Supervised(
            self._program,
            on_line=self._log,
            on_change=self._on_change,
            probe=self._probe,
            ledger=ledger,
            backoff=backoff,
            clock=clock,
        )

    def __repr__(self) -> str:
        return f"<LocalTriton {self.name} {self.replica.address} {self.supervised!r}>"

    @property
    def ports(self) -> set[int]:
        """Those that it has now."""
        return {self.replica.http_port, self.replica.grpc_port, self.replica.metrics_port}

    def did_not_start(self, why: str) -> TritonDidNotStart:
        """The error for a Triton that has not come up, with the end of its log."""
        return TritonDidNotStart(self.name, why, self._log.last_lines)

    def _choose_replica(self) -> Replica:
        http, grpc, metrics = free_ports(3, self._draw, besides=self._given)
        self._given.update((http, grpc, metrics))
        return Replica(self.name, LOOPBACK, http, grpc, metrics)

    def _program(self) -> Program:
        self._log.begin()
        setup = self._setup
        inherited = {k: v for k, v in setup.environ.items() if not k.startswith(_OWN_VARIABLES)}
        return Program(
            self.name,
            command(setup, self.replica, self.server_id),
            env=setup.installation.environment(inherited),
            cwd=setup.folder,
            grace=setup.drain + 3.0,  # Triton counts in whole seconds, then it exits
        )

    async def _probe(self) -> None:
        while (answer := await look(self.replica, self.server_id)) is not ProbeResult.LIVE:
            if answer is ProbeResult.NOT_LIVE:
                raise Hopeless("it runs, but could not read its model repository")
            await self._clock.sleep(_PROBE_PAUSE)

    def _on_change(self, condition: ProcessCondition) -> None:
        if condition.pid is None:  # before a start, or after an end
            sweep_shared_memory(shared_memory_prefix(self.server_id))
        if condition.state is SupervisedState.RUNNING:
            self.has_answered, self.failure = True, None
        elif condition.state is SupervisedState.BACKING_OFF and not self.has_answered:
            self._on_failed_start(condition.reason)
        self._tell(self.name, condition)

    def _on_failed_start(self, reason: str) -> None:
        port_taken = any(_PORT_TAKEN in line for line in self._log.last_lines)
        if port_taken and self._choices_left:
            self._choices_left -= 1
            self.replica = self._choose_replica()
        else:
            self.failure = self.did_not_start(reason)


def command(setup: LauncherSetup, replica: Replica, server_id: str) -> tuple[str, ...]:
    """The command line; `extra_args` stand last, so they win where Triton takes the last one."""
    caches = setup.installation.caches
    return (
        str(setup.installation.binary),
        f"--id={server_id}",
        *(f"--model-repository={one}" for one in setup.repositories),
        f"--backend-directory={setup.backends}",
        *((f"--cache-directory={caches}",) if caches else ()),
        "--model-control-mode=explicit",
        "--strict-readiness=true",
        "--exit-on-error=false",
        f"--exit-timeout-secs={setup.drain}",
        f"--http-address={replica.host}",
        f"--http-port={replica.http_port}",
        f"--grpc-address={replica.host}",
        f"--grpc-port={replica.grpc_port}",
        f"--metrics-address={replica.host}",
        f"--metrics-port={replica.metrics_port}",
        "--allow-sagemaker=false",
        "--allow-vertex-ai=false",
        "--log-verbose=0",
        "--log-format=default",
        f"--backend-config=python,shm-region-prefix-name={shared_memory_prefix(server_id)}",
        *setup.extra_args,
    )


def shared_memory_prefix(server_id: str) -> str:
    """How the names of a Triton's segments in /dev/shm start; no prefix starts another one."""
    return f"{server_id}-"
