"""`servegate batching tune`: what is refused before anything is measured, and what is seen."""

from pathlib import Path

import pytest
from cli.commands import servegate

from serve.capacity.search import Halving, candidates
from serve.core.errors import Invalid
from serve.core.objectives import Objective
from serve.workbench.tuning.cli.options import numbers_of
from serve.workbench.tuning.cli.tuner import line
from serve.workbench.tuning.session import Now
from serve.workbench.tuning.state import TuningState, TuningSubject

from .configured_gateway import Gateway, serving


def run(*words: str) -> tuple[int, str]:
    with serving(Gateway()) as url:
        done = servegate("batching", "tune", "m@3", *words, "--admin-url", url)
    return done.returncode, done.stderr


def kept(folder: Path, model: str = "m", *, objective: str = "p99<50ms") -> Path:
    """The state of a tuning that was ended before its first measurement."""
    target = Objective.parse(objective)
    search = Halving(candidates(8, instances=1, objective=target), target)
    subject = TuningSubject(
        model, 3, objective, "1", "Poisson arrivals", "", {"max_batch_size": 8}, {}
    )
    TuningState(subject, search, "2026-11-22T10:00:00+00:00").save(folder)
    return folder


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--slo", "p99"), "'p99' is not an objective"),
        (("--slo", "p99<50ms", "--rows", "0"), "'0' is not a number of rows per call"),
        (("--slo", "p99<50ms", "--instances", "x"), "--instances cannot be 'x'"),
        (("--slo", "p99<50ms", "--budget", "0"), "--budget has to be above 0"),
        (("--slo", "p99<50ms", "--budget", "soon"), "'soon' is not a duration"),
    ],
)
def test_what_cannot_be_meant_is_refused(words: tuple[str, ...], told: str) -> None:
    code, said = run(*words)
    assert (code, told in said) == (2, True), said


def test_only_what_is_there_goes_on(tmp_path: Path) -> None:
    code, said = run("--resume", str(tmp_path / "none"))
    assert code == 3 and "no tuning to resume" in said
    (tmp_path / "state.json").write_text("{")
    code, said = run("--resume", str(tmp_path))
    assert code == 2 and "is damaged" in said


def test_a_tuning_goes_on_only_with_what_it_began_with(tmp_path: Path) -> None:
    code, said = run("--resume", str(kept(tmp_path / "a", "other")))
    assert code == 2 and "it is for other@3" in said
    code, said = run("--resume", str(kept(tmp_path / "b")), "--slo", "p99<9ms")
    assert code == 2 and "its objective is p99<50ms" in said


def test_numbers_of_instances_are_read() -> None:
    assert numbers_of("1,4") == {1, 4}
    with pytest.raises(Invalid, match="--instances cannot be"):
        numbers_of("0")


def test_a_line_says_what_is_measured_the_best_so_far_and_the_time_left() -> None:
    now = Now("rung 1: batch 8, 1 instance at 120/s", "100/s with batch 4, 1 instance", 150.0, 0.5)
    told = "rung 1: batch 8, 1 instance at 120/s; best 100/s with batch 4, 1 instance; 2 min left"
    assert line(now) == told
