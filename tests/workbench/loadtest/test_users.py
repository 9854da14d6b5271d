"""locust's users against a small server, by locust itself: a child process without a page."""

import csv
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from model_server import ModelServer

LOCUSTFILE = Path(__file__).parents[3] / "loadtests" / "locustfile.py"
HEAD = """
from locust import constant, task
from serve.workbench.loadtest.users import *
"""
VISITOR = """
class Visitor({kind}):
    model = "m"
    {more}
    wait_time = constant(0.05)

    @task
    def infer(self):
        self.call()
"""
ENOUGH = """
import collections, gevent
from locust import events
calls = collections.Counter()

@events.init.add_listener
def end_when_each_has_called(environment, **_):
    def count(name, **_):
        calls[name] += 1
        seen = [calls[each] >= 2 for each in calls]
        if len(seen) == len(environment.user_classes) and all(seen) and not environment.is_enough:
            environment.is_enough = True
            gevent.spawn_later(3.0, environment.runner.quit)  # the table is written each second
    environment.is_enough = False
    environment.events.request.add_listener(count)
"""


class Locust:
    """locust without a page, on one file; `rows` are its table of requests, by name."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.status = 0
        self.said = ""
        self.rows: dict[str, dict[str, str]] = {}

    def run(self, text: str, server: ModelServer, *words: str) -> None:
        """Run that file until each class of users has called twice, or as the words say."""
        (self._folder / "users.py").write_text(HEAD + text + ("" if words else ENOUGH))
        done = subprocess.run(
            (
                *(sys.executable, "-m", "locust", "-f", "users.py", "--headless", "--csv", "out"),
                *("--host", f"http://{server.address}", "-u", "2", "-r", "10", "-t", "90s", *words),
            ),
            cwd=self._folder,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        self.status, self.said = done.returncode, done.stdout + done.stderr
        table = self._folder / "out_stats.csv"
        if table.exists():
            with table.open() as lines:
                self.rows = {row["Name"]: row for row in csv.DictReader(lines)}


@pytest.fixture
def locust(tmp_path: Path) -> Locust:
    return Locust(tmp_path)


@pytest.mark.slow
def test_a_user_calls_with_what_the_metadata_says(locust: Locust, server: ModelServer) -> None:
    both = VISITOR.replace("Visitor", "{kind}Visitor")
    users = both.format(kind="KServeHttpUser", more='version = "stable"')
    locust.run(users + both.format(kind="TFServingUser", more=""), server)
    for name in ("m@stable http-binary", "m@- tfserving"):
        assert int(locust.rows[name]["Request Count"]) >= 2, locust.said
        assert locust.rows[name]["Failure Count"] == "0", locust.said
    assert set(server.calls) == {"/v2/models/m/versions/stable/infer", "/v1/models/m:predict"}
    assert locust.status == 0


def test_an_answer_that_differs_from_its_label_is_a_failure(
    locust: Locust, server: ModelServer, tmp_path: Path
) -> None:
    rows = np.zeros((3, 4), np.float32)
    np.savez(tmp_path / "rows.npz", x=rows, digit=np.zeros(3, int))
    more = 'inputs, labels, output = "rows.npz", "digit", "y"'
    locust.run(VISITOR.format(kind="KServeHttpUser", more=more), server)
    row = locust.rows["m@3 http-binary"]
    assert row["Failure Count"] == row["Request Count"] != "0"
    assert locust.status == 1
    assert "wrong_answer" in locust.said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "why"), [("nobody", "responded with status 404"), ("", "no model is set")]
)
def test_a_test_that_cannot_be_prepared_ends_with_a_sentence(
    locust: Locust, server: ModelServer, model: str, why: str
) -> None:
    locust.run(VISITOR.format(kind="KServeHttpUser", more=f'model = "{model}"'), server)
    assert why in locust.said
    assert "Traceback" not in locust.said
    assert locust.status == 2
    assert server.calls == []


@pytest.mark.slow  # thirteen seconds of arrivals
def test_a_crowd_counts_from_the_intended_start(locust: Locust, server: ModelServer) -> None:
    server.holds.clear()
    crowd = """
class Crowd(OpenLoopUser, KServeHttpUser):
    model, rate, arrivals, timeout, seconds, most = "m", 20, "constant", 0.2, 1, 1
"""
    locust.run(crowd, server, "-u", "1", "-t", "13s")
    row = locust.rows["m@- http-binary"]
    assert row["Request Count"] == "20"
    assert float(row["Max Response Time"]) > 5 * 200  # the last one waited for many before it


def test_the_locustfile_calls_grpc_on_the_host_that_it_is_given() -> None:
    ask = (
        "from locustfile import *; from serve.workbench.loadtest.users import grpc_url_of as url\n"
    )
    ask += (
        "for host in ('http://gw:25000', 'https://[::1]:8000', '10.0.0.1:8000'): print(url(host))\n"
    )
    ask += "one = Colleague.__new__(Colleague); one.host = 'http://gw:25000'; one.on_start()\n"
    ask += "print(one.target)"
    said = subprocess.check_output((sys.executable, "-c", ask), cwd=LOCUSTFILE.parent, text=True)
    urls = ["http://gw:25001", "https://[::1]:8001", "http://10.0.0.1:8001"]
    assert said.split() == [*urls, "http://gw:25001"]
