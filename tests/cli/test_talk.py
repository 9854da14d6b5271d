"""What a long command says: lines for logs, events for programs, amounts for people."""

import json

import pytest
from builders import Clock

from serve.cli.talk import JsonEvents, LogTalk, amount, duration, stage


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


def test_programs_get_one_event_per_line_and_the_first_and_last_of_each_stage(
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
