"""`servegate load run` as people run it, against a small gateway of our own over real sockets."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli.commands import SERVEGATE, Done, servegate
from cli.http_servers import answering
from data_ports import METADATA, Gateway, http_port

from serve.workbench.loadtest.reports.folder import read

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
