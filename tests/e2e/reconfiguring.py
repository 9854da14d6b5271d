"""Changes of serving configurations for tests: asked for over the admin API, under calls."""

import json
import threading
import time

import harness
import pushing
from steady import Call, Steady

PATIENCE = 120.0  # seconds for one change
BATCHES = "dynamic_batching { max_queue_delay_microseconds: 100 }"


def path_of(up, model, version=1):
    """Where the serving configuration of a version is."""
    return f"{up.admin}/api/models/{model}/versions/{version}/serving-configuration"


def shown(up, model, version=1):
    """How a version is run."""
    status, answer = harness.request(path_of(up, model, version))
    assert status == 200, answer
    return answer


def put(up, model, fields, version=1, *, query="", **headers):
    """Begin a change and wait for its end; gives the view after it."""
    url = f"{path_of(up, model, version)}?wait=false{query}"
    status, answer = harness.request(url, "PUT", {"fields": fields}, **headers)
    assert status == 202, answer
    return ended(up, model, version)


def ended(up, model, version=1):
    """Wait for the end of the newest change; gives the view after it."""
    until = time.monotonic() + PATIENCE
    while not (page := shown(up, model, version))["change"]["outcome"]:
        assert time.monotonic() < until, page
        threading.Event().wait(0.25)  # each look is work, which the calls beside would feel
    return page


def calling(up, *models, rate=100.0):
    """A steady load on these models in turn."""
    body = {"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": pushing.ROW}]}
    calls = [Call(name, f"/v2/models/{name}/infer", json.dumps(body)) for name in models]
    return Steady(up.http, calls, rate=rate)


def in_triton(up, model):
    """What a replica tells of how it runs a model, through the gateway."""
    status, answer = harness.request(f"http://{up.http}/v2/models/{model}/config")
    assert status == 200, answer
    return answer
