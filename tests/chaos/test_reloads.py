"""Versions of one model come and go fifty times under a steady load: nobody's calls suffer.

The control arm does the same on a twin: another gateway with Tritons of its own, which nobody
calls. It burns the same CPU time on the same cores, so the ratio of the arms is what loading costs
the calls beyond the CPU time.
"""

import json
import random
import statistics
import time

import harness
import numpy as np
import pushing
import pytest
from onnx import TensorProto, helper, numpy_helper
from steady import Call, Steady

pytestmark = [pytest.mark.triton, pytest.mark.chaos]

RATE = 150.0  # calls a second, half of them of the model beside
REPLICAS = 2
CYCLES = 25  # of each arm, each a load and an unload on every replica
FRESH = 5  # every so many cycles begin with a push
WIDTH = 2048  # a load reads and prepares 16 MiB of weights
NEVER = "86400"  # seconds between two scheduled runs of a contract


def heavy(folder, factor, draw):
    """A model folder whose version takes a while to load: y = factor · x + 0 · sum(x·A·B)."""
    pushing.source(folder, factor)
    matrices = {"a": (4, WIDTH), "b": (WIDTH, WIDTH)}
    weights = [
        numpy_helper.from_array(draw.random(shape, np.float32), name)
        for name, shape in matrices.items()
    ]
    weights += [
        helper.make_tensor("factor", TensorProto.FLOAT, [1], [factor]),
        helper.make_tensor("zero", TensorProto.FLOAT, [1], [0.0]),
        helper.make_tensor("axes", TensorProto.INT64, [1], [1]),
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["xa"]),
        helper.make_node("MatMul", ["xa", "b"], ["xab"]),
        helper.make_node("ReduceSum", ["xab", "axes"], ["sum"]),
        helper.make_node("Mul", ["sum", "zero"], ["nothing"]),
        helper.make_node("Mul", ["x", "factor"], ["scaled"]),
        helper.make_node("Add", ["scaled", "nothing"], ["y"]),
    ]
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch", 4]) for n in "xy"]
    graph = helper.make_graph(nodes, "heavy", values[:1], values[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    (folder / "1" / "model.onnx").write_bytes(model.SerializeToString())
    return folder


class Reloading:
    """A gateway whose model `reloaded` serves version 1, while later ones come and go."""

    def __init__(self, up, folder):
        self.up = up
        self._folder = folder
        folder.mkdir()
        self._draw = np.random.default_rng(7)
        self._golden = str(pushing.golden(folder / "golden.npz", 3.0))
        self._last = 0
        self.loads = 0

    def prepare(self):
        for name in ("reloaded", "beside"):
            source = pushing.source(self._folder / name, 2.0)
            pushing.pushed(self.up, source, name, "--wait")

    def cycle(self):
        """A version comes and goes on every replica; gives when, in monotonic seconds."""
        begun = time.monotonic()
        if self.loads % (FRESH * REPLICAS) == 0:
            self._push()
        else:
            self._version("POST", "/restore")
            harness.until(lambda: len(self._shown()["replicas"]) == REPLICAS)
        self.loads += REPLICAS
        self._version("DELETE")
        harness.until(self._is_unloaded, what="it is unloaded")
        return begun, time.monotonic()

    def _push(self):
        folder = heavy(self._folder / f"version-{self.loads}", 3.0, self._draw)
        flags = ("--wait", "--golden", self._golden)
        self._last = pushing.pushed(self.up, folder, "reloaded", *flags)["version"]

    def _version(self, method, action=""):
        path = f"{self.up.admin}/api/models/reloaded/versions/{self._last}{action}"
        status, answer = harness.request(path, method)
        assert status == 200, answer

    def _shown(self):
        return pushing.state(self.up, "reloaded", self._last)

    def _is_unloaded(self):
        replicas = self.up.get("/api/replicas?readings=false")
        return [replica["held"]["reloaded"] for replica in replicas] == [[1]] * REPLICAS


def p99(calls):
    """The 99th percentile of their latencies, in milliseconds."""
    times = sorted(call.seconds for call in calls)
    return 1000 * times[int(0.99 * len(times))]


def ratio(pairs):
    """Median of the first over median of the second."""
    ours, theirs = zip(*pairs, strict=True)
    return statistics.median(ours) / statistics.median(theirs)


def interval(pairs):
    """90 % of the ratios of as many blocks, drawn again and again from those that there are."""
    draw = random.Random(1)
    ratios = sorted(ratio(draw.choices(pairs, k=len(pairs))) for _ in range(2000))
    return ratios[100], ratios[1899]


def test_fifty_loads_fail_no_call_and_cost_other_models_no_more_than_their_cpu_time(tmp_path):
    flags = (
        *("--model-repo", "", "--replicas", str(REPLICAS), "--workers", "1", "--quarantine", "off"),
        *("--contract-interval", NEVER, "--access-log", ""),
    )
    body = {"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": pushing.ROW}]}
    calls = [
        Call(name, f"/v2/models/{name}/infer", json.dumps(body)) for name in ("beside", "reloaded")
    ]
    with (
        harness.up(tmp_path / "one", *flags) as up,
        harness.up(tmp_path / "other", *flags) as other,
    ):
        called, twin = Reloading(up, tmp_path / "a"), Reloading(other, tmp_path / "b")
        called.prepare()
        twin.prepare()
        blocks = []
        with Steady(up.http, calls, rate=RATE) as load:
            for number in range(CYCLES):
                pair = (called, twin) if number % 2 == 0 else (twin, called)
                blocks.append({arm: arm.cycle() for arm in pair})
    assert called.loads == twin.loads == CYCLES * REPLICAS
    assert load.failed() == []
    assert {call.told for call in load.done} == {"1"}
    pairs = [
        (p99(load.of("beside", *block[called])), p99(load.of("beside", *block[twin])))
        for block in blocks
    ]
    low, high = interval(pairs)
    ours, theirs = (statistics.median(arm) for arm in zip(*pairs, strict=True))
    print(
        f"\n{len(load.done)} calls, none failed, during {called.loads} loads;"
        f" p99 of the model beside, medians of {CYCLES} blocks: {ours:.2f} ms,"
        f" with the loads elsewhere {theirs:.2f} ms; ratio {ratio(pairs):.2f}"
        f" (90 % of the blocks drawn anew: {low:.2f} to {high:.2f})"
    )
    assert ratio(pairs) < 1.5, pairs
