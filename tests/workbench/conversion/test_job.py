"""What the child of a conversion says and measures; and whole conversions of ONNX files."""

import asyncio
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import Clock
from refusals import refusal
from workbench.conversion.model_files import times

from serve.core.errors import ConversionFailed, GateRefused, Invalid
from serve.tensors.expected_outputs import Tolerance
from serve.workbench.conversion.child_events import EventTeller
from serve.workbench.conversion.command import command_of
from serve.workbench.conversion.events import event_of
from serve.workbench.conversion.faults import FAULTS
from serve.workbench.conversion.job import fault_of
from serve.workbench.conversion.limits import ConversionLimits
from serve.workbench.conversion.report import FILE, ConversionReport
from serve.workbench.conversion.request import ConversionRequest, Precision
from serve.workbench.conversion.runner import convert, verify

OPTION = re.compile(r"--[a-z][a-z0-9-]+")
LIMITS = ConversionLimits(4 << 30, 240.0, nice=0)


# --- what it says ------------------------------------------------------------------------------


def test_each_event_is_a_line_and_stages_are_timed() -> None:
    clock, lines = Clock(0.0), list[str]()
    telling = EventTeller(lines.append, clock)
    telling("stage", stage="open")
    clock.now = 2.0
    telling("stage", stage="convert")
    telling("note", text="a thing")
    clock.now = 5.0
    events = [event_of(line) for line in lines]
    assert [event and event["type"] for event in events] == ["stage", "stage", "note"]
    assert events[0] == {"type": "stage", "stage": "open", "text": "reading the source"}
    assert {each.name: each.seconds for each in telling.stages} == {"open": 2.0, "convert": 3.0}
    assert telling.warnings == ["a thing"]


def test_a_fault_whose_words_are_all_long_and_foreign_fits_into_a_line() -> None:
    lines: list[str] = []
    words = dict.fromkeys(("code", "what", "why", "try_this", "operator", "node"), "😀" * 9000)
    EventTeller(lines.append)("failed", **words)
    assert len(lines[0]) < 16 * 1024 and event_of(lines[0]) is not None


def test_every_error_is_a_fault_of_the_catalogue() -> None:
    for error, stage, code in (
        (MemoryError(), "convert", "out_of_memory"),
        (RuntimeError("std::bad_alloc"), "finish", "out_of_memory"),
        (ModuleNotFoundError("No module named 'x'", name="tensorflow"), "", "converter_missing"),
        (ModuleNotFoundError("No module named 'x'", name="tf2onnx.a"), "", "converter_missing"),
        (ModuleNotFoundError("No module named 'x'", name="mine"), "", "converter_crashed"),
        (ValueError("first line\nsecond"), "convert", "converter_crashed"),
        (Invalid("not readable"), "open", "source_corrupt"),
        (OSError(28, "No space left on device"), "write", "no_space"),
    ):
        assert fault_of(error, stage).code == code, error


def test_an_option_that_a_hint_names_is_one() -> None:
    commands = (Path(__file__).parents[3] / "docs/reference/commands.md").read_text()
    for code, kind in FAULTS.items():
        assert set(OPTION.findall(kind.hint)) <= set(OPTION.findall(commands)), code


def test_the_command_does_the_same_again_and_is_quoted_for_a_shell() -> None:
    request = ConversionRequest(
        "my model",
        precision=Precision.FP16,
        nchw=("x",),
        max_drop=0.01,
        tolerances={"": Tolerance(atol=1e-3), "y": Tolerance(rtol=0.5)},
        seed=3,
    )
    assert command_of(request, name="m", out="a b") == (
        "servegate convert onnx 'my model' --name m --out 'a b' --precision fp16 --max-drop 1pp "
        "--nchw x --atol 0.001 --rtol y=0.5 --seed 3"
    )


# --- whole conversions, of files that are ONNX already ------------------------------------------


def converted(
    source: Path, work: Path, model: Path | None = None, **request: Any
) -> ConversionReport:
    asked = ConversionRequest(str(source), **request)
    events: list[Mapping[str, Any]] = []
    if model is None:
        return asyncio.run(convert(asked, work, limits=LIMITS, on_event=events.append))
    return asyncio.run(verify(asked, model, work, limits=LIMITS, on_event=events.append))


def test_a_conversion_leaves_model_contract_and_report_and_nothing_else(tmp_path: Path) -> None:
    report = converted(times(tmp_path / "m.onnx", 2.0), tmp_path / "work")
    assert report.passed and report.is_batched
    assert report.peak_memory > 10 << 20
    assert {"open", "finish", "numbers", "write"} <= {stage.name for stage in report.stages}
    assert {"python", "onnx", "onnxruntime", "numpy"} <= report.versions.keys()
    left = {path.name for path in (tmp_path / "work").iterdir()}
    assert left == {"contract", "conversion.json", "model.onnx"}


def test_another_model_than_the_source_is_refused_with_its_report(tmp_path: Path) -> None:
    source = times(tmp_path / "m.onnx", 2.0)
    other = times(tmp_path / "other.onnx", 2.1)
    refused = refusal(GateRefused, converted, source, tmp_path / "work", other)
    assert refused.code == "numbers_differ"
    assert [path.name for path in (tmp_path / "work").iterdir()] == [FILE]
    page = json.loads((tmp_path / "work" / FILE).read_bytes())
    assert not ConversionReport.from_json(page).passed


def test_after_a_failure_nothing_is_left(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"no model at all")
    failed = refusal(ConversionFailed, converted, tmp_path / "m.onnx", tmp_path / "work")
    assert failed.code == "source_corrupt"
    assert list((tmp_path / "work").iterdir()) == []


def test_paths_of_a_request_are_relative_to_a_folder_that_can_be_given(tmp_path: Path) -> None:
    times(tmp_path / "m.onnx", 2.0)
    np.savez(tmp_path / "rows.npz", x=np.ones((3, 4), np.float32))
    request = ConversionRequest("m.onnx", samples="rows.npz")
    work, relay = tmp_path / "work", list[Mapping[str, Any]]()
    report = asyncio.run(
        convert(request, work, limits=LIMITS, on_event=relay.append, base=tmp_path)
    )
    assert report.passed and report.request.source == "m.onnx"
    assert relay[-1]["type"] == "done"


@pytest.mark.slow
def test_what_an_earlier_conversion_left_is_not_taken_for_the_new_one(tmp_path: Path) -> None:
    work = tmp_path / "work"
    converted(times(tmp_path / "m.onnx", 2.0), work)
    refusal(ConversionFailed, converted, tmp_path / "gone.onnx", work)
    assert list(work.iterdir()) == []
