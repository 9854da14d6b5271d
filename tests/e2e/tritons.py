"""Tritons of a test's own, and nothing else of Servegate."""

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import harness

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
