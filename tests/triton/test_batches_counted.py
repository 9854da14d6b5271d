"""What a real Triton counts of batches, and what the observer makes of it."""

import asyncio
import json
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.error import HTTPError

import pytest
from builders import Clock
from ports import free_ports

from serve.app.batch_observation import TritonReader
from serve.control.batching.observer import BatchingObserver
from serve.control.batching.situation import batched_of, points
from serve.control.batching.steps import CalledModel, parts_of
from serve.control.fleet import Fleet
from serve.core.replicas import Replica
from serve.triton.config import Configuration, parse

from .conftest import BareTriton, BareTritonFactory, hold
from .fronting import Model

pytestmark = [pytest.mark.triton, pytest.mark.slow]

_TENSORS = (
    'input { name: "x" data_type: TYPE_FP32 dims: 1 } '
    'output { name: "y" data_type: TYPE_FP32 dims: 1 } '
)
_COPY = """
import time
import triton_python_backend_utils as utils

class TritonPythonModel:
    def execute(self, requests):
        inputs = [utils.get_input_tensor_by_name(one, "x").as_numpy() for one in requests]
        time.sleep(max(float(x.max()) for x in inputs))
        return [utils.InferenceResponse([utils.Tensor("y", x)]) for x in inputs]
"""
_CALLS = """
import triton_python_backend_utils as utils

class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for one in requests:
            x = utils.get_input_tensor_by_name(one, "x")
            asked = utils.InferenceRequest(
                model_name="plain", requested_output_names=["y"], inputs=[x]
            )
            answers.append(utils.InferenceResponse(asked.exec().output_tensors()))
        return answers
"""
_DELAYED = "dynamic_batching { preferred_batch_size: 3 max_queue_delay_microseconds: 200000 }"
_TIGHT = "dynamic_batching { default_queue_policy { max_queue_size: 1 } }"
_STEPS = """
platform: "ensemble"
ensemble_scheduling {
  step { model_name: "plain" model_version: -1
         input_map { key: "x" value: "x" } output_map { key: "y" value: "between" } }
  step { model_name: "net" model_version: 1
         input_map { key: "x" value: "between" } output_map { key: "y" value: "y" } }
}
"""
_PYTHON = 'backend: "python" max_batch_size: 8 ' + _TENSORS
CONFIGS = {
    "plain": _PYTHON,
    "net": _PYTHON + _DELAYED,
    "tight": _PYTHON + _TIGHT,
    "calls": _PYTHON,
    "both": "max_batch_size: 8 " + _TENSORS + _STEPS,
}


@dataclass(frozen=True, slots=True)
class Watched:
    """A Triton with these models, and who looks at it; every look is 15 s after the last."""

    triton: BareTriton
    replica: Replica

    def call(self, model: str, *rows: int, seconds: float = 0.0) -> list[int]:
        """Calls at the same time, each with so many rows; gives their statuses."""

        def one(count: int) -> int:
            tensor = {"name": "x", "datatype": "FP32", "shape": [count, 1]}
            body = json.dumps({"inputs": [{**tensor, "data": [seconds] * count}]}).encode()
            url = f"http://{self.triton.http}/v2/models/{model}/infer"
            with suppress(HTTPError), urllib.request.urlopen(url, body, timeout=30) as answer:
                return int(answer.status)
            return 0

        with ThreadPoolExecutor(len(rows)) as pool:
            return list(pool.map(one, rows))

    def between(self, act: Any) -> BatchingObserver:
        """An observer that looked before and after something was done."""

        async def run() -> BatchingObserver:
            clock, tritons = Clock(), TritonReader()
            fleet = Fleet((self.replica,), clock=clock)
            fleet.saw("a", {})
            observer = BatchingObserver(fleet, tritons, clock=clock)
            await observer.observe()
            await asyncio.to_thread(act)
            clock.now += 15
            await observer.observe()
            return observer

        return asyncio.run(run())

    def configuration(self, name: str) -> Configuration:
        return asyncio.run(TritonReader().configuration(self.replica, name))


@pytest.fixture(scope="module")
def watched(bare_triton_factory: BareTritonFactory) -> Iterator[Watched]:
    """One for all tests here."""
    (metrics,) = free_ports(1)
    triton = bare_triton_factory("--allow-metrics=true", f"--metrics-port={metrics}")
    codes = {"calls": _CALLS}  # the ensemble has none that counts
    hold(triton, [Model(name, codes.get(name, _COPY), text) for name, text in CONFIGS.items()])
    http, grpc = (int(address.rpartition(":")[2]) for address in (triton.http, triton.grpc))
    yield Watched(triton, Replica("a", "127.0.0.1", http, grpc, metrics))


def test_batches_of_several_sizes_are_told_as_triton_counts_them(watched: Watched) -> None:
    def act() -> None:
        for _ in range(3):
            assert watched.call("net", 1, 1, 1) == [200] * 3  # are a preferred batch together
        assert watched.call("net", 8) == [200]
        assert watched.call("net", 4) == [200]

    window = watched.between(act).window("net", 1)
    counted = window.counted
    assert {size: one.count for size, one in counted.sizes.items()} == {3: 3, 4: 1, 8: 1}
    assert (counted.calls, counted.executions, counted.rows) == (11, 5, 21)
    assert (window.rows_per_execution, window.rows_per_call) == (21 / 5, 21 / 11)
    ns = {size: one.ns for size, one in counted.sizes.items()}
    assert counted.compute == 3 * ns[3] + ns[4] + ns[8]  # each call counts its whole batch's time
    assert 0 < counted.queue < counted.whole
    assert [point.rows for point in points(window)] == [3, 4, 8]
    assert window.queue > 0


def test_calls_that_a_full_queue_refuses_are_counted_nowhere_in_triton(watched: Watched) -> None:
    statuses: list[int] = []

    def act() -> None:
        statuses.extend(watched.call("tight", *[1] * 6, seconds=0.3))

    counted = watched.between(act).window("tight", 1).counted
    refused = statuses.count(0)
    assert refused
    assert (counted.calls, counted.failures) == (6 - refused, 0)


def test_the_steps_of_an_ensemble_are_told_from_their_own_counters(watched: Watched) -> None:
    def act() -> None:
        assert watched.call("both", 8) == watched.call("both", 4) == [200]
        assert watched.call("plain", 1) == [200]  # which is nobody's step

    observer = watched.between(act)
    whole = observer.window("both", 1)
    assert whole.counted.calls == 2
    found = parts_of(
        parse(CONFIGS["both"]),
        whole,
        lambda name, _: CalledModel(name, 1, f"{name}@1", parse(CONFIGS[name])),
        observer.window,
    )
    assert found is not None
    assert [(one.asked, one.calls, one.others) for one in found.steps] == [
        ("plain@1", 3, 1),
        ("net@1", 2, 0),
    ]
    assert all(one.share is not None and 0 < one.share < 1 for one in found.steps)
    assert whole.whole > found.steps[1].queue


def test_what_a_model_calls_in_its_own_code_is_within_its_computing_time(watched: Watched) -> None:
    observer = watched.between(lambda: watched.call("calls", 1, seconds=0.05))
    caller, called = observer.window("calls", 1), observer.window("plain", 1)
    assert (caller.counted.calls, called.counted.calls) == (1, 1)
    assert caller.compute > called.whole


def test_triton_tells_how_many_instances_it_made(watched: Watched) -> None:
    batched = batched_of(watched.configuration("net"))
    assert batched.setup.instances == 1
    assert (batched.setup.preferred, batched.setup.delay) == ((3,), 0.2)
    # Triton 2.51 names the largest size by itself, where nobody has named any.
    tight = watched.configuration("tight")
    assert list(tight.message.dynamic_batching.preferred_batch_size) == [8]
    assert (batched_of(tight).setup.preferred, batched_of(tight).queue_limit) == ((), 1)
