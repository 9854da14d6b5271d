"""What a long command says: lines for logs, events for programs, amounts for people."""

import json
import math
from typing import Any

import pytest
from builders import Clock

from serve.cli.stages import LoggedStages, stages
from serve.cli.talk import JsonEvents, LogTalk, amount, duration, stage
from serve.workbench.loadtest.cli.progress import LoggedProgress, watching
from serve.workbench.loadtest.cli.progress import line as run_line
from serve.workbench.loadtest.observed_run import RunProgress


def test_amounts_and_times_are_told_in_the_unit_that_fits() -> None:
    amounts = {0: "0 B", 999: "999 B", 1000: "1 kB", 12_345: "12.3 kB", 200_000_000: "200 MB"}
    amounts |= {1_500_000_000: "1.5 GB", 3_000_000_000_000_000: "3000 TB"}
    assert {count: amount(count) for count in amounts} == amounts
    times = {0: "0 s", 89: "89 s", 120: "2 min", 7200: "2 h"}
    assert {seconds: duration(seconds) for seconds in times} == times


def test_a_log_hears_every_few_seconds_how_far_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    lines = LogTalk(clock)
    with stage(lines, "uploading", 200_000_000, 100_000_000):
        for _ in range(8):
            clock.now += 1
            lines.advance(5_000_000)
    heard = capsys.readouterr()
    assert heard.out == ""
    assert heard.err.splitlines() == [
        "uploading: 115 MB of 200 MB, 5 MB/s, 17 s left",
        "uploading: 130 MB of 200 MB, 5 MB/s, 14 s left",
    ]


def test_programs_get_the_first_and_last_event_of_each_stage(
    capsys: pytest.CaptureFixture[str],
) -> None:
    events = JsonEvents(Clock())
    with stage(events, "hashing", 10):
        events.advance(4)
        events.advance(6)
    events.tell("state", "for people", version=3, state="ready")
    events.tell("note", "für beide")
    heard = capsys.readouterr()
    assert heard.err == ""
    assert [json.loads(line) for line in heard.out.splitlines()] == [
        {"type": "progress", "stage": "hashing", "done": 0, "total": 10},
        {"type": "progress", "stage": "hashing", "done": 10, "total": 10},
        {"type": "state", "version": 3, "state": "ready"},
        {"type": "note", "text": "für beide"},
    ]
    with pytest.raises(ValueError), stage(events, "hashing", 10):
        raise ValueError
    assert len(capsys.readouterr().out.splitlines()) == 2, "a stage ends also when it fails"


# --- the stages of a child process ----------------------------------------------------------------


def begun(text: str) -> dict[str, Any]:
    return {"type": "stage", "stage": text, "text": text}


def share(done: int) -> dict[str, Any]:
    return {"type": "share", "stage": "numbers", "done": done, "total": 14}


def test_a_log_has_stages_and_notes_and_leaves_the_last_word_to_the_command() -> None:
    steps = (
        (10.0, begun("reading")),
        (10.25, {"type": "note", "text": "once more"}),
        (20.0, begun("comparing")),
        (20.1, share(1)),
        (24.0, share(7)),  # a stage that takes long
        (24.1, share(8)),
        (72.5, {"type": "failed", "text": "no"}),
    )
    times = iter([at for at, _ in steps])
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


def test_stages_of_another_machine_are_told_with_their_own_times() -> None:
    lines: list[str] = []
    log = LoggedStages(lines.append, clock=lambda: 0.0)
    for name, at in (("reading", 1000.0), ("writing", 1012.0)):
        log({**begun(name), "at": at})
    assert lines == ["   0.0 s  reading", "  12.0 s  writing"]


def test_programs_get_all_events_of_a_child_but_its_last(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with stages(JsonEvents()) as tell:
        for event in (begun("reading"), share(1), {"type": "done", "passed": True}):
            tell(event)
    told = [json.loads(line)["type"] for line in capsys.readouterr().out.splitlines()]
    assert told == ["stage", "share"]


# --- load tests -----------------------------------------------------------------------------------


def progress(second: float, *, p99: float = 0.0082) -> RunProgress:
    seen = {"sent": 600, "right": 597, "failed": 3, "rate": 199, "p50": 0.0031, "lag": 0.0002}
    return RunProgress(second, 60, **seen, p99=p99, waiting=4)


def test_a_line_of_a_load_test_has_what_was_meant_beside_what_was_reached() -> None:
    meant = (0,) * 9 + (190, 200, 210) + (0,) * 48
    assert run_line(progress(12.4), meant) == (
        "12/60 s  199 calls/s of 200  p50 3.10 ms  p99 8.20 ms  3 failed  lag 200 µs  4 waiting"
    )
    assert "199 calls/s  p50" in run_line(progress(12)), "users of a closed loop have no such rate"


def test_a_log_of_a_load_test_gets_a_line_every_few_seconds_and_anew_for_the_next_run() -> None:
    lines: list[str] = []
    log = LoggedProgress(write=lines.append)
    for second in (1, 2, 5, 6, 9, 10, 1, 4, 5):
        log(progress(second))
    assert [each.partition("/")[0] for each in lines] == ["5", "10", "5"]


def test_progress_of_a_load_test_has_null_for_what_is_unknown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with watching(JsonEvents()) as watch:
        watch(progress(3, p99=math.nan))
    event = json.loads(capsys.readouterr().out)
    assert (event["type"], event["second"], event["p99"]) == ("progress", 3, None)
