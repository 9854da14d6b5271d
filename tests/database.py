"""A real PostgreSQL of a test's own: a temporary folder, a free port of loopback, no service."""

import contextlib
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
from ports import free_ports

USER, PASSWORD = "servegate", "gehe1m%&ü"
ENCODED = "gehe1m%25%26%C3%BC"
MODES = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}
_DEBIAN = Path("/usr/lib/postgresql")
_numbers = itertools.count(1)


class PostgresServer:
    """One server; `start` and `stop` as often as a test likes, its data stays."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._data = folder / "data"
        self._account = _account()
        self._process: subprocess.Popen[bytes] | None = None
        (self.port,) = free_ports(1)

    @property
    def pid(self) -> int:
        """The process of the server itself, which has one child per connection."""
        assert self._process is not None
        return self._process.pid

    def initialise(self) -> None:
        """Make the data folder, owned by whom the server runs as: it refuses root."""
        if self._account is not None:
            os.chown(self._folder, self._account.pw_uid, self._account.pw_gid)
        secret = self._folder / "password"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)
        self._run(
            *(_program("initdb"), "-D", str(self._data), "-U", USER, "-A", "scram-sha-256"),
            *(f"--pwfile={secret}", "-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions"),
        )

    def start(self) -> None:
        """Start it and wait until it answers."""
        log = (self._folder / "log").open("ab")
        self._process = subprocess.Popen(
            (
                *(_program("postgres"), "-D", str(self._data), "-p", str(self.port)),
                *("-h", "127.0.0.1", "-k", str(self._folder), "-F"),
            ),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            **self._as_account(),
        )
        log.close()
        self._await_ready(time.monotonic() + 30)

    def stop(self, mode: str = "fast") -> None:
        """Stop it as `pg_ctl stop -m MODE` does, and wait for its end."""
        if self._process is None:
            return
        self.thaw()
        self._process.send_signal(MODES[mode])
        self._process.wait(30)
        self._process = None

    def ensure_running(self) -> None:
        """Undo what an earlier test has left."""
        if self._process is None:
            self.start()
        self.thaw()

    def freeze(self) -> None:
        """Have it stand still, all its processes: connections stay, nothing is answered."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Have it go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        for pid in (self.pid, *map(int, children)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def url(self, database: str = "postgres") -> str:
        """Where a database of it is, password included."""
        return f"postgresql://{USER}:{ENCODED}@127.0.0.1:{self.port}/{database}"

    def new_database(self) -> str:
        """The URL of a database that is empty."""
        name = f"test{next(_numbers)}"
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f"create database {name}")
        return self.url(name)

    def _await_ready(self, end: float) -> None:
        while True:
            assert self._process is not None
            try:
                psycopg.connect(self.url(), connect_timeout=2).close()
                return
            except psycopg.OperationalError:
                log = (self._folder / "log").read_text()
                assert self._process.poll() is None and time.monotonic() < end, log
            time.sleep(0.02)

    def _run(self, *command: str) -> None:
        done = subprocess.run(command, capture_output=True, text=True, **self._as_account())
        assert done.returncode == 0, done.stderr

    def _as_account(self) -> dict[str, object]:
        told: dict[str, object] = {"cwd": self._folder, "env": os.environ | {"LC_ALL": "C"}}
        if self._account is not None:
            told |= {"user": self._account.pw_uid, "group": self._account.pw_gid}
            told |= {"extra_groups": []}
        return told


@contextlib.contextmanager
def postgres() -> Iterator[PostgresServer]:
    """A server that is gone with its folder at the end."""
    folder = Path(tempfile.mkdtemp(prefix="servegate-postgres-"))
    server = PostgresServer(folder)
    try:
        server.initialise()
        server.start()
        yield server
    finally:
        server.stop("immediate")
        shutil.rmtree(folder)


def _account() -> "pwd.struct_passwd | None":
    """As whom the server runs, when we are root."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name: entry for entry in pwd.getpwall()}
    return known.get("postgres") or known["nobody"]


def _program(name: str) -> str:
    versions = sorted(_DEBIAN.glob(f"[0-9]*/bin/{name}"), key=lambda path: int(path.parts[-3]))
    found = str(versions[-1]) if versions else shutil.which(name)
    assert found, f"there is no {name}: make deps-postgres"
    return found
