"""The control plane dies at every step from the first byte to ready: a version is absent or whole.

One Triton for all of it: the test starts only control planes, with a failpoint in the environment.
"""

import json
import subprocess

import harness
import pushing
import pytest
from ports import free_ports
from tritons import tritons

from serve.core.versions import Manifest
from serve.processes.failpoints import POINTS, STATUS, VARIABLE

pytestmark = [pytest.mark.triton, pytest.mark.slow]


class Control:
    """A control plane of its own over a Triton that stays, so that it can be killed and started."""

    def __init__(self, folder, triton, repository):
        self.folder = folder
        (self.port,) = free_ports(1)
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

    def wait_leading_or_dead(self):
        def leads():
            try:
                return harness.request(self.admin + "/readyz")[0] == 200
            except OSError:
                return self.program.process.poll() is not None

        harness.until(leads, what="control answers")

    def stop(self):
        assert self.program.stop() in (0, STATUS), self.program.output


@pytest.fixture(scope="module")
def triton(tmp_path_factory):
    """A local Triton on an empty published repository, and nothing else of Servegate."""
    folder = tmp_path_factory.mktemp("crashes")
    repository = folder / "repository"
    with tritons(folder, repository) as address:
        yield address, repository


class Pushes:
    """Pushes that go on through the deaths of their control plane, one after the other."""

    def __init__(self, control, folder):
        self._control, self._folder = control, folder
        self._golden = pushing.golden(folder / "golden.npz", 2.0)
        self._count = 0
        self._source = None
        self.running = None

    def go_on(self):
        """Have one that runs: the last one, the same again if it gave up, or a new one."""
        if self.running is not None and self.running.poll() is None:
            return
        if self.running is None or self.result()["ok"]:
            self._count += 1
            self._source = pushing.source(
                self._folder / f"source-{self._count}", 2.0, batch=self._count
            )
        flags = ("--golden", str(self._golden), "--label", "candidate", "--wait", "--json")
        command = [str(harness.BIN / "servegate"), "model", "push", str(self._source), "m"]
        self.running = subprocess.Popen(
            [*command, "--admin-url", self._control.admin, *flags],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def result(self):
        """The last event of the one that has ended."""
        out, _ = self.running.communicate(timeout=90)
        result = json.loads(out.splitlines()[-1])
        assert result["ok"] or result["exit"] == 6, (out, self._control.program.output)
        return result


def test_a_death_at_any_step_leaves_a_version_absent_or_whole(triton, tmp_path):
    address, repository = triton
    control = Control(tmp_path, address, repository)
    pushes, published = Pushes(control, tmp_path), {}
    for point in POINTS:  # each start goes on with what the death before it has left
        control.start(point)
        control.wait_leading_or_dead()
        until_dead(control, pushes, point)
        published = assert_absent_or_whole(control, repository, published)
    control.start()
    control.wait_leading_or_dead()
    pushes.go_on()
    harness.until(lambda: pushes.running.poll() is not None)
    while not (result := pushes.result())["ok"]:
        pushes.go_on()
        harness.until(lambda: pushes.running.poll() is not None)
    shown = pushing.state(control, "m", result["version"])
    assert (shown["state"], shown["named_by"]) == ("serving", ["candidate"])
    assert result["version"] in assert_absent_or_whole(control, repository, published)
    assert_no_orphans(control)
    control.stop()


def until_dead(control, pushes, point):
    """Push until the control plane has died at its failpoint."""

    def died():
        if control.program.process.poll() is None:
            pushes.go_on()
        return control.program.process.poll() is not None

    harness.until(died, what=f"{point} is reached: {control.program.output}")
    assert control.program.process.returncode == STATUS, (point, control.program.output)


def assert_absent_or_whole(control, repository, before):
    """What is published is whole and as it was; gives it by number."""
    found = {}
    registry = control.state / "registry"
    for path in sorted(registry.glob("manifests/m/*.json")):
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
