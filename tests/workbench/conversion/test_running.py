"""A conversion's child process under limits: scripted children, each with one way to end."""

import asyncio
import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from living import ends

from serve.core.errors import ConversionFailed, GateRefused
from serve.processes import Program
from serve.workbench.conversion.child_watch import follow
from serve.workbench.conversion.limits import ConversionLimits, surroundings

HOLDING = "import time; held = bytearray(300 << 20); time.sleep(60)"
ROOMY = ConversionLimits(memory=2 << 30, seconds=30.0)
TIGHT = ConversionLimits(memory=200 << 20, seconds=30.0)
DONE = """print('>{"type": "done", "passed": true}')"""
STAGE = """print('>{"type": "stage", "stage": "convert"}', flush=True)"""


def program(*lines: str) -> Program:
    return Program("scripted", (sys.executable, "-c", "\n".join(lines)), grace=0.0)


class Ended:
    """How a scripted child ended: its fault, and the events that were relayed."""

    def __init__(self, *lines: str, limits: ConversionLimits = ROOMY) -> None:
        self.events: list[Mapping[str, Any]] = []
        self.fault: ConversionFailed | None = None
        try:
            asyncio.run(follow(program(*lines), limits=limits, on_event=self.events.append))
        except ConversionFailed as error:
            self.fault = error

    @property
    def code(self) -> str:
        return self.fault.code if self.fault else ""

    @property
    def why(self) -> str:
        return self.fault.why if self.fault else ""


def test_events_are_relayed_in_their_order_and_done_is_the_last() -> None:
    ended = Ended("print('talk of a library')", STAGE, DONE)
    assert ended.fault is None
    assert [event["type"] for event in ended.events] == ["stage", "done"]


def test_a_fault_that_the_child_tells_is_raised_with_all_its_words() -> None:
    event = {"type": "failed", "code": "unsupported_operator", "what": "no", "why": "Svd is not"}
    event |= {"try_this": "", "operator": "Svd", "node": "svd/1"}
    ended = Ended(f"print('>' + {json.dumps(json.dumps(event))})", "raise SystemExit(1)")
    assert ended.fault is not None and not isinstance(ended.fault, GateRefused)
    told = (ended.code, ended.why, ended.fault.operator, ended.fault.node)
    assert told == ("unsupported_operator", "Svd is not", "Svd", "svd/1")
    assert ended.events[-1]["operator"] == "Svd"


def test_a_child_that_takes_too_much_memory_is_killed_and_the_stage_is_named() -> None:
    ended = Ended(STAGE, HOLDING, limits=TIGHT)
    assert ended.code == "out_of_memory"
    assert "converting to ONNX" in ended.why and "the limit is 210 MB" in ended.why


def test_what_its_own_children_take_counts_as_well() -> None:
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {HOLDING!r}])"
    assert Ended(code, limits=TIGHT).code == "out_of_memory"


def test_a_child_that_is_given_no_memory_has_run_out_of_it() -> None:
    for line in (
        "raise MemoryError",
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        "import os; print('std::bad_alloc', flush=True); os.abort()",
    ):
        assert Ended(STAGE, line).code == "out_of_memory", line


def test_a_child_that_takes_too_long_is_killed() -> None:
    limits = ConversionLimits(1 << 30, 3.0)  # a child has begun by then, on a busy machine, too
    ended = Ended(STAGE, "import time; time.sleep(600)", limits=limits)
    assert (ended.code, ended.events[-1]["code"]) == ("timed_out", "timed_out")
    assert "converting to ONNX" in ended.why


def test_a_crash_tells_the_last_lines() -> None:
    ended = Ended(STAGE, "print('one')", "print('and two')", "raise SystemExit(3)")
    assert ended.code == "converter_crashed"
    assert "exit status 3" in ended.why and "one | and two" in ended.why


def test_an_end_that_the_exit_does_not_confirm_is_a_crash() -> None:
    for lines in (
        ("pass",),  # without a result
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",),
        (DONE, "raise SystemExit(1)"),
        ("""print('>{"type": "failed", "code": "mine"}')""", "raise SystemExit(3)"),
        ("""print('>{"type": "done"}')""", "raise SystemExit(3)"),
    ):
        ended = Ended(*lines)
        assert ended.code == "converter_crashed", lines
        assert [event["type"] for event in ended.events] == ["failed"]


# --- what a model prints, too --------------------------------------------------------------------


def test_a_line_that_is_no_event_of_the_table_is_talk() -> None:
    strange = (
        {"type": "result", "ok": True},
        {"type": "share", "stage": "convert"},
        {"type": ["note"]},
    )
    lines = (*(">" + json.dumps(event) for event in strange), ">" + "[" * 9000)
    ended = Ended(*(f"print({line!r})" for line in lines), DONE)
    assert [event["type"] for event in ended.events] == ["done"]


def test_no_more_is_taken_of_an_event_than_its_fields_as_one_line_of_plain_text() -> None:
    event = {"type": "note", "text": "a\x1b[2J\nb\ud800", "kind": 1, "stage": {}}
    ended = Ended(f"print('>' + {json.dumps(json.dumps(event))})", DONE)
    assert ended.events[0] == {"type": "note", "text": "a\\x1b[2J | b\\ud800"}


def test_the_child_is_ended_once_nobody_hears_it_and_the_error_is_raised() -> None:
    def deaf(event: Mapping[str, Any]) -> None:
        raise BrokenPipeError

    began = time.monotonic()
    with pytest.raises(BrokenPipeError):
        asyncio.run(
            follow(program(STAGE, "import time; time.sleep(60)"), limits=ROOMY, on_event=deaf)
        )
    assert time.monotonic() - began < 10


# --- the end -------------------------------------------------------------------------------------


def test_a_cancellation_kills_the_child_and_its_children(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    lines = (
        "import os, subprocess, sys, time",
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])",
        f"open({str(pids)!r}, 'w').write(f'{{os.getpid()}} {{child.pid}}')",
        """print('>{"type": "note", "text": "begun"}', flush=True)""",
        "time.sleep(60)",
    )

    async def cancelled() -> None:
        begun = asyncio.Event()
        task = asyncio.create_task(
            follow(program(*lines), limits=ROOMY, on_event=lambda event: begun.set())
        )
        async with asyncio.timeout(20):
            await begun.wait()
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled())
    for pid in map(int, pids.read_text().split()):
        assert ends(pid)  # by itself it would sleep for a minute


def test_the_child_is_told_no_secret_and_writes_below_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("SERVEGATE_KEY", "secret")
    environment = surroundings(tmp_path)
    assert "secret" not in environment.values()
    for name in ("HOME", "TMPDIR", "KERAS_HOME"):
        assert environment[name] == str(tmp_path)
    assert environment["CUDA_VISIBLE_DEVICES"] == ""
    assert environment["PYTHONHASHSEED"] == "0"
