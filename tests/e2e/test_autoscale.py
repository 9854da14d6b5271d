"""`servegate up --autoscale`: Tritons come and go under load, and no call is lost by that.

What is wanted is set by bounds, which hold at once: nobody waits for a load to be measured.
"""

import json
import os
import queue
import signal
import threading
import urllib.request

import harness
import numpy as np
import pytest
import repositories
import steady
import tritonclient.grpc

pytestmark = [pytest.mark.triton, pytest.mark.slow]
SEVEN = (harness.ROOT / "examples/digits/seven.json").read_text()
CALL = steady.Call("digits", "/v2/models/digits/infer", SEVEN)


def bounds(up, least, most):
    """Allow so many replicas, now."""
    up.put("/api/pools/default", {"least": least, "most": most})


def holding(up):
    """The replicas that may be called for the demo's model."""
    models = up.get("/api/snapshot")["snapshot"]["models"]
    return sorted(
        {one for target in models["digits"]["targets"].values() for one in target["replicas"]}
    )


def until_held_by(up, *names):
    harness.until(lambda: holding(up) == list(names), what=f"{names} hold it")


def running(up):
    """The Tritons that run as processes."""
    return sorted(name for name in up.children() if name.startswith("local-"))


@pytest.fixture(scope="module")
def up(tmp_path_factory):
    state = tmp_path_factory.mktemp("autoscale")
    with harness.up(state, "--autoscale", "1..3", "--workers", "2") as one:
        yield one


def test_tritons_come_and_go_and_no_call_fails(up):
    until_held_by(up, "local-0")
    with steady.Steady(up.http, [CALL], rate=20) as load:
        bounds(up, 2, 3)
        until_held_by(up, "local-0", "local-1")
        bounds(up, 1, 1)
        until_held_by(up, "local-0")
        harness.until(lambda: running(up) == ["local-0"], what="it has stopped")
        bounds(up, 2, 2)
        until_held_by(up, "local-0", "local-1")
    assert load.failed() == []
    assert len(load.done) > 20
    said = [line for line in up.program.lines if line.startswith(("starting l", "draining l"))]
    assert [line.partition(":")[0] for line in said] == [
        "starting local-1",
        "draining local-1",
        "starting local-1",
    ]


def test_a_control_plane_that_starts_anew_knows_who_is_there(up):
    bounds(up, 2, 2)
    until_held_by(up, "local-0", "local-1")
    with steady.Steady(up.http, [CALL], rate=20) as load:
        restart_control(up)
        until_held_by(up, "local-0", "local-1")
        bounds(up, 1, 1)
        until_held_by(up, "local-0")
        harness.until(lambda: running(up) == ["local-0"], what="it has stopped")
    assert load.failed() == []


def restart_control(up):
    """Kill it, and wait for the next one."""
    before = up.children()["control"]
    os.kill(before, signal.SIGKILL)
    harness.until(lambda: up.children().get("control", before) != before)
    harness.until(lambda: _answers(up), what="the new one answers")


def _answers(up):
    try:
        return harness.request(up.admin + "/readyz")[0] == 200
    except OSError:
        return False


class Stream:
    """A stream of a client that asks one question after the other."""

    def __init__(self, up):
        self._said = queue.SimpleQueue()
        self._client = tritonclient.grpc.InferenceServerClient(up.grpc)
        self._client.start_stream(lambda result, error: self._said.put(error))
        (one,) = json.loads(SEVEN)["inputs"]
        values = np.array(one["data"], np.float32).reshape(one["shape"])
        self._input = tritonclient.grpc.InferInput(one["name"], one["shape"], one["datatype"])
        self._input.set_data_from_numpy(values)

    def ask(self):
        """What went wrong with one question, if anything."""
        self._client.async_stream_infer("digits", [self._input])
        return self._said.get(timeout=60)

    def close(self):
        """The client has asked all that it wants to."""
        self._client.stop_stream()
        self._client.close()


def test_streams_that_are_open_go_on_elsewhere_when_their_triton_leaves(up):
    bounds(up, 2, 2)
    until_held_by(up, "local-0", "local-1")
    streams = [Stream(up) for _ in range(6)]
    assert [one.ask() for one in streams] == [None] * 6
    harness.until(lambda: min(busy(up).values()) > 0, what="both have streams")
    bounds(up, 1, 1)
    harness.until(lambda: running(up) == ["local-0"], what="it has stopped")
    assert [one.ask() for one in streams] == [None] * 6
    for one in streams:
        one.close()


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
    """The calls in flight by replica."""
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


def test_what_cannot_be_scaled_is_refused_at_the_start(tmp_path):
    elsewhere = "--autoscale needs local Tritons"
    for flags, env, wanted in (
        (("1..2", "--triton", "127.0.0.1:1:2:3"), {}, elsewhere),
        (("1..2",), {"SERVEGATE_DISCOVER": "dns=tritons:1:2:3"}, elsewhere),
        (("4..1",), {}, "'4..1' is not a valid range of replicas"),
    ):
        words = ("up", "--state", str(tmp_path), "--autoscale", *flags)
        done = harness.servegate(*words, env=env)
        assert done.returncode != 0
        assert wanted in done.stderr and "Traceback" not in done.stderr
