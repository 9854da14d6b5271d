"""`make pipeline-demo`, as a newcomer runs it: a real Triton, a real gateway, three runs of kfp."""

import contextlib
import json
import os
import re
import signal
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import harness
import pytest

pytestmark = pytest.mark.triton

PYTHON = harness.ROOT / ".venv-pipeline" / "bin" / "python"
DEMO = harness.ROOT / "examples" / "kubeflow" / "demo.py"
STEPS = ["preprocess", "fit", "evaluate", "gate", "convert", "push", "verify", "promote", "link"]


@dataclass
class Demo:
    """A demo that runs, and every line that it has said."""

    process: "subprocess.Popen[str]"
    folder: Path
    said: list[str] = field(default_factory=list)

    def read_until(self, pattern: str) -> str:
        """The first line that matches; fails with everything said when the demo ends before."""
        for line in self.process.stdout:
            self.said.append(line.rstrip("\n"))
            if re.search(pattern, self.said[-1]):
                return self.said[-1]
        raise AssertionError("\n".join(self.said))

    def interrupt(self) -> int:
        """Ctrl-C, as a terminal sends it; the exit status."""
        os.killpg(self.process.pid, signal.SIGINT)
        self.said += self.process.communicate(timeout=40)[0].splitlines()
        return self.process.returncode


@contextlib.contextmanager
def demonstrated() -> Iterator[Demo]:
    """The demo in a session of its own, with a folder of its own for all that it writes.

    Its path is short: the gateway's sockets lie in it.
    """
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            [str(PYTHON), str(DEMO)],
            cwd=folder,
            env={**os.environ, "TMPDIR": folder},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        one = Demo(process, Path(folder))
        try:
            yield one
        finally:
            if process.poll() is None:
                one.interrupt()


def running_in(folder: Path) -> list[str]:
    """The command lines of all processes that name this folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if str(folder) in words:
                found.append(words)
    return found


@pytest.fixture(scope="module")
def demo() -> Iterator[Demo]:
    """The whole demo, up to its last line; it still runs."""
    with demonstrated() as one:
        one.read_until("^http")
        yield one


def chapters(said: list[str]) -> list[list[str]]:
    """What was said in each of the runs."""
    starts = [number for number, line in enumerate(said) if line.startswith("run ")]
    return [said[start:end] for start, end in zip(starts, [*starts[1:], None], strict=True)]


def steps_of(chapter: list[str]) -> list[str]:
    """The steps of a run, in the order in which they began."""
    begun = (re.fullmatch(r" *[0-9]+\.[0-9] s  (\S+)", line) for line in chapter)
    return [match[1] for match in begun if match]


def test_a_first_and_a_better_model_walk_all_the_way_and_get_the_label(demo):
    first, better, _ = chapters(demo.said)
    for number, chapter in enumerate((first, better), 1):
        assert sorted(steps_of(chapter)) == sorted(STEPS), chapter
        assert any(line.endswith(f"digits:stable is version {number}") for line in chapter)


def test_a_worse_model_is_kept_back_with_numbers_and_the_label_stays(demo):
    worse = chapters(demo.said)[2]
    assert steps_of(worse) == ["preprocess", "fit", "evaluate", "gate"]
    (why,) = [line for line in worse if "gated:" in line]
    assert "held-out rows right" in why and "the labelled version has" in why and "lost" in why
    assert any(line.endswith("digits:stable is version 2") for line in worse)


def test_the_gateway_serves_the_better_model_under_the_label(demo):
    admin = demo.said[-1].partition("/evaluations/")[0]
    _, model = harness.request(f"{admin}/api/models/digits")
    assert model["labels"] == {"stable": 2}
    assert [version["version"] for version in model["versions"]] == [1, 2]
    _, version = harness.request(f"{admin}/api/models/digits/versions/2")
    assert "kubeflow-run" in json.dumps(version)


def test_the_last_line_is_a_link_to_both_models_and_what_they_got_right(demo):
    with urllib.request.urlopen(demo.said[-1], timeout=30) as answer:
        assert answer.status == 200
        page = answer.read().decode()
    assert "digits" in page and "accuracy" in page.lower()
    identity = demo.said[-1].rpartition("/")[2]
    admin = demo.said[-1].partition("/evaluations/")[0]
    _, found = harness.request(f"{admin}/api/evaluations/{identity}")
    report = found["report"]
    assert report["rows"] == 599 and all(gate["passed"] for gate in report["gates"])
    assert report["b"]["accuracy"]["value"] > report["a"]["accuracy"]["value"]


def test_ctrl_c_ends_everything_that_was_started(demo):
    children = harness.descendants(demo.process.pid)
    assert len(children) > 2 and running_in(demo.folder)
    assert demo.interrupt() == 0
    assert not [pid for pid in children if harness.is_alive(pid)]
    assert not running_in(demo.folder) and not list(demo.folder.glob("servegate-pipeline-*"))


def test_ctrl_c_in_the_middle_of_a_step_ends_everything_too():
    with demonstrated() as one:
        one.read_until(" s  fit$")
        children = harness.descendants(one.process.pid)
        assert one.interrupt() == 0
        assert not [pid for pid in children if harness.is_alive(pid)]
        assert not running_in(one.folder)
