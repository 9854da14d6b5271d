"""The control plane dies at every step from the first byte to ready: a version is absent or whole.

One Triton for all of it: the test starts only control planes, with a failpoint in the environment.
"""

import json
import subprocess

import harness
import pushing
import pytest

from serve.core.versions import Manifest
from serve.processes.failpoints import POINTS, STATUS, VARIABLE

pytestmark = pytest.mark.triton


class Control:
    """A control plane of its own over a Triton that stays, so that it can be killed and started."""

    def __init__(self, folder, triton, repository):
        self.folder = folder
        (self.port,) = harness.free_ports(1)
        self.state = folder / "state"
        self.admin = f"http://127.0.0.1:{self.port}"
        self._flags = (
            *("control", "--state", str(self.state), "--admin-port", str(self.port)),
            *("--triton", triton, "--model-repo", "", "--delivery-folder", str(repository)),
        )
        self.program = None

    def start(self, failpoint=""):
        env = {VARIABLE: failpoint, "SERVEGATE_TICK": "0.1", "SERVEGATE_SCAN_INTERVAL": "0.2"}
        self.program = harness.Program(*self._flags, env=env)

    def wait_leading(self):
        def leads():
            try:
                return harness.request(self.admin + "/readyz")[0] == 200
            except OSError:
                return False

        harness.until(leads, what="control answers")

    def stop(self):
        assert self.program.stop() in (0, STATUS), self.program.output


@pytest.fixture(scope="module")
def triton(tmp_path_factory):
    """A local Triton on an empty published repository, and nothing else of Servegate."""
    folder = tmp_path_factory.mktemp("crashes")
    repository = folder / "repository"
    repository.mkdir()
    script = f"""
import asyncio, logging
from pathlib import Path
from serve.processes import Ledger
from serve.triton.installation import Facts, Installation
from serve.triton.launcher import Launcher

async def main():
    folder = Path({str(folder)!r})
    local = Launcher(
        1, [{str(repository)!r}], state=folder / "triton",
        installation=Installation.find(Facts.here()),
        ledger=Ledger(folder / "triton" / "children.json"),
        logger=logging.getLogger("servegate.triton"),
    )
    async with local:
        await local.wait_ready()
        print(local.replicas[0].address, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""
    process = subprocess.Popen(
        [str(harness.BIN / "python"), "-c", script], stdout=subprocess.PIPE, text=True
    )
    yield process.stdout.readline().strip(), repository
    process.terminate()
    process.wait(20)


def test_a_death_at_any_step_leaves_a_version_absent_or_whole(triton, tmp_path):
    address, repository = triton
    control = Control(tmp_path, address, repository)
    visited, published = set(), {}
    control.start()
    control.wait_leading()
    golden = pushing.golden(tmp_path / "golden.npz", 2.0)
    pushing.pushed(control, pushing.source(tmp_path / "base", 2.0), "m", "--wait")
    control.stop()
    for number, point in enumerate(POINTS, start=2):
        factor_file = pushing.source(tmp_path / point, 2.0, batch=number)
        flags = ("--golden", str(golden), "--label", "candidate", "--wait", "--json")
        control.start(point)
        control.wait_leading()
        pushing_process = subprocess.Popen(
            [
                *(str(harness.BIN / "servegate"), "model", "push", str(factor_file), "m"),
                *("--admin-url", control.admin, *flags),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            code = control.program.process.wait(60)
        except subprocess.TimeoutExpired:
            pushing_process.kill()
            told = f"{pushing_process.communicate()} {control.program.output}"
            raise AssertionError(f"{point} was not reached: {told}") from None
        assert code == STATUS, (point, control.program.output)
        visited.add(point)
        assert_absent_or_whole(control, repository, published)
        control.start()
        out, told = pushing_process.communicate(timeout=90)
        assert pushing_process.returncode == 0, (point, out, told, control.program.output)
        result = json.loads(out.splitlines()[-1])
        shown = pushing.state(control, "m", result["version"])
        assert shown["state"] == "serving", (point, shown)
        assert shown["named_by"] == ["candidate"], (point, shown)
        published = assert_absent_or_whole(control, repository, published)
        assert result["version"] in published, point
        control.stop()
    assert visited == set(POINTS)
    control.start()
    control.wait_leading()
    assert_no_orphans(control)
    control.stop()


def assert_absent_or_whole(control, repository, before):
    """What is published is whole and as it was; gives it by number."""
    found = {}
    registry = control.state / "registry"
    for path in sorted(registry.glob("models/m/*/manifest.json")):
        manifest = Manifest.from_bytes(path.read_bytes())
        for file in manifest.files:
            blob = registry / "blobs" / "sha256" / file.sha256[:2] / file.sha256
            assert blob.stat().st_size == file.size
        found[manifest.version] = path.read_bytes()
    for number, manifest in before.items():
        assert found[number] == manifest, "a published version was changed"
    for folder in repository.glob("m*/[0-9]*"):
        manifest = Manifest.from_bytes(found[int(folder.name)])
        for file in manifest.layout.version:
            assert (folder / file.path.partition("/")[2]).stat().st_size == file.size
    return found


def assert_no_orphans(control):
    """Nothing is left that a collection without grace would find beyond its dry run's word."""
    status, answer = harness.request(
        control.admin + "/api/gc", "POST", {"keep": 1000, "dry_run": False, "grace": 0}
    )
    assert status == 200, answer
    status, answer = harness.request(
        control.admin + "/api/gc", "POST", {"keep": 1000, "dry_run": True, "grace": 0}
    )
    assert (status, answer["items"]) == (200, []), answer
    staging = control.state / "uploads" / "staging"
    assert [path for path in staging.rglob("*") if path.is_file()] == []
    assert list((control.state / "checks").iterdir()) == []
