"""The control plane dies at every step from the first byte to ready: a version is absent or whole.

One Triton for all of it: the test starts only control planes, with a failpoint in the environment.
"""

import json
import subprocess

import harness
import pushing
import pytest
from tritons import Control, tritons

from serve.core.versions import Manifest
from serve.processes.failpoints import POINTS, STATUS, VARIABLE

pytestmark = [pytest.mark.triton, pytest.mark.slow]


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
        out, _ = self.running.communicate(timeout=90)
        result = json.loads(out.splitlines()[-1])
        assert result["ok"] or result["exit"] == 6, (out, self._control.program.output)
        return result


def start(control, failpoint=""):
    """Start it with a failpoint, and wait until it leads, or is dead already."""
    control.start({VARIABLE: failpoint, "SERVEGATE_TICK": "0.1", "SERVEGATE_SCAN_INTERVAL": "0.2"})
    harness.until(lambda: control.readyz() == 200 or control.has_ended, what="control answers")


def test_a_death_at_any_step_leaves_a_version_absent_or_whole(tmp_path):
    repository = tmp_path / "repository"
    with tritons(tmp_path, repository) as address:
        flags = ("--triton", address, "--delivery-folder", str(repository))
        control = Control(tmp_path / "state", *flags)
        pushes, published = Pushes(control, tmp_path), {}
        for point in POINTS:  # each start goes on with what the death before it has left
            start(control, point)
            until_dead(control, pushes, point)
            published = assert_absent_or_whole(control, repository, published)
        start(control)
        pushes.go_on()
        harness.until(lambda: pushes.running.poll() is not None)
        while not (result := pushes.result())["ok"]:
            pushes.go_on()
            harness.until(lambda: pushes.running.poll() is not None)
        shown = pushing.state(control, "m", result["version"])
        assert (shown["state"], shown["named_by"]) == ("serving", ["candidate"])
        assert result["version"] in assert_absent_or_whole(control, repository, published)
        assert_no_orphans(control)
        assert control.program.stop() == 0, control.program.output


def until_dead(control, pushes, point):
    def died():
        if not control.has_ended:
            pushes.go_on()
        return control.has_ended

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
    """Nothing is left that a collection without grace would find after another."""
    for is_trial in (False, True):
        body = {"keep": 1000, "dry_run": is_trial, "grace": 0}
        status, answer = harness.request(control.admin + "/api/gc", "POST", body)
        assert status == 200, answer
    assert answer["items"] == []
    staging = control.state / "uploads" / "staging"
    assert [path for path in staging.rglob("*") if path.is_file()] == []
    assert list((control.state / "checks").iterdir()) == []
