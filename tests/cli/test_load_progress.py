"""What is seen of a run while it goes."""

import json
import math

import pytest

from serve.cli.talk import JsonEvents
from serve.workbench.loadtest.cli.progress import LoggedProgress, line, watching
from serve.workbench.loadtest.observed_run import RunProgress


def progress(second: float, *, p99: float = 0.0082) -> RunProgress:
    seen = {"sent": 600, "right": 597, "failed": 3, "rate": 199, "p50": 0.0031, "lag": 0.0002}
    return RunProgress(second, 60, **seen, p99=p99, waiting=4)


def test_a_line_has_what_was_meant_beside_what_was_reached() -> None:
    meant = (0,) * 9 + (190, 200, 210) + (0,) * 48
    assert line(progress(12.4), meant) == (
        "12/60 s  199 calls/s of 200  p50 3.10 ms  p99 8.20 ms  3 failed  lag 200 µs  4 waiting"
    )
    assert "199 calls/s  p50" in line(progress(12)), "users of a closed loop have no such rate"


def test_a_log_gets_a_line_every_few_seconds_and_anew_for_the_next_run() -> None:
    lines: list[str] = []
    log = LoggedProgress(write=lines.append)
    for second in (1, 2, 5, 6, 9, 10, 1, 4, 5):
        log(progress(second))
    assert [each.partition("/")[0] for each in lines] == ["5", "10", "5"]


def test_programs_get_every_progress_with_null_for_what_is_unknown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with watching(JsonEvents()) as watch:
        watch(progress(3, p99=math.nan))
    event = json.loads(capsys.readouterr().out)
    assert (event["type"], event["second"], event["p99"]) == ("progress", 3, None)
