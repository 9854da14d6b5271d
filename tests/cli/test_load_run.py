"""`servegate load run` as people run it, against a small gateway of our own over real sockets."""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from cli.commands import SERVEGATE, Done, servegate

from serve.tensors.datatypes import to_raw
from serve.workbench.loadtest.reports.folder import read

METADATA = {
    "name": "m",
    "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}],
    "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 2]}],
}
SCORES = to_raw(np.array([[0.25, 0.75]], np.float32), "FP32")
OUTPUT = {"name": "y", "datatype": "FP32", "shape": [1, 2]}
OUTPUT |= {"parameters": {"binary_data_size": len(SCORES)}}
HEAD = json.dumps({"model_name": "m", "model_version": "1", "outputs": [OUTPUT]}).encode()
KEY = "sg_abcdef_0123456789abcdef0123"


class Gateway(BaseHTTPRequestHandler):
    """Answers class 1 to every call of model m, and 404 to all others."""

    protocol_version = "HTTP/1.1"
    keys: ClassVar[set[str]] = set()

    def do_GET(self) -> None:
        known = self.path.startswith("/v2/models/m")
        self.say(200 if known else 404, json.dumps(METADATA if known else {"error": "no"}).encode())

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        type(self).keys.add(self.headers.get("authorization", ""))
        if self.path.startswith("/v2/models/m"):
            length = {"Inference-Header-Content-Length": str(len(HEAD))}
            self.say(200, HEAD + SCORES, {"servegate-version": "1; by=newest"} | length)
        else:
            self.say(404, b'{"error": "it is not here"}')

    def say(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Gateway)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def words(url: str, folder: Path, *more: object, model: str = "m") -> list[str]:
    told = ("load", "run", "--model", model, "--url", url, "--out", folder, "--no-observe")
    return [*map(str, (*told, "--warm-up", "0s", *more))]


def run(url: str, folder: Path, *more: object, **environment: str) -> Done:
    return servegate(*words(url, folder, "--for", "1s", *more), **environment)


def result(done: Done) -> dict[str, Any]:
    last: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert last["type"] == "result"
    return last


def test_a_run_shows_a_table_and_leaves_a_report(url: str, tmp_path: Path) -> None:
    done = run(url, tmp_path, "--rate", 30, "--arrivals", "constant", "--name", "first")
    assert done.returncode == 0, done.stderr
    heads, row = (line.split("\t") for line in done.stdout.splitlines()[:2])
    assert heads[:3] == ["protocol", "version", "calls"] and row[:3] == ["http-binary", "1", "30"]
    assert (tmp_path / "first" / "report.html").is_file()
    assert f"report: {tmp_path / 'first' / 'report.html'}" in done.stderr
    report = read("first", tmp_path)
    assert report.model == "m" and report.passed is None
    assert {"servegate", "python", "locust"} <= set(report.versions) and report.machine


def test_a_missed_objective_has_status_7_and_a_report_all_the_same(
    url: str, tmp_path: Path
) -> None:
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
    Gateway.keys.clear()
    done = run(url, tmp_path, "--closed", 2, "--think", "20ms", "--json", SERVEGATE_KEY=KEY)
    folder = result(done)["path"]
    report = read(folder)
    assert done.returncode == 0 and not report.runs[0].is_open
    assert report.runs[0].label == "2 users"
    assert Gateway.keys == {f"Bearer {KEY}"}
    for path in Path(folder).iterdir():
        assert KEY not in path.read_text()
    assert KEY not in done.stdout + done.stderr


@pytest.mark.slow
def test_a_first_call_that_fails_ends_the_command(url: str, tmp_path: Path) -> None:
    done = servegate(*words(url, tmp_path, "--rate", 5, "--json", model="other"))
    assert (done.returncode, result(done)["code"]) == (3, "not_found")
    assert list(tmp_path.iterdir()) == []
    asked = ("--rate", 20, "--protocol", "tfserving")
    refused = run(url, tmp_path, *asked)
    assert refused.returncode == 3 and "it is not here" in refused.stderr
    counted = run(url, tmp_path, *asked, "--no-check", "--json")
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
