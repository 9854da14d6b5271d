"""Versions that are no good: FAILED with the reason, and no serving replica ever hears of them."""

import json
import re

import harness
import pushing
import pytest

pytestmark = [pytest.mark.triton, pytest.mark.slow]

HANGS = """
import time

class TritonPythonModel:
    def initialize(self, args):
        time.sleep(3600)
"""
HUNGRY = """
class TritonPythonModel:
    def initialize(self, args):
        self.hoard = [bytearray(b"x") * (16 << 20) for _ in range(400)]

    def execute(self, requests):
        return []
"""


@pytest.fixture(scope="module")
def up(tmp_path_factory):
    folder = tmp_path_factory.mktemp("refused")
    pushing.source(folder / "models" / "good", 2.0)
    flags = (
        *("--model-repo", str(folder / "models"), "--replicas", "2", "--allow-code-models"),
        *("--quarantine-timeout", "15", "--quarantine-bytes", str(600 << 20)),
    )
    with harness.up(folder / "state", *flags) as running:
        pushing.published(running, folder / "fine", "held", 3.0)
        yield running


def corrupt(folder):
    pushing.source(folder, 1.0)
    (folder / "1" / "model.onnx").write_bytes(pushing.times(1.0)[:-20])
    return folder


def misnamed(folder):
    pushing.source(folder, 1.0)
    text = (folder / "config.pbtxt").read_text().replace('name: "x"', 'name: "z"')
    (folder / "config.pbtxt").write_text(text)
    return folder


CASES = {
    "corrupt": (corrupt, "model.onnx"),
    "misnamed": (misnamed, "'z'"),
    "hangs": (lambda folder: pushing.python(folder, HANGS), "15 s"),
    "hungry": (lambda folder: pushing.python(folder, HUNGRY), "memory"),
    "wrong": (lambda folder: pushing.source(folder, 4.0), "'y'"),  # by its golden case
}


def test_a_version_that_is_no_good_fails_with_its_reason_and_the_old_one_serves_on(up, tmp_path):
    good = pushing.state(up, "held", 1)
    assert (good["state"], len(good["replicas"])) == ("serving", 2)
    assert good["memory"] is not None
    golden = pushing.golden(tmp_path / "golden.npz", 3.0)
    for case, (make, words) in CASES.items():
        flags = ("--wait", "--json", "--again")
        flags += ("--golden", str(golden)) if case == "wrong" else ()
        done = pushing.push(up, make(tmp_path / case), "held", *flags)
        assert done.returncode == 7, (case, done.stdout, done.stderr)
        assert json.loads(done.stdout.splitlines()[-1])["type"] == "result"
        number = up.get("/api/models/held")["versions"][-1]["version"]
        shown = pushing.state(up, "held", number)
        assert (shown["state"], words in shown["reason"]) == ("failed", True), shown["reason"]
        assert pushing.factor_of(up, "held") == 3.0
        assert all(replica["held"]["held"] == [1] for replica in up.get("/api/replicas"))
        assert not (up.state / "repository" / "held" / str(number)).exists()
    loads = [line for line in up.program.lines if re.search(r"local-.*load(ing)?: held:", line)]
    assert all("held:1" in line for line in loads), loads
