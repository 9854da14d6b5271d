"""Scenarios as people run them, on a real gateway with a real Triton: what they change comes back.

The runs are too short to say anything about speed, and with one replica a kill is felt: only what
does not depend on the machine is asserted.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import harness
import pytest

from serve.workbench.loadtest.reports.folder import read
from serve.workbench.loadtest.reports.report import LoadReport

pytestmark = [pytest.mark.triton, pytest.mark.slow]
Play = Callable[[str, float], LoadReport]


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[harness.Up]:
    """One gateway with one Triton, for all tests of this file."""
    state = tmp_path_factory.mktemp("scenarios")
    with harness.up(state, "--replicas", "1", "--workers", "1") as one:
        one.split("digits", v1=90, v2=10)
        yield one


@pytest.fixture
def play(up: harness.Up, tmp_path: Path) -> Play:
    """Plays a scenario for so many seconds and reads the report that it leaves."""
    urls = ("--url", f"http://{up.http}", "--grpc-url", up.grpc, "--admin-url", up.admin)
    urls += ("--metrics-url", f"http://127.0.0.1:{up.metrics_port}/metrics")

    def played(name: str, seconds: float) -> LoadReport:
        asked = ("--model", "digits", "--rate", "60", "--for", f"{seconds}s", "--yes", "--json")
        words = ("load", "scenario", name, *asked, *urls, "--out", str(tmp_path))
        done = harness.servegate(*words)
        assert done.returncode in (0, 7), done.stderr
        return read(json.loads(done.stdout.splitlines()[-1])["path"])

    return played


def test_every_protocol_is_answered_and_the_other_side_tells_of_it(play: Play) -> None:
    report = play("smoke", 6.0)
    assert report.passed is True, report.findings
    (run,) = report.runs
    seen = run.observed
    calls = sum(cell.calls for _, _, cell in run.record.cells())
    assert sum(one.requests for one in seen.triton) == calls
    assert seen.gateway is not None and seen.gateway.cpu > 0
    names = {(one.group, one.name) for one in seen.series}
    assert {("replica", "up"), ("replica", "memory"), ("gateway", "memory")} <= names
    assert seen.problems == ()


def test_a_split_that_changes_under_load_is_followed_and_comes_back(
    play: Play, up: harness.Up
) -> None:
    report = play("split", 9.0)
    assert report.passed is True, report.findings
    assert up.get("/api/routes/digits")["split"] == {"1": 90, "2": 10}
    assert sum("revision" in mark.text for mark in report.runs[0].observed.marks) == 2


def test_a_model_that_is_loaded_under_load_answers_and_stays_loaded(
    play: Play, up: harness.Up
) -> None:
    said = " ".join(play("cold-start", 15.0).findings)
    assert "first call with a correct response started in second" in said
    assert up.get("/api/models/digits")["state"] == "ready"
    assert up.get("/api/routes/digits")["split"] == {"1": 90, "2": 10}


def test_a_killed_replica_is_found_killed_and_seen_to_come_back(play: Play, up: harness.Up) -> None:
    before = up.children()["local-0"]
    said = " ".join(play("kill", 9.0).findings)
    assert up.children()["local-0"] != before
    assert "local-0 was usable again" in said
    assert "the only replica" in said


def test_calls_to_triton_itself_are_of_the_version_that_the_gateway_is_asked_for(
    play: Play,
) -> None:
    report = play("direct", 9.0)
    assert report.passed is True, report.findings
    versions = [[one.version for one in run.observed.triton] for run in report.runs]
    assert versions == [["1"]] * 6
