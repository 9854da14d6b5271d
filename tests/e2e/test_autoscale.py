"""`servegate up --autoscale`: Tritons come and go under load, from none too; no call is lost."""

import json
import os
import shutil
import signal
import threading
import urllib.request
from concurrent.futures import Future, ThreadPoolExecutor

import fleets
import harness
import numpy as np
import pytest
import repositories
import tritonclient.grpc as triton
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


# --- pools that have been scaled to zero ----------------------------------------------------------

INFER = "/v2/models/digits/infer"
ROW = np.zeros((1, 8, 8, 1), np.float32)


def over_http(up):
    status, told = harness.request(f"http://{up.http}{INFER}", "POST", json.loads(SEVEN))
    assert status == 200, told
    return told["model_version"]


def over_tfserving(up):
    body = {"instances": ROW.tolist()}
    status, told = harness.request(f"http://{up.http}/v1/models/digits:predict", "POST", body)
    assert status == 200, told
    return len(told["predictions"])


def question():
    row = triton.InferInput("x", ROW.shape, "FP32")
    row.set_data_from_numpy(ROW)
    return [row]


def over_grpc(up):
    with triton.InferenceServerClient(up.grpc) as client:
        return client.infer("digits", question()).get_response().model_version


def over_a_stream(up):
    answer = Future()
    with triton.InferenceServerClient(up.grpc) as client:
        client.start_stream(lambda result, error: answer.set_result((result, error)))
        client.async_stream_infer("digits", question())
        result, error = answer.result(60)
        assert error is None, error
        return result.get_response().model_version


def waiting(up):
    """Calls of the model that have come and have not ended, in all workers."""
    found = 0.0
    for line in up.metrics().splitlines():
        if line.startswith("servegate_model_calls_in_flight{") and 'model="digits"' in line:
            found += float(line.rpartition(" ")[2])
    return found


def test_the_first_calls_wake_a_pool_and_are_answered_whatever_they_speak(tmp_path):
    with harness.up(tmp_path, "--autoscale", "0..2", "--workers", "2") as up:
        [model] = up.get("/api/models")
        assert (model["state"], model["problems"]) == ("asleep", [])
        assert harness.request(f"http://{up.http}/v2/health/ready")[0] == 200
        assert harness.request(f"http://{up.http}/v2/models/digits/ready")[0] == 400
        assert waiting(up) == 0
        asking = [over_http, over_tfserving, over_grpc, over_a_stream] * 3
        with ThreadPoolExecutor(len(asking)) as callers:
            told = list(callers.map(lambda ask: ask(up), asking))
        assert told == ["2", 1, "2", "2"] * 3
        assert harness.request(f"http://{up.http}/v2/models/digits/ready")[0] == 200
    started = [line for line in up.program.lines if line.startswith("starting local-")]
    assert len(started) == 1, up.program.output


def replicas(fleet, *flags):
    """What there is from now on, as whoever starts Tritons says it."""
    body = {"replicas": flags, "within": 20}
    secret = {"authorization": f"Bearer {fleets.SECRET}"}
    status, told = harness.request(f"{fleet.admin}/internal/replicas", "PUT", body, **secret)
    assert (status, told) == (200, {"leaving": {}})


def test_a_pool_goes_to_zero_and_comes_back_under_load_and_no_call_fails(tmp_path):
    machine = fleets.Machine(tmp_path, "a")
    shutil.copytree(harness.ROOT / "model_repo", machine.repository, dirs_exist_ok=True)
    fleet = fleets.Fleet(
        tmp_path / "control",
        flags=("--model-repo", str(machine.repository)),
        env={"SERVEGATE_AUTOSCALE": "0..1"},
    )
    try:
        fleet.wait_ready()
        ready = f"http://{fleet.http}/v2/health/ready"
        harness.until(lambda: harness.request(ready)[0] == 200, what="it takes calls")
        first = threading.Thread(target=over_http, args=(fleet,))
        first.start()
        harness.until(lambda: fleet.get("/api/hints/default")["desired"] == 1, what="it is woken")
        assert [one["code"] for one in fleet.get("/api/hints/default")["reasons"]] == ["waking"]
        machine.start_triton()
        replicas(fleet, machine.flag)
        first.join(60)
        with steady(fleet.http, "digits", SEVEN, clients=12) as load:
            for _ in range(2):
                replicas(fleet)
                harness.until(lambda: waiting(fleet) >= 10, what="calls wait")
                assert fleet.get("/api/models")[0]["state"] == "asleep"
                replicas(fleet, machine.flag)
                harness.until(lambda: waiting(fleet) < 5, what="they are answered")
        assert load.failures == []
        assert load.calls >= 20
    finally:
        machine.stop()
        fleet.stop()
