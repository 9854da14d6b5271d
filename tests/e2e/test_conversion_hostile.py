"""`servegate convert` on a full disk, and raced: nothing is left half done.

The source is ONNX already, which is converted without TensorFlow.
"""

import json
import os
import resource
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import harness
import pushing
import pytest

pytestmark = pytest.mark.slow
PATIENCE = 60.0  # seconds


class Bench:
    """A folder with a source, a place for temporary files, and a repository."""

    def __init__(self, folder: Path) -> None:
        self.source, self.scratch, self.repo = folder / "m.onnx", folder / "tmp", folder / "repo"
        self.scratch.mkdir()
        self.source.write_bytes(pushing.times(2.0))

    def start(
        self, *flags: str, before: Callable[[], None] | None = None
    ) -> "subprocess.Popen[str]":
        command = (str(harness.BIN / "servegate"), "convert", "onnx", str(self.source))
        env = os.environ | {"TMPDIR": str(self.scratch)}
        # a limited file would be cut short without a word, and fail whoever imports it next
        env["PYTHONDONTWRITEBYTECODE"] = "1"
        return subprocess.Popen(
            [*command, "--name", "m", "--out", str(self.repo), *flags],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=env,
            preexec_fn=before,
        )


def end(process: "subprocess.Popen[str]") -> tuple[int, str]:
    said = process.communicate(timeout=PATIENCE)[1]
    assert "Traceback" not in said
    return process.returncode, said


def test_a_full_disk_leaves_no_half_entry(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    for size, where in ((1000, "writing the result"), (6000, "repo is full")):
        limit = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (size, size))
        code, said = end(bench.start(before=limit))
        assert code == 1 and "code: no_space" in said and where in said
        assert not list(bench.scratch.iterdir()) and not bench.repo.exists()


def test_of_those_who_write_the_same_version_one_wins_and_the_others_are_told(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path)
    for version in ("1", "2"):
        ends = [end(one) for one in [bench.start("--as-version", version) for _ in range(3)]]
        assert sorted(code for code, _ in ends) == [0, 5, 5]
        assert (bench.repo / "m" / version / "model.onnx").is_file()
    assert [path.name for path in bench.repo.iterdir()] == ["m"]
    cases = json.loads((bench.repo / "m/contract/contract.json").read_bytes())["cases"]
    assert len(list((bench.repo / "m/contract").glob("*.npz"))) == len(cases)
