"""Tritons of a test's own, and control planes in front of them that it starts and kills."""

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import harness
from ports import free_ports

_PROGRAM = """
import asyncio, logging, sys
from pathlib import Path
from serve.processes import Ledger
from serve.triton.installation import Installation, MachineFacts
from serve.triton.launcher import Launcher

async def main(folder, repository, count):
    local = Launcher(
        count, [str(repository)], state=folder / "triton",
        installation=Installation.find(MachineFacts.here()),
        ledger=Ledger(folder / "triton" / "children.json"),
        logger=logging.getLogger("servegate.triton"),
    )
    async with local:
        await local.wait_ready()
        print(",".join(replica.address for replica in local.replicas), flush=True)
        await asyncio.Event().wait()

asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])))
"""


@contextlib.contextmanager
def tritons(folder: Path, repository: Path, *, count: int = 1) -> Iterator[str]:
    """Local Tritons on an empty published repository, which is made; gives their addresses."""
    repository.mkdir()
    python = str(harness.BIN / "python")
    process = subprocess.Popen(
        [python, "-c", _PROGRAM, str(folder), str(repository), str(count)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait(20)
        process.stdout.close()


class Control:
    """A control plane alone; `start` it as often as a test likes."""

    def __init__(self, state: Path, *flags: str) -> None:
        self.state = state
        (self.port,) = free_ports(1)
        self.admin = f"http://127.0.0.1:{self.port}"
        where = ("--state", str(state), "--admin-port", str(self.port))
        self._words = ("control", *where, "--model-repo", "", *flags)

    def start(self, env: dict[str, str]) -> None:
        self.program = harness.Program(*self._words, env=env)

    @property
    def has_ended(self) -> bool:
        return self.program.process.poll() is not None

    def readyz(self) -> int:
        """The status; 0 while nobody listens."""
        try:
            return harness.request(self.admin + "/readyz")[0]
        except OSError:
            return 0
