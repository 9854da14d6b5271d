"""`servegate up --autoscale`: Tritons come and go under load, and no call is lost by that.

What is wanted is set by bounds, which hold at once: nobody waits for a load to be measured.
"""

import json
import os
import signal
import threading
import urllib.request

import harness
import pytest
import repositories
from background import steady

pytestmark = [pytest.mark.triton, pytest.mark.slow]
SEVEN = (harness.ROOT / "examples/digits/seven.json").read_text()


def bounds(up, least, most):
    up.put("/api/pools/default", {"least": least, "most": most})


def holding(up):
    models = up.get("/api/snapshot")["snapshot"]["models"]
    return sorted(
        {one for target in models["digits"]["targets"].values() for one in target["replicas"]}
    )


def until_held_by(up, *names):
    harness.until(lambda: holding(up) == list(names), what=f"{names} hold it")


def running(up):
    return sorted(name for name in up.children() if name.startswith("local-"))


def test_tritons_come_and_go_and_no_call_fails(tmp_path):
    with (
        harness.up(tmp_path, "--autoscale", "1..3", "--workers", "2") as up,
        steady(up.http, "digits", SEVEN) as load,
    ):
        until_held_by(up, "local-0")
        bounds(up, 2, 3)
        until_held_by(up, "local-0", "local-1")
        bounds(up, 1, 1)
        until_held_by(up, "local-0")
        harness.until(lambda: running(up) == ["local-0"], what="it has stopped")
        bounds(up, 2, 2)
        until_held_by(up, "local-0", "local-1")
        restart_control(up)  # the next one finds out who is there
        until_held_by(up, "local-0", "local-1")
        bounds(up, 1, 1)
        until_held_by(up, "local-0")
        harness.until(lambda: running(up) == ["local-0"], what="it has stopped")
    assert load.failures == []
    assert load.calls > 20
    said = [line for line in up.program.lines if line.startswith(("starting l", "draining l"))]
    assert [line.partition(":")[0] for line in said] == [
        "starting local-1",
        "draining local-1",
        "starting local-1",
        "draining local-1",
    ]


def restart_control(up):
    before = up.children()["control"]
    os.kill(before, signal.SIGKILL)
    harness.until(lambda: up.children().get("control", before) != before)
    harness.until(lambda: _answers(up), what="the new one answers")


def _answers(up):
    try:
        return harness.request(up.admin + "/readyz")[0] == 200
    except OSError:
        return False


WAITING = """
import triton_python_backend_utils as pb

class TritonPythonModel:
    def execute(self, requests):
        open({fifo!r}).close()  # returns once somebody opens the other end
        return [
            pb.InferenceResponse([pb.Tensor("y", pb.get_input_tensor_by_name(r, "x").as_numpy())])
            for r in requests
        ]
"""


def busy(up):
    lines = up.metrics().splitlines()
    mine = [line for line in lines if line.startswith("servegate_replica_calls_in_flight{")]
    found = {}
    for line in mine:
        name = line.partition('replica="')[2].partition('"')[0]
        found[name] = found.get(name, 0) + float(line.rpartition(" ")[2])
    return found


def test_a_triton_is_not_stopped_before_its_last_call_has_ended(tmp_path):
    fifo, models = tmp_path / "fifo", tmp_path / "models"
    os.mkfifo(fifo)
    repositories.python_model(models, "waiting", WAITING.format(fifo=str(fifo)))
    body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [2.5]}]}
    answers = []

    def call(up):
        url = f"http://{up.http}/v2/models/waiting/infer"
        with urllib.request.urlopen(url, json.dumps(body).encode(), timeout=60) as answer:
            answers.append(json.load(answer)["outputs"][0]["data"])

    flags = ("--autoscale", "2..2", "--model-repo", str(models))
    with harness.up(tmp_path / "state", *flags) as up:
        callers = [threading.Thread(target=call, args=(up,)) for _ in range(2)]
        for caller in callers:
            caller.start()
        harness.until(lambda: busy(up) == {"local-0": 1, "local-1": 1}, what="both are called")
        bounds(up, 1, 1)
        harness.until(lambda: "local-1" not in up.get("/api/snapshot")["snapshot"]["replicas"])
        up.program.wait_line("draining local-1")
        assert busy(up) == {"local-0": 1, "local-1": 1}
        restart_control(up)  # which knows nothing of local-1
        harness.until(lambda: list(up.get("/api/snapshot")["snapshot"]["replicas"]) == ["local-0"])
        harness.until(lambda: up.get("/api/hints")["number"] > 1, what="the parent was heard")
        assert running(up) == ["local-0", "local-1"]
        end = os.open(fifo, os.O_RDWR)
        for caller in callers:
            caller.join(60)
        os.close(end)
        harness.until(lambda: running(up) == ["local-0"], what="it has stopped")
    assert answers == [[2.5], [2.5]]
