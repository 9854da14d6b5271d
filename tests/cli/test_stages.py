"""What is seen of the stages of a child process: in a log, and by programs."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from serve.cli.stages import LoggedStages, stages
from serve.cli.talk import JsonEvents


def stage(text: str) -> dict[str, Any]:
    return {"type": "stage", "stage": text, "text": text}


def share(done: int) -> dict[str, Any]:
    return {"type": "share", "stage": "numbers", "done": done, "total": 14}


def test_a_log_has_the_stages_and_notes_and_leaves_the_last_word_to_the_command() -> None:
    steps = (
        (10.0, stage("reading")),
        (10.25, {"type": "note", "text": "once more"}),
        (20.0, stage("comparing")),
        (20.1, share(1)),
        (24.0, share(7)),  # a stage that takes long
        (24.1, share(8)),
        (72.5, {"type": "failed", "text": "no"}),
    )
    times: Iterator[float] = iter([at for at, _ in steps])
    lines: list[str] = []
    log = LoggedStages(lines.append, clock=lambda: next(times))
    for _, event in steps:
        log(event)
    assert lines == [
        "   0.0 s  reading",
        "   0.2 s  note: once more",
        "  10.0 s  comparing",
        "  14.0 s  comparing: 7 of 14",
    ]


def test_what_happened_elsewhere_is_told_with_its_own_times() -> None:
    lines: list[str] = []
    log = LoggedStages(lines.append, clock=lambda: 0.0)
    for name, at in (("reading", 1000.0), ("writing", 1012.0)):
        log({**stage(name), "at": at})
    assert lines == ["   0.0 s  reading", "  12.0 s  writing"]


def test_programs_get_every_event_but_the_last(capsys: pytest.CaptureFixture[str]) -> None:
    with stages(JsonEvents()) as tell:
        for event in (stage("reading"), share(1), {"type": "done", "passed": True}):
            tell(event)
    told = [json.loads(line)["type"] for line in capsys.readouterr().out.splitlines()]
    assert told == ["stage", "share"]
