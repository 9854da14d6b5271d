"""What dies comes back, and what lives does not notice: kill -9 of each kind of process."""

import json
import os
import signal
import threading
from collections import Counter

import harness
import pytest
import repositories
from background import Load
from ports import free_ports

pytestmark = pytest.mark.triton

METADATA = "/v2/models/counting"
SEVEN = (harness.ROOT / "examples/digits/seven.json").read_bytes()


def counting_body(number, count):
    name = f"c{number}-{count}"
    return "/v2/models/counting/infer", json.dumps(repositories.request(name)), name


@pytest.fixture
def counting(tmp_path):
    """Two Tritons with a model that writes down every execution."""
    log = tmp_path / "executed"
    log.touch()
    models = tmp_path / "models"
    repositories.python_model(models, "counting", repositories.COUNTING.format(log=str(log)))
    with harness.up(
        tmp_path / "state", "--model-repo", str(models), "--replicas", "2", "--workers", "1"
    ) as up:
        yield up, log


def test_killing_one_of_two_tritons_fails_only_calls_in_flight_and_executes_none_twice(counting):
    up, log = counting
    clients = 8
    with Load(up.http, counting_body, clients) as load:
        load.wait_calls(200)
        killed = up.children()["local-0"]
        os.kill(killed, signal.SIGKILL)
        load.wait_calls(400)
        harness.until(
            lambda: up.children().get("local-0", killed) != killed, what="local-0 is restarted"
        )
        harness.until(
            lambda: all(r["state"] == "up" and r["held"] for r in up.get("/api/replicas")),
            what="its model is loaded again",
        )
        load.wait_calls(200)
    executed = log.read_text().split()
    assert len(load.failures) <= clients, load.failures
    assert len(executed) == len(set(executed)), "a call was executed twice"
    assert set(load.answered) <= set(executed)


def test_no_caller_is_told_that_a_restarted_triton_does_not_know_its_model_yet(tmp_path):
    models = tmp_path / "models"
    repositories.python_model(models, "counting", repositories.PLAIN)
    flags = ("--model-repo", str(models), "--replicas", "1", "--workers", "1")
    questions = Counter()
    with harness.up(tmp_path / "state", *flags) as up:
        stop = threading.Event()

        def ask(path, body):
            while not stop.is_set():
                method = "GET" if body is None else "POST"
                questions[path, harness.request(f"http://{up.http}{path}", method, body)[0]] += 1

        rows = {"instances": [1.0, 2.0]}
        asked = {METADATA: None, f"{METADATA}/config": None, "/v1/models/counting:predict": rows}
        threads = [threading.Thread(target=ask, args=each) for each in asked.items()]
        with Load(up.http, counting_body, 8) as load:
            for thread in threads:
                thread.start()
            load.wait_calls(100)
            killed = up.children()["local-0"]
            os.kill(killed, signal.SIGKILL)
            harness.until(lambda: up.children().get("local-0", killed) != killed)
            answered = len(load.answered)
            harness.until(lambda: len(load.answered) > answered + 50, what="it serves again")
            stop.set()
            for thread in threads:
                thread.join(30)
    statuses = {status for _, status in questions} | set(load.outcomes)
    assert statuses <= {200, 502, 503, 504}, (questions, load.outcomes)


@pytest.mark.slow
def test_a_killed_control_plane_leaves_calls_alone_and_is_taken_over(counting):
    up, _ = counting
    before = up.get("/api/snapshot")["generation"]
    with Load(up.http, counting_body, 4) as load:
        load.wait_calls(50)
        killed = up.children()["control"]
        os.kill(killed, signal.SIGKILL)
        load.wait_calls(200)
        harness.until(lambda: up.children().get("control", killed) != killed)
        harness.until(lambda: _answers(up), what="the new control plane answers")
        load.wait_calls(100)
        answer = up.split("counting", v1=100)
    assert not load.failures, load.failures[:3]
    assert answer["in_force"] and answer["generation"] > before


def _answers(up):
    try:
        return up.get("/api/replicas") and up.get("/api/models")[0]["state"] == "ready"
    except OSError:
        return False


def test_a_worker_that_restarts_without_a_control_plane_serves_from_its_saved_snapshot(tmp_path):
    state, repo = tmp_path / "state", str(harness.ROOT / "model_repo")
    with harness.up(state, "--model-repo", repo) as up:
        split = up.split("digits", v1=100)
        addresses = [r["address"] for r in up.get("/api/replicas")]
        alone = harness.Up.__new__(harness.Up)
        alone.state = tmp_path / "alone"
        alone.http_port, alone.grpc_port, alone.metrics_port, alone.admin_port = free_ports(4)
        alone.state.mkdir()
        (alone.state / "snapshot.json").write_bytes((state / "snapshot.json").read_bytes())
        flags = list(alone.ports())
        admin = flags.index("--admin-port")
        del flags[admin : admin + 2]
        alone.program = harness.Program(
            "proxy", *flags, "--control", "http://127.0.0.1:9", "--log-level", "info"
        )
        try:
            alone.program.wait_line(f"serving generation {split['generation']} from disk")
            url = f"http://{alone.http}/v2/models/digits/infer"
            status, answer = harness.until(lambda: _try(url))
            assert status == 200 and answer["model_version"] == "1"
            for name in ("worker-0", "workers"):
                killed = alone.children()[name]
                os.kill(killed, signal.SIGKILL)
                harness.until(lambda: alone.children().get("worker-0", killed) != killed)  # noqa: B023
                assert harness.until(lambda: _try(url))[0] == 200
        finally:
            assert alone.program.stop() == 0
        assert addresses


def _try(url):
    try:
        status, answer = harness.request(url, "POST", json.loads(SEVEN))
        return (status, answer) if status == 200 else None
    except OSError:
        return None


@pytest.mark.slow
@pytest.mark.parametrize("name", ["worker-0", "control"])
def test_a_process_that_hangs_is_replaced(tmp_path, name):
    with harness.up(tmp_path / "state", "--workers", "2", "--log-level", "debug") as up:
        pid = up.children()[name]
        up.program.wait_line(rf"\({pid}\) answers and is watched")
        os.kill(pid, signal.SIGSTOP)
        harness.until(lambda: up.children().get(name, pid) != pid, what="it is killed")
        url = f"http://{up.http}/v2/models/digits/infer"
        harness.until(lambda: all(_try(url) for _ in range(8)))
        harness.until(lambda: _answers(up))
