"""Reports on disk: whole or not at all, never over another, and listed whatever they are."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from refusals import refusal
from workbench.loadtest.records import report_of, run_of

from serve.core.errors import Invalid
from serve.workbench.loadtest.reports.folder import ReportListing, keep, ls, name_of, read
from serve.workbench.loadtest.reports.report import LoadReport


def report(name: str = "20261122-101500-m-run", begun: str = "2026-11-22T10:15:00") -> LoadReport:
    made = report_of(run_of(3, 20, objective="p99<50ms"), name=name)
    return replace(made, begun=begun, findings=("It works.", "It is fast."), passed=True)


def test_a_report_that_is_kept_can_be_read_again(tmp_path: Path) -> None:
    kept = keep(report(), tmp_path / "deep" / "load-reports")
    assert kept.name == "20261122-101500-m-run"
    assert read(kept).to_json() == report().to_json()
    assert {path.name for path in kept.iterdir()} == {"line.json", "report.html", "report.json"}
    assert (kept / "report.html").read_text().startswith("<!doctype html>")


def test_a_report_is_read_by_its_folder_its_files_and_its_name(tmp_path: Path) -> None:
    kept = keep(report(), tmp_path)
    names = [read(which).name for which in (kept, kept / "report.json", kept / "report.html")]
    assert {*names, read(kept.name, tmp_path).name} == {kept.name}


def test_a_second_report_of_the_same_name_gets_a_number(tmp_path: Path) -> None:
    kept = [keep(report(), tmp_path) for _ in range(3)]
    assert [path.name.removeprefix(report().name) for path in kept] == ["", "-2", "-3"]
    assert [read(path).name for path in kept] == [path.name for path in kept]


def test_a_report_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    unwritable = replace(report(), versions={"locust": object()})  # type: ignore[dict-item]
    with pytest.raises(TypeError):
        keep(unwritable, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_is_no_folder_s_is_invalid(tmp_path: Path) -> None:
    for name in ("", "../m", "a/b", ".hidden", "a b", "x" * 200):
        refusal(Invalid, keep, report(name), tmp_path)


def test_a_damaged_report_is_invalid(tmp_path: Path) -> None:
    kept = keep(report(), tmp_path)
    for data in (b"", b"{", b"[]", b'{"format": 99}', b'{"format": 1}', b"\xff"):
        (kept / "report.json").write_bytes(data)
        refusal(Invalid, read, kept)


def test_a_list_has_the_newest_report_first_and_needs_no_lines(tmp_path: Path) -> None:
    for name, day in (("b", 22), ("a", 24), ("c", 23), ("a", 24)):
        keep(report(name, begun=f"2026-11-{day}T10:15:00"), tmp_path)
    listed = ls(tmp_path)
    assert [line.name for line in listed] == ["a-2", "a", "c", "b"]
    begun = "2026-11-22T10:15:00"
    line = ReportListing("b", "A load test of m", "run", "m", begun, True, 1, "It works.")
    assert listed[-1] == line
    (tmp_path / "b" / "line.json").unlink()
    assert ls(tmp_path) == listed
    assert ls(tmp_path / "nowhere") == ()


def test_a_damaged_report_is_listed_last_and_says_why(tmp_path: Path) -> None:
    kept = keep(report(), tmp_path)
    for name, text in (("z-damaged", "{"), ("z-other", json.dumps({"unknown": 1}))):
        (tmp_path / name).mkdir()
        (tmp_path / name / "line.json").write_text(text)
    (tmp_path / "z-empty").mkdir()
    (tmp_path / "a file").write_text("")
    first, *others = ls(tmp_path)
    assert first.name == kept.name
    assert {line.name for line in others} == {"z-damaged", "z-empty", "z-other"}
    assert all(line.problem for line in others)


def test_a_name_has_the_time_the_model_and_the_scenario() -> None:
    begun = datetime(2026, 11, 22, 10, 15, tzinfo=UTC)
    assert name_of(begun, "digits", "smoke") == "20261122-101500-digits-smoke"
    assert name_of(begun, "a b/c:stable", "run") == "20261122-101500-a-b-c-stable-run"
