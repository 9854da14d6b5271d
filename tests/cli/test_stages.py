"""What is seen of the stages of a child process: in a log, and by programs."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from serve.cli.stages import Logged, stages
from serve.cli.talk import Events


def logged(*steps: tuple[float, dict[str, Any]]) -> list[str]:
    """The lines of a log for events at these seconds."""
    times: Iterator[float] = iter([at for at, _ in steps])
    lines: list[str] = []
    log = Logged(lines.append, clock=lambda: next(times))
    for _, event in steps:
        log(event)
    return lines


def stage(text: str) -> dict[str, Any]:
    return {"type": "stage", "stage": text, "text": text}


def share(done: int) -> dict[str, Any]:
    return {"type": "share", "stage": "numbers", "done": done, "total": 14}


def test_a_log_tells_when_each_stage_began() -> None:
    lines = logged((10.0, stage("reading")), (10.25, stage("converting")), (72.5, stage("writing")))
    assert lines == ["   0.0 s  reading", "   0.2 s  converting", "  62.5 s  writing"]


def test_a_log_tells_how_far_a_stage_is_only_when_it_takes_long() -> None:
    lines = logged((0.0, stage("comparing")), (0.1, share(1)), (4.0, share(7)), (4.1, share(8)))
    assert lines == ["   0.0 s  comparing", "   4.0 s  comparing: 7 of 14"]


def test_a_log_has_notes_and_leaves_the_last_word_to_the_command() -> None:
    note = {"type": "note", "text": "once more"}
    lines = logged((0.0, stage("converting")), (1.0, note), (2.0, {"type": "failed", "text": "no"}))
    assert lines == ["   0.0 s  converting", "   1.0 s  note: once more"]


def test_what_happened_elsewhere_is_told_with_its_own_times() -> None:
    lines: list[str] = []
    log = Logged(lines.append, clock=lambda: 0.0)
    log({**stage("reading"), "at": 1000.0})
    log({**stage("writing"), "at": 1012.0})
    assert lines == ["   0.0 s  reading", "  12.0 s  writing"]


def test_programs_get_every_event_but_the_last(capsys: pytest.CaptureFixture[str]) -> None:
    with stages(Events()) as tell:
        for event in (stage("reading"), share(1), {"type": "done", "passed": True}):
            tell(event)
    told = [json.loads(line)["type"] for line in capsys.readouterr().out.splitlines()]
    assert told == ["stage", "share"]
