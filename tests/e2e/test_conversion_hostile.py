"""`servegate convert` where it is killed, raced, cut off and lied to: nothing is left half done.

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
SERVEGATE = str(harness.BIN / "servegate")
PATIENCE = 60.0  # seconds


# a limited file would be cut short without a word, and fail whoever imports it next
_NO_BYTECODE = {"PYTHONDONTWRITEBYTECODE": "1"}


class Bench:
    """A folder with a source, a place for temporary files, and a repository."""

    def __init__(self, folder: Path) -> None:
        self.source, self.scratch, self.repo = folder / "m.onnx", folder / "tmp", folder / "repo"
        self.scratch.mkdir()
        self.source.write_bytes(pushing.times(2.0))

    def start(
        self, *flags: str, before: Callable[[], None] | None = None
    ) -> "subprocess.Popen[str]":
        where = ("--name", "m", "--out", str(self.repo))
        return subprocess.Popen(
            [SERVEGATE, "convert", "onnx", str(self.source), *where, *flags],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"TMPDIR": str(self.scratch), **_NO_BYTECODE},
            preexec_fn=before,
        )

    @property
    def left(self) -> list[Path]:
        return list(self.scratch.iterdir())


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def end(process: "subprocess.Popen[str]") -> tuple[int, str]:
    said = process.communicate(timeout=PATIENCE)[1]
    assert "Traceback" not in said
    return process.returncode, said


def test_a_full_disk_leaves_no_half_entry(bench: Bench) -> None:
    for size, where in ((1000, "writing the result"), (6000, "repo is full")):
        limit = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (size, size))
        code, said = end(bench.start(before=limit))
        assert code == 1 and "code: no_space" in said and where in said
        assert not bench.left and not bench.repo.exists()


def test_a_reader_that_goes_away_ends_the_conversion(bench: Bench) -> None:
    process = bench.start("--json")
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    process.stdout = None
    code, _ = end(process)
    assert code != 0
    assert not bench.left and not bench.repo.exists()


def test_of_those_who_write_the_same_version_one_wins_and_the_others_are_told(
    bench: Bench,
) -> None:
    for version in ("1", "2"):
        ends = [end(one) for one in [bench.start("--as-version", version) for _ in range(3)]]
        assert sorted(code for code, _ in ends) == [0, 5, 5]
        assert (bench.repo / "m" / version / "model.onnx").is_file()
    assert [path.name for path in bench.repo.iterdir()] == ["m"]
    cases = json.loads((bench.repo / "m/contract/contract.json").read_bytes())["cases"]
    assert len(list((bench.repo / "m/contract").glob("*.npz"))) == len(cases)
