"""Pools that have been scaled to zero: the first calls wake them, and all are answered."""

import json
import os
import shutil
import signal
import threading
from concurrent.futures import Future, ThreadPoolExecutor

import fleets
import harness
import numpy as np
import pytest
import tritonclient.grpc as triton
from background import steady

pytestmark = [pytest.mark.triton, pytest.mark.slow]
SEVEN = (harness.ROOT / "examples/digits/seven.json").read_text()
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


def test_calls_that_wait_outlive_a_control_plane_that_hangs_and_dies(tmp_path):
    with harness.up(tmp_path, "--autoscale", "0..1") as up, ThreadPoolExecutor(1) as caller:
        control = up.children()["control"]
        os.kill(control, signal.SIGSTOP)
        asking = caller.submit(over_http, up)
        harness.until(lambda: waiting(up) == 1, what="the call waits")
        os.kill(control, signal.SIGKILL)
        assert asking.result(60) == "2"


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
