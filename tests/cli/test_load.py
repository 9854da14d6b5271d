"""`servegate load`: runs against a small gateway over real sockets, and what they have left."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from cli.commands import SERVEGATE, Done, servegate
from cli.http_servers import Request, answering
from data_ports import METADATA, Gateway, http_port
from workbench.loadtest.records import report_of, run_of

from serve.workbench.loadtest.reports.folder import keep, read

KEY = "sg_abcdef_0123456789abcdef0123"


@pytest.fixture
def url() -> Iterator[str]:
    with http_port() as url:
        yield url


def words(url: str, folder: Path, *more: object, model: str = "m") -> list[str]:
    told = ("load", "run", "--model", model, "--url", url, "--out", folder, "--no-observe")
    return [*map(str, (*told, "--warm-up", "0s", *more))]


def run(url: str, folder: Path, *more: object, **environment: str) -> Done:
    return servegate(*words(url, folder, "--for", "1s", *more), **environment)


def result(done: Done) -> dict[str, Any]:
    assert done.events[-1]["type"] == "result"
    return done.events[-1]


def test_a_run_shows_a_table_and_leaves_a_report(url: str, tmp_path: Path) -> None:
    done = run(url, tmp_path, "--rate", 30, "--arrivals", "constant", "--name", "first")
    assert done.returncode == 0, done.stderr
    heads, row = (line.split("\t") for line in done.stdout.splitlines()[:2])
    assert heads[:3] == ["protocol", "version", "calls"] and row[:3] == ["http-binary", "2", "30"]
    assert (tmp_path / "first" / "report.html").is_file()
    assert f"report: {tmp_path / 'first' / 'report.html'}" in done.stderr
    report = read("first", tmp_path)
    assert report.model == "m" and report.passed is None
    assert {"servegate", "python", "locust"} <= set(report.versions) and report.machine


def test_a_missed_objective_has_status_7_and_a_report(url: str, tmp_path: Path) -> None:
    asked = ("--rate", 20, "--slo", "rate>100000,errors<50%", "--json")
    done = run(url, tmp_path, *asked)
    told = result(done)
    assert (done.returncode, told["ok"], told["exit"], told["passed"]) == (7, False, 7, False)
    (only,) = told["runs"]
    assert [one["passed"] for one in only["judged"]] == [False, True]
    assert only["rows"][0]["latency_ms"]["p50"] > 0
    assert read(told["path"]).passed is False
    assert "code: objective_missed" in done.stderr


@pytest.mark.slow
def test_answers_are_held_against_the_expected_classes(url: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=np.zeros((4, 2), np.float32))
    np.save(tmp_path / "y.npy", np.array([1, 0, 1, 0]))
    given = ("--input", f"@{tmp_path / 'x.npz'}", "--expect", f"@{tmp_path / 'y.npy'}")
    done = run(url, tmp_path / "out", "--rate", 40, "--arrivals", "constant", *given, "--json")
    (only,) = result(done)["runs"]
    assert (only["calls"], only["right"], only["errors"]) == (40, 20, {"wrong_answer": 20})


@pytest.mark.slow
def test_users_of_a_closed_loop_show_a_key_that_is_in_no_report(url: str, tmp_path: Path) -> None:
    Gateway.asked.clear()
    done = run(url, tmp_path, "--closed", 2, "--think", "20ms", "--json", SERVEGATE_KEY=KEY)
    folder = result(done)["path"]
    report = read(folder)
    assert done.returncode == 0 and not report.runs[0].is_open
    assert report.runs[0].label == "2 users"
    assert {headers["authorization"] for _, headers, _ in Gateway.asked} == {f"Bearer {KEY}"}
    for path in Path(folder).iterdir():
        assert KEY not in path.read_text()
    assert KEY not in done.stdout + done.stderr


@pytest.mark.slow
def test_a_first_call_that_fails_ends_the_command(url: str, tmp_path: Path) -> None:
    done = servegate(*words(url, tmp_path, "--rate", 5, "--json", model="other"))
    assert (done.returncode, result(done)["code"]) == (3, "not_found")
    assert list(tmp_path.iterdir()) == []
    refusal = 404, {"error": "it is not here"}
    with answering(lambda asked: (200, METADATA) if asked.method == "GET" else refusal) as other:
        refused = run(other, tmp_path, "--rate", 20)
        counted = run(other, tmp_path, "--rate", 20, "--no-check", "--json")
    assert refused.returncode == 3 and "it is not here" in refused.stderr
    assert counted.returncode == 0 and set(result(counted)["runs"][0]["errors"]) == {"http_404"}


def test_what_makes_no_sense_is_refused_before_anything_is_called(tmp_path: Path) -> None:
    for more in (
        "",
        "--rate 5 --slo speed<1",
        "--rate 5 --for soon",
        "--rate 5 --name ../elsewhere",
        "--find-max",
        "--find-max --slo p99<1s --closed 2",
        "--rate 5 --protocol udp",
    ):
        done = servegate(*words("http://127.0.0.1:9", tmp_path, *more.split()))
        assert done.returncode == 2, more
        assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_search_says_the_highest_rate_that_was_allowed(url: str, tmp_path: Path) -> None:
    asked = ("--find-max", "--rate", 10, "--most", 20, "--slo", "errors<100%", "--json")
    done = run(url, tmp_path, *asked)
    told = result(done)
    assert (done.returncode, told["passed"]) == (0, True)
    assert any(one.startswith("20.0/s is the highest rate that met") for one in told["findings"])
    assert told["sweep"]["xs"] == sorted(told["sweep"]["xs"]) and told["sweep"]["xs"][-1] == 20


def test_ctrl_c_ends_a_run_early_and_keeps_its_report(url: str, tmp_path: Path) -> None:
    told = words(url, tmp_path, "--rate", 50, "--for", "600s", "--json")
    with subprocess.Popen([SERVEGATE, *told], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        events = map(json.loads, process.stdout)
        assert any(event["type"] == "progress" and event["right"] for event in events)
        process.send_signal(signal.SIGINT)
        *_, last = events
    assert (process.returncode, last["type"], last["exit"]) == (130, "result", 130)
    assert last["findings"][0].startswith("The run was interrupted after")
    assert read(last["path"]).passed is None


def test_without_locust_people_are_told_what_to_install(url: str, tmp_path: Path) -> None:
    blind = (
        "import sys; sys.modules['locust'] = None\n"
        "from serve.cli.main import main\n"
        f"main({words(url, tmp_path, '--rate', 5)!r})"
    )
    done = subprocess.run([sys.executable, "-c", blind], capture_output=True, text=True)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "pip install '.[load]'" in done.stderr


# --- reports, jobs and scenarios -----------------------------------------------------------------


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
