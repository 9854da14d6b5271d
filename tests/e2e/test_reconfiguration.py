"""A serving configuration is changed on two real Tritons while calls go on, and taken back."""

import json
import threading
import time

import harness
import pushing
import pytest
from background import Load

pytestmark = [pytest.mark.triton, pytest.mark.slow]
PATIENCE = 120.0  # seconds for one change
BATCHES = "dynamic_batching { max_queue_delay_microseconds: 100 }"
SLOW = {"dynamic_batching": {"preferred_batch_size": [8], "max_queue_delay_microseconds": 300000}}


def shown(up, model):
    return up.get(f"/api/models/{model}/versions/1/serving-configuration")


def put(up, model, fields, *, query=""):
    """Begin a change and wait for its end; gives the view after it."""
    path = f"/api/models/{model}/versions/1/serving-configuration?wait=false{query}"
    status, answer = harness.request(up.admin + path, "PUT", {"fields": fields})
    assert status == 202, answer
    until = time.monotonic() + PATIENCE
    while not (page := shown(up, model))["change"]["outcome"]:
        assert time.monotonic() < until, page
        threading.Event().wait(0.25)  # each look is work, which the calls beside would feel
    return page


def calling(up, model):
    body = {"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": pushing.ROW}]}
    call = f"/v2/models/{model}/infer", json.dumps(body), ""
    return Load(up.http, lambda number, count: call, clients=32, pause=0.3)


def in_triton(up, model):
    status, answer = harness.request(f"http://{up.http}/v2/models/{model}/config")
    assert status == 200, answer
    return answer


@pytest.fixture(scope="module")
def up(tmp_path_factory):
    folder = tmp_path_factory.mktemp("revised")
    flags = ("--replicas", "2", "--workers", "1", "--contract-interval", "86400")
    with harness.up(folder / "state", "--model-repo", "", *flags) as running:
        running.folder = folder
        yield running


def push(up, name):
    folder = pushing.source(up.folder / name, 2.0, more=BATCHES)
    pushing.brought(up, pushing.proven(folder, 2.0), name)


def test_a_change_reaches_every_replica_without_a_failed_call_and_goes_back_by_restore(up):
    push(up, "m")
    with calling(up, "m") as load:
        delay = {"max_queue_delay_microseconds": 700}
        done = put(up, "m", {"max_batch_size": 16, "dynamic_batching": delay})
        assert (done["change"]["outcome"], in_triton(up, "m")["max_batch_size"]) == ("applied", 16)
        assert {one["state"] for one in done["replicas"].values()} == {"applied"}
        again = put(up, "m", {"max_batch_size": 32})
        assert in_triton(up, "m")["max_batch_size"] == 32
        revision = done["etag"].strip('"')
        back = harness.servegate("history", "restore", revision, "--yes", "--admin-url", up.admin)
        assert back.returncode == 0, back.stderr
        assert in_triton(up, "m")["max_batch_size"] == 16
    assert load.failures == []
    page = shown(up, "m")
    assert page["fields"] == done["fields"]
    assert "restored" in page["reason"] and page["etag"] != again["etag"]


def test_a_configuration_with_which_the_objective_is_missed_is_taken_back(up):
    push(up, "late")
    up_with_objective = {"objective": "p99<200ms"}
    status, answer = harness.request(f"{up.admin}/api/models/late", "PATCH", up_with_objective)
    assert status == 200, answer
    with calling(up, "late") as load:
        done = put(up, "late", SLOW, query="&watch=20")
    assert done["change"]["outcome"] == "taken back", done["change"]
    assert "p99<200ms was met before the change and is missed after it" in done["change"]["told"]
    assert load.failures == []
    assert (done["author"], done["fields"]) == ("servegate", {})
    assert in_triton(up, "late")["dynamic_batching"]["max_queue_delay_microseconds"] == 100
