"""What load tests have left: shown again, listed, compared, shared; and jobs and scenarios."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from cli.commands import Done, servegate
from cli.http_servers import Request, answering
from workbench.loadtest.records import report_of, run_of

from serve.workbench.loadtest.reports.folder import keep


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    keep(report_of(run_of(seconds=30, rate=40), name="before"), tmp_path)
    keep(report_of(run_of(seconds=30, rate=40, median=0.02, seed=1), name="after"), tmp_path)
    return tmp_path


def load(folder: Path, *words: object) -> Done:
    return servegate("load", *words, "--out", folder)


def test_a_report_is_shown_by_its_name_its_folder_or_its_file(folder: Path) -> None:
    path = folder / "before"
    shown = [load(folder, "report", which) for which in ("before", path, path / "report.json")]
    assert {done.returncode for done in shown} == {0}
    assert len({done.stdout for done in shown}) == 1
    assert shown[0].stdout.splitlines()[1].startswith("http-binary\t")
    assert {f"report: {path / 'report.html'}" in done.stderr for done in shown} == {True}
    done = load(folder, "report", "before", "--html", folder / "again.html")
    assert done.returncode == 0
    assert (folder / "again.html").read_text() == (path / "report.html").read_text()
    done = load(folder, "report", "nowhere")
    assert done.returncode == 3 and "servegate load ls" in done.stderr


def test_reports_are_listed(folder: Path) -> None:
    done = load(folder, "ls", "--json")
    assert {one["name"] for one in json.loads(done.stdout)} == {"before", "after"}
    assert load(folder, "ls").stdout.startswith("name\tstarted\t")
    done = load(folder / "none", "ls", "--json")
    assert (done.returncode, json.loads(done.stdout)) == (0, [])


def test_reports_are_compared_with_intervals_and_status_7_beyond_a_limit(folder: Path) -> None:
    done = load(folder, "compare", "before", "after", "--json")
    ratios = {one["name"]: one for one in json.loads(done.stdout)}
    assert done.returncode == 0
    assert ratios["p50"]["low"] < ratios["p50"]["ratio"] < ratios["p50"]["high"]
    assert 1.8 < ratios["p50"]["ratio"] < 2.2
    done = load(folder, "compare", "before", "after", "--fail-if", "p50>1.1, rate<0.5")
    assert done.returncode == 7 and "code: ratio_beyond" in done.stderr
    assert "p50: ×" in done.stderr and "rate: ×" not in done.stderr
    assert load(folder, "compare", "after", "before", "--fail-if", "p50>1.1").returncode == 0
    for text in ("p50", "speed>1", "p50>1.1.1", "p50=1"):
        done = load(folder, "compare", "before", "after", "--fail-if", text)
        assert done.returncode == 2, text


def test_versions_have_lines_of_their_own_and_what_was_not_measured_is_null(tmp_path: Path) -> None:
    run = run_of(seconds=2, rate=5, failed={"connect": 1.0})
    keep(report_of(run, name="dead"), tmp_path)
    page = json.loads(load(tmp_path, "report", "dead", "--json").stdout)
    assert page["runs"][0]["latency_ms"]["p99"] is None
    assert page["runs"][0]["errors"] == {"connect": 10}
    shares = {"1; by=split": 0.5, "2; by=split": 0.5}
    keep(report_of(run_of(seconds=2, rate=20, decisions=shares), name="split"), tmp_path)
    lines = load(tmp_path, "report", "split").stdout.splitlines()
    assert [line.split("\t")[1] for line in lines[:4]] == ["version", "all", "1", "2"]


def test_a_report_can_be_shared_with_the_gateway_and_is_listed_there(folder: Path) -> None:
    kept: list[dict[str, Any]] = []

    def keeper(request: Request) -> tuple[int, Any]:
        if request.method == "GET":
            return 200, kept
        kept.append(json.loads(request.body) | {"finding": "a finding"})
        return 201, {"name": kept[-1]["name"]}

    with answering(keeper) as url:
        done = load(folder, "report", "before", "--share", "--admin-url", url)
        listed = load(folder, "ls", "--shared", "--admin-url", url)
    assert done.returncode == 0 and f"shared: before on {url}" in done.stderr
    assert listed.stdout.splitlines()[1].split("\t")[0] == "before"


def test_a_job_is_printed_with_the_options_of_the_run() -> None:
    words = ("--image", "servegate:1", "--workers", 2, "--", "--model", "m", "--rate", "5")
    done = servegate("load", "job", *words)
    documents = list(yaml.safe_load_all(done.stdout))
    assert done.returncode == 0 and documents[-1]["kind"] == "Job"
    assert "--rate" in str(documents[-1]["spec"])
    refused = servegate("load", "job", "--image", "x", "--", "--model", "m", "--out", "there")
    assert refused.returncode == 2


def test_scenarios_are_listed_with_what_they_change() -> None:
    done = servegate("load", "scenarios", "--json")
    found = {one["name"]: one for one in json.loads(done.stdout)}
    assert not found["smoke"]["changes"] and found["kill"]["changes"]


def test_a_scenario_has_to_be_known_and_asks_before_it_changes_something() -> None:
    for name, said in (("kill", "--yes"), ("nap", "smoke")):
        done = servegate("load", "scenario", name, "--model", "m")
        assert done.returncode == 2 and said in done.stderr
