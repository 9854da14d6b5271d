"""A fleet as in production, put together by hand: Tritons, agents, a control plane and a proxy."""

import contextlib
import os
import subprocess
from functools import partial
from pathlib import Path

import harness
from ports import free_ports

from serve.core.replicas import Replica
from serve.processes.kernel import die_with
from serve.triton.backend_directory import build_backend_directory
from serve.triton.installation import Installation, MachineFacts
from serve.triton.local_triton import LauncherSetup, command

SECRET = "a secret of this fleet"


class Machine:
    """A Triton of its own, and the `servegate sync` beside it. Neither runs before it is started.

    `pool` is what the control plane is told.
    """

    def __init__(self, folder: Path, name: str, pool: str = "default") -> None:
        self.name, self.pool = name, pool
        self.repository = folder / name
        self.repository.mkdir()
        self._state = folder / f"{name}-state"
        self._state.mkdir()
        self._replica = Replica(name, "127.0.0.1", *free_ports(3))
        self._log = folder / f"{name}.log"
        self.triton: subprocess.Popen[bytes] | None = None
        self.agent: harness.Program | None = None

    @property
    def flag(self) -> str:
        return f"{self.name}={self._replica.address}@{self.pool}"

    @property
    def log(self) -> str:
        return self._log.read_text() if self._log.exists() else ""

    def said(self) -> str:
        """The same, and what each thread of a Triton that runs waits for."""
        if self.triton is None or self.triton.poll() is not None:
            return f"Triton: {self.triton and self.triton.returncode}\n{self.log}"
        tasks = Path(f"/proc/{self.triton.pid}/task").iterdir()
        waits = " ".join(f"{task.name}:{(task / 'wchan').read_text()}" for task in tasks)
        words = Path(f"/proc/{self.triton.pid}/cmdline").read_text().replace("\0", " ")
        return f"Triton runs: {words} ({waits})\n{self.log}"

    def start_triton(self) -> None:
        found = Installation.find(MachineFacts.here())
        setup = LauncherSetup(
            installation=found,
            backends=build_backend_directory(found, self._state),
            repositories=(str(self.repository),),
            folder=self._state,
            mark=self.name,
            extra_args=(),
            environ=os.environ,
            drain=1,
        )
        with self._log.open("ab") as log:
            self.triton = subprocess.Popen(
                self.words(setup),
                stdout=log,
                stderr=log,
                cwd=self._state,
                env=found.environment(dict(os.environ)),
                preexec_fn=partial(die_with, os.getpid()),
            )

    def words(self, setup: LauncherSetup) -> tuple[str, ...]:
        return command(setup, self._replica, f"servegate-e2e-{os.getpid()}-{self.name}")

    def start_agent(self, admin: str) -> None:
        flags = ("--replica", self.name, "--folder", str(self.repository), "--admin-url", admin)
        self.agent = harness.Program("sync", *flags, env={"SERVEGATE_SECRET": SECRET})

    def kill_triton(self) -> None:
        assert self.triton is not None
        self.triton.kill()
        self.triton.wait()

    def stop(self) -> None:
        if self.agent is not None and self.agent.process.poll() is None:
            self.agent.stop()
        if self.triton is not None and self.triton.poll() is None:
            self.kill_triton()


class Fleet(harness.RunningGateway):
    """A control plane and one worker over machines; `env` is the control plane's."""

    def __init__(
        self, state: Path, *machines: Machine, flags: tuple[str, ...] = (), env: dict[str, str]
    ) -> None:
        super().__init__(state)
        self.machines = machines
        ports = self.http_port, self.grpc_port, self.metrics_port
        gateway = ",".join(f"http://127.0.0.1:{port}" for port in ports)
        env = {
            "SERVEGATE_SECRET": SECRET,
            "SERVEGATE_TICK": "0.2",
            "SERVEGATE_GATEWAY": gateway,
        } | env
        named = [word for one in machines for word in ("--triton", one.flag)]
        control = ("control", "--state", str(state), "--admin-port", str(self.admin_port))
        control += ("--model-repo", "", "--delivery", "agents", *named, *flags)
        self.program = harness.Program(*control, env=env)
        worker = harness.RunningGateway(state.with_name("proxy"), self.numbers)
        self.proxy = harness.Program(
            *("proxy", "--control", self.admin, *worker.flags()), env={"SERVEGATE_SECRET": SECRET}
        )

    def wait_ready(self) -> "Fleet":
        def answers(url: str) -> bool:
            with contextlib.suppress(OSError):
                return harness.request(url)[0] == 200
            return False

        harness.until(lambda: answers(self.admin + "/readyz"), what=self.program.output)
        harness.until(lambda: answers(f"http://{self.http}/v2/health/live"), what="the worker")
        return self

    def stop(self) -> None:
        self.proxy.stop()
        code = self.program.stop()
        for machine in self.machines:
            machine.stop()
        assert code == 0, self.program.output

    def called(self, model: str, version: int) -> set[str]:
        target = self.snapshot().get(model, {}).get(version)
        return set(target or ())

    def snapshot(self) -> dict[str, dict[int, list[str]]]:
        models = self.get("/api/snapshot")["snapshot"]["models"]
        return {
            name: {int(version): one["replicas"] for version, one in model["targets"].items()}
            for name, model in models.items()
        }

    def held(self, replica: str) -> dict[str, list[int]]:
        replicas = {one["name"]: one for one in self.get("/api/replicas")}
        return replicas[replica]["held"]
