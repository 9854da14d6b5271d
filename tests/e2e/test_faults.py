"""What dies comes back, and what lives does not notice: kill -9 of each kind of process."""

import os
import signal

import background
import harness
import pytest
import repositories
from background import Load, counted

pytestmark = pytest.mark.triton


@pytest.fixture(scope="module")
def counting(tmp_path_factory):
    with background.counting(tmp_path_factory.mktemp("counting")) as scene:
        yield scene


def test_killing_one_of_two_tritons_fails_only_calls_in_flight_and_executes_none_twice(counting):
    up, log = counting
    clients = 8
    with Load(up.http, counted, clients) as load:
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
    assert len(load.failures) <= clients, load.failures
    background.assert_executed_once(load, log)


@pytest.mark.slow
def test_where_calls_may_be_executed_twice_no_caller_notices_a_killed_triton(counting):
    up, _ = counting
    rules = ("route", "set", "counting", "1=100", "--admin-url", up.admin)
    assert harness.servegate(*rules, "--idempotent").returncode == 0
    with Load(up.http, counted, 8) as load:
        load.wait_calls(200)
        killed = up.children()["local-0"]
        os.kill(killed, signal.SIGKILL)
        load.wait_calls(400)
        harness.until(
            lambda: all(r["state"] == "up" and r["held"] for r in up.get("/api/replicas")),
            what="its model is loaded again, so the next test finds a fleet at rest",
        )
        load.wait_calls(200)
    assert harness.servegate(*rules, "--no-idempotent").returncode == 0
    assert not load.failures, load.failures[:3]
    assert 'reason="outcome unknown"' in up.metrics()


@pytest.mark.slow
def test_a_killed_control_plane_leaves_calls_alone_and_is_taken_over(counting):
    up, _ = counting
    before = up.get("/api/snapshot")["generation"]
    with Load(up.http, counted, 4) as load:
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


@pytest.mark.slow
def test_a_worker_that_restarts_without_a_control_plane_serves_from_its_saved_snapshot(
    counting, tmp_path
):
    up, _ = counting
    split = up.split("counting", v1=100)
    alone = harness.RunningGateway(tmp_path / "alone")
    alone.state.mkdir()
    (alone.state / "snapshot.json").write_bytes((up.state / "snapshot.json").read_bytes())
    words = ("proxy", *alone.flags(), "--control", "http://127.0.0.1:9", "--log-level", "info")
    program = harness.Program(*words)
    try:
        program.wait_line(f"serving generation {split['generation']} from disk")
        assert harness.until(lambda: _try(alone))["model_version"] == "1"
        for name in ("worker-0", "workers"):
            killed = alone.children()[name]
            os.kill(killed, signal.SIGKILL)
            harness.until(lambda: alone.children().get("worker-0", killed) != killed)  # noqa: B023
            assert harness.until(lambda: _try(alone))
    finally:
        assert program.stop() == 0


def _try(up):
    """The answer to one call, where there is one."""
    url = f"http://{up.http}/v2/models/counting/infer"
    try:
        status, answer = harness.request(url, "POST", repositories.request())
        return answer if status == 200 else None
    except OSError:
        return None


@pytest.mark.slow
@pytest.mark.parametrize("name", ["worker-0", "control"])
def test_a_process_that_hangs_is_replaced(tmp_path, name):
    repositories.python_model(tmp_path / "models", "counting", repositories.PLAIN)
    flags = ("--model-repo", str(tmp_path / "models"), "--workers", "2", "--log-level", "debug")
    with harness.up(tmp_path / "state", *flags) as up:
        pid = up.children()[name]
        up.program.wait_line(rf"\({pid}\) responds; watching it")
        os.kill(pid, signal.SIGSTOP)
        harness.until(lambda: up.children().get(name, pid) != pid, what="it is killed")
        harness.until(lambda: all(_try(up) for _ in range(8)))
        harness.until(lambda: _answers(up))
