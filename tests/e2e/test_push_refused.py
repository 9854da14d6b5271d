"""Versions that are no good: FAILED with the reason, and no serving replica ever hears of them."""

import json

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
    "corrupt": (corrupt, (), "model.onnx"),
    "misnamed": (misnamed, (), "'z'"),
    "hangs": (lambda folder: pushing.python(folder, HANGS), (), "15 s"),
    "hungry": (lambda folder: pushing.python(folder, HUNGRY), (), "memory"),
    "wrong": (lambda folder: pushing.source(folder, 4.0), ("--golden", "GOLDEN"), "'y'"),
}


def test_a_version_that_is_good_is_on_every_replica_and_its_memory_is_known(up):
    shown = pushing.state(up, "held", 1)
    assert (shown["state"], len(shown["replicas"])) == ("serving", 2)
    assert shown["memory"] is not None


@pytest.mark.parametrize("case", CASES)
def test_a_version_that_is_no_good_fails_with_its_reason_and_the_old_one_serves_on(
    up, tmp_path, case
):
    make, flags, words = CASES[case]
    golden = pushing.golden(tmp_path / "golden.npz", 3.0)
    given = [str(golden) if flag == "GOLDEN" else flag for flag in flags]
    done = pushing.push(up, make(tmp_path / case), "held", "--wait", "--json", "--again", *given)
    result = json.loads(done.stdout.splitlines()[-1])
    assert done.returncode == 7, (done.returncode, done.stdout, done.stderr)
    number = up.get("/api/models/held")["versions"][-1]["version"]
    shown = pushing.state(up, "held", number)
    assert (shown["state"], words in shown["reason"]) == ("failed", True), shown["reason"]
    assert result["type"] == "result"
    assert pushing.factor_of(up, "held") == 3.0
    for replica in up.get("/api/replicas"):
        assert replica["held"]["held"] == [1]
    serving = [line for line in up.program.lines if "local-" in line]
    loaded = [line for line in serving if "loading: held" in line or "load: held" in line]
    assert all(f"held:{number}" not in line for line in loaded), loaded
    assert not (up.state / "repository" / "held" / str(number)).exists()
