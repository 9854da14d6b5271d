"""Starts the real program as its user would, on ports and in a folder of its own."""

import contextlib
import fcntl
import importlib.util
import json
import os
import re
import shutil
import signal
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from ports import free_ports

from serve.processes.kernel import die_with

BIN = Path(sys.executable).parent
ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 90.0  # seconds for anything that starts


class Program:
    """One running `servegate` process with everything it says."""

    def __init__(
        self, *arguments: str, cwd: Path = ROOT, env: dict[str, str] | None = None
    ) -> None:
        self.process = subprocess.Popen(
            [str(BIN / "servegate"), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=cwd,
            env={k: v for k, v in os.environ.items() if not k.startswith("SERVEGATE_")}
            | (env or {}),
            start_new_session=True,
            preexec_fn=partial(die_with, os.getpid()),  # nothing remains after a killed pytest
        )
        self.lines: list[str] = []
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def output(self) -> str:
        return "\n".join(self.lines)

    def wait_line(self, pattern: str, patience: float = PATIENCE) -> str:
        """The first line that matches; fails with all output when the program ends before."""
        until = time.monotonic() + patience
        seen = 0
        with self._news:
            while True:
                for line in self.lines[seen:]:
                    seen += 1
                    if re.search(pattern, line):
                        return line
                left = until - time.monotonic()
                ended = self.process.poll() is not None and not self._reader.is_alive()
                if left <= 0 or ended:
                    raise AssertionError(f"no line matches {pattern!r} in:\n{self.output}")
                self._news.wait(min(left, 0.5))

    def stop(self, number: int = signal.SIGTERM, within: float = PATIENCE) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(within)
        self._reader.join(5)
        return code

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._news:
                self.lines.append(line.rstrip("\n"))
                self._news.notify_all()
        with self._news:
            self._news.notify_all()


class RunningGateway:
    """Where a gateway is: its state folder, and its ports for HTTP, gRPC, metrics and admin."""

    def __init__(self, state: Path, ports: Sequence[int] = ()) -> None:
        self.state = state
        self.numbers = tuple(ports or free_ports(4))
        self.http_port, self.grpc_port, self.metrics_port, self.admin_port = self.numbers

    @property
    def models(self) -> Path:
        return self.state.parent / "models"

    def flags(self) -> tuple[str, ...]:
        return (
            *("--state", str(self.state)),
            *("--http-port", str(self.http_port)),
            *("--grpc-port", str(self.grpc_port)),
            *("--metrics-port", str(self.metrics_port)),
        )

    @property
    def http(self) -> str:
        return f"127.0.0.1:{self.http_port}"

    @property
    def grpc(self) -> str:
        return f"127.0.0.1:{self.grpc_port}"

    @property
    def admin(self) -> str:
        return f"http://127.0.0.1:{self.admin_port}"

    def get(self, path: str) -> Any:
        return request(self.admin + path)[1]

    def put(self, path: str, body: Any) -> Any:
        status, answer = request(self.admin + path, "PUT", body)
        assert status == 200, answer
        return answer

    def split(self, model: str, **weights: int) -> Any:
        """Set a route, as `split("digits", v1=90, v2=10)`."""
        shares = {name.removeprefix("v"): weight for name, weight in weights.items()}
        return self.put(f"/api/routes/{model}", {"split": shares})

    def metrics(self) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics") as answer:
            return answer.read().decode()

    def worker_memory(self) -> float:
        """MiB of the workers, of their parent, and of the processes that compute for them."""
        page = json.loads((self.state / "children.json").read_text())
        (parent,) = (one["pid"] for one in page["children"] if one["name"] == "workers")
        pages = 0
        for pid in (parent, *descendants(parent)):
            with contextlib.suppress(OSError):
                pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        return pages / 256

    def children(self) -> dict[str, int]:
        """The child processes: name → pid; the workers, which are forked, by the kernel's name."""
        page = json.loads((self.state / "children.json").read_text())
        found = {entry["name"]: entry["pid"] for entry in page["children"]}
        for pid in descendants(found["workers"]) if "workers" in found else ():
            with contextlib.suppress(OSError):
                name = Path(f"/proc/{pid}/comm").read_text().strip()
                if name.startswith("sg-worker-"):
                    found[name.removeprefix("sg-")] = pid
        return found


class Up(RunningGateway):
    """A `servegate up` that was started here."""

    def __init__(
        self,
        state: Path,
        *arguments: str,
        env: dict[str, str] | None = None,
        on: Sequence[int] = (),
    ) -> None:
        super().__init__(state, on)
        admin = ("--admin-port", str(self.admin_port))
        self.program = Program("up", *self.flags(), *admin, *arguments, env=env)

    def wait_ready(self) -> "Up":
        self.program.wait_line(r"^ready: ")
        return self


def request(
    url: str,
    method: str = "GET",
    body: Any = None,
    *,
    context: ssl.SSLContext | None = None,
    **headers: str,
) -> tuple[int, Any]:
    """Status and JSON of one HTTP exchange; other statuses than 200 are answers, too."""
    data = None if body is None else json.dumps(body).encode()
    headers |= {"content-type": "application/json"} if data else {}
    asked = urllib.request.Request(url, data, headers, method=method)
    try:
        with urllib.request.urlopen(asked, timeout=30, context=context) as answer:
            return answer.status, json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as error:
        text = error.read().decode()
        try:
            return error.code, json.loads(text)
        except ValueError:
            return error.code, text


def servegate(
    *arguments: str, cwd: Path = ROOT, env: dict[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run one command to its end; `env` is added to the environment."""
    return subprocess.run(
        [str(BIN / "servegate"), *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, **(env or {})},
        timeout=2 * PATIENCE,  # others use the same cores and the same gateway
    )


def is_alive(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def descendants(pid: int) -> list[int]:
    """All processes below this one, by pid."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found, queue = [], [pid]
    while queue:
        for child in parents.get(queue.pop(), ()):
            found.append(child)
            queue.append(child)
    return found


def until(reached: Any, patience: float = PATIENCE, what: str | Callable[[], str] = "") -> Any:
    """Ask again and again until the answer is true; bounded. `what` may be asked at the end."""
    end = time.monotonic() + patience
    while True:
        answer = reached()
        if answer:
            return answer
        if time.monotonic() > end:
            said = what() if callable(what) else what
            raise AssertionError(f"not reached within {patience} s: {said or reached}")
        threading.Event().wait(0.05)


@contextlib.contextmanager
def up(state: Path, *arguments: str, env: dict[str, str] | None = None) -> Iterator[Up]:
    """A ready `servegate up` inside the block; its end is checked to be clean."""
    one = Up(state, *arguments, env=env)
    try:
        yield one.wait_ready()
    finally:
        code = one.program.stop()
    assert code == 0, one.program.output


@contextlib.contextmanager
def shared(
    folder: Path, start: Callable[[Path], contextlib.AbstractContextManager[Up]]
) -> Iterator[RunningGateway]:
    """A gateway that all processes of a test run use: the first that needs it starts it.

    Each user holds a shared lock, which the kernel releases when the user ends, in whatever way.
    The process that has started the gateway stops it once nobody else uses it.
    """
    folder.mkdir(exist_ok=True)
    record = folder / "ports.json"
    with (
        (folder / "starting").open("w") as starting,
        (folder / "users").open("w") as users,
        contextlib.ExitStack() as ending,
    ):
        fcntl.flock(starting, fcntl.LOCK_EX)
        fcntl.flock(users, fcntl.LOCK_SH)
        if record.exists():
            gateway = RunningGateway(folder / "state", json.loads(record.read_text()))
        else:
            for name in ("models", "state"):  # an earlier one may have ended with its last user
                shutil.rmtree(folder / name, ignore_errors=True)
            (folder / "models").mkdir()
            gateway = ending.enter_context(start(folder))
            record.write_text(json.dumps(gateway.numbers))
            ending.callback(record.unlink)
            ending.callback(fcntl.flock, users, fcntl.LOCK_EX)  # waits for the other users
        fcntl.flock(starting, fcntl.LOCK_UN)
        yield gateway


def load_example(path: str) -> ModuleType:
    name = path.replace("/", "_").removesuffix(".py")
    spec = importlib.util.spec_from_file_location(name, ROOT / path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
