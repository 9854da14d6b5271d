"""What load tests have left: shown again, listed, compared, shared; and jobs and scenarios."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml
from cli.commands import Done, servegate
from load.records import report_of, run_of

from serve.load.reporting.keeping import keep


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


def test_a_page_can_be_made_anew(folder: Path) -> None:
    page = folder / "again.html"
    done = load(folder, "report", "before", "--html", page)
    assert done.returncode == 0 and page.read_text() == (folder / "before/report.html").read_text()


def test_a_report_that_is_not_there_has_status_3(folder: Path) -> None:
    done = load(folder, "report", "nowhere")
    assert done.returncode == 3 and "servegate load ls" in done.stderr


def test_reports_are_listed(folder: Path) -> None:
    done = load(folder, "ls", "--json")
    assert {one["name"] for one in json.loads(done.stdout)} == {"before", "after"}
    assert load(folder, "ls").stdout.startswith("name\tbegun\t")


def test_an_empty_folder_has_no_reports(tmp_path: Path) -> None:
    done = load(tmp_path / "none", "ls", "--json")
    assert (done.returncode, json.loads(done.stdout)) == (0, [])


def test_two_reports_are_compared_with_intervals(folder: Path) -> None:
    done = load(folder, "compare", "before", "after", "--json")
    ratios = {one["name"]: one for one in json.loads(done.stdout)}
    assert done.returncode == 0
    assert ratios["p50"]["low"] < ratios["p50"]["ratio"] < ratios["p50"]["high"]
    assert 1.8 < ratios["p50"]["ratio"] < 2.2


def test_a_ratio_whose_whole_interval_is_beyond_the_limit_has_status_7(folder: Path) -> None:
    done = load(folder, "compare", "before", "after", "--fail-if", "p50>1.1, rate<0.5")
    assert done.returncode == 7 and "code: ratio_beyond" in done.stderr
    assert "p50: ×" in done.stderr and "rate: ×" not in done.stderr
    assert load(folder, "compare", "after", "before", "--fail-if", "p50>1.1").returncode == 0


@pytest.mark.parametrize("text", ["p50", "speed>1", "p50>1.1.1", "p50=1"])
def test_what_is_no_limit_of_a_ratio_is_refused(folder: Path, text: str) -> None:
    assert load(folder, "compare", "before", "after", "--fail-if", text).returncode == 2


def test_numbers_that_were_not_measured_are_null_for_programs(tmp_path: Path) -> None:
    run = run_of(seconds=2, rate=5, failed={"connect": 1.0})
    keep(report_of(run, name="dead"), tmp_path)
    page = json.loads(load(tmp_path, "report", "dead", "--json").stdout)
    assert page["runs"][0]["latency_ms"]["p99"] is None
    assert page["runs"][0]["errors"] == {"connect": 10}


def test_versions_have_lines_of_their_own_where_there_are_several(tmp_path: Path) -> None:
    shares = {"1; by=split": 0.5, "2; by=split": 0.5}
    runs = [run_of(seconds=2, rate=20, decisions=shares, label=label) for label in ("a", "b")]
    keep(report_of(*runs, name="split"), tmp_path)
    lines = load(tmp_path, "report", "split").stdout.splitlines()
    assert [line.split("\t")[:3] for line in lines[:4]] == [
        ["run", "protocol", "version"],
        ["a", "http-binary", "all"],
        ["a", "http-binary", "1"],
        ["a", "http-binary", "2"],
    ]


class Keeper(BaseHTTPRequestHandler):
    """Keeps the reports that are shared with it, as the admin API does."""

    kept: ClassVar[list[dict[str, Any]]] = []

    def do_POST(self) -> None:
        page = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.kept.append(page | {"finding": "a finding"})
        self.say(201, {"name": page["name"]})

    def do_GET(self) -> None:
        self.say(200, self.kept)

    def say(self, status: int, page: Any) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(page).encode())

    def log_message(self, format: str, *args: Any) -> None:
        pass


def test_a_report_can_be_shared_with_the_gateway_and_is_listed_there(folder: Path) -> None:
    Keeper.kept.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Keeper) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        url = f"http://127.0.0.1:{server.server_port}"
        done = load(folder, "report", "before", "--share", "--admin-url", url)
        listed = load(folder, "ls", "--shared", "--admin-url", url)
        server.shutdown()
    assert done.returncode == 0 and f"{url} keeps it as before" in done.stderr
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


def test_a_scenario_that_changes_something_asks_first() -> None:
    done = servegate("load", "scenario", "kill", "--model", "m")
    assert done.returncode == 2 and "--yes" in done.stderr


def test_a_scenario_that_nobody_knows_is_refused() -> None:
    done = servegate("load", "scenario", "nap", "--model", "m")
    assert done.returncode == 2 and "smoke" in done.stderr
