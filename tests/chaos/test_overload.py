"""Three times the capacity for a minute, from clients that wait and from clients that give up.

Four instances of a model that sleeps for 100 ms answer 40 calls a second. Whatever comes, they have
to go on doing so for callers that still wait; the others are refused at once.
"""

import asyncio
import json
import statistics
import time
from collections import Counter
from dataclasses import dataclass, field

import harness
import numpy as np
import pytest
import repositories
import tritonclient.grpc.aio
import tritonclient.http.aio
from tritonclient.utils import InferenceServerException

pytestmark = [pytest.mark.triton, pytest.mark.chaos]

CAPACITY = 40.0  # calls per second
NORMAL, OVERLOAD = 0.6 * CAPACITY, 3 * CAPACITY
SECONDS = 60.0  # of overload


@dataclass
class Outcome:
    """What became of the calls of one phase: answered, refused, late, or the name of a failure."""

    counts: Counter = field(default_factory=Counter)
    waits: list = field(default_factory=list)  # seconds of those that were answered


REFUSED = ("429", "StatusCode.RESOURCE_EXHAUSTED")


class Client:
    """Calls that wait only so long: over gRPC by a deadline, over HTTP until they disconnect."""

    def __init__(self, module, url):
        self._has_deadlines = module is tritonclient.grpc.aio
        more = {} if self._has_deadlines else {"conn_limit": 10_000}
        self._client = module.InferenceServerClient(url, **more)
        tensor = module.InferInput("x", [1], "FP32")
        tensor.set_data_from_numpy(np.zeros(1, np.float32))
        self._inputs = [tensor]

    async def call(self, patience):
        deadline = {"client_timeout": patience} if self._has_deadlines else {}
        try:
            async with asyncio.timeout(None if self._has_deadlines else patience):
                await self._client.infer("slow", self._inputs, **deadline)
        except TimeoutError:
            return "late"
        except InferenceServerException as error:
            if error.status() == "StatusCode.DEADLINE_EXCEEDED":
                return "late"
            is_refused = error.status() in REFUSED
            return "refused" if is_refused else f"{error.status()}: {error.message()}"
        return "answered"

    async def close(self):
        await self._client.close()


async def load(clients, rate, seconds, patience):
    """So many calls per second, whether or not earlier ones have ended; what became of them.

    Only what ends within the time is counted as answered.
    """
    outcome, calls = Outcome(), set()
    begun = time.monotonic()

    async def one(client):
        at = time.monotonic()
        told = await client.call(patience)
        now = time.monotonic()
        if told == "answered" and now > begun + seconds:
            told = "answered afterwards"
        outcome.counts[told] += 1
        if told == "answered":
            outcome.waits.append(now - at)

    for number in range(int(rate * seconds)):
        await asyncio.sleep(max(0.0, begun + number / rate - time.monotonic()))
        calls.add(asyncio.create_task(one(clients[number % len(clients)])))
    await asyncio.gather(*calls)
    return outcome


async def phases(up, kinds, patience):
    """Normal load, overload, five seconds of rest, normal load; and the memory meanwhile."""
    made = {"http": (tritonclient.http.aio, up.http), "grpc": (tritonclient.grpc.aio, up.grpc)}
    clients = [Client(*made[kind]) for kind in kinds]
    await load(clients, NORMAL, 5.0, patience)
    overload = asyncio.create_task(load(clients, OVERLOAD, SECONDS, patience))
    await asyncio.sleep(10.0)
    before = up.worker_memory()
    await asyncio.sleep(SECONDS - 10.0)
    after = up.worker_memory()
    ended = time.monotonic()
    outcome = await overload
    await asyncio.sleep(max(0.0, ended + 5.0 - time.monotonic()))
    normal = await load(clients, NORMAL, 10.0, patience)
    for client in clients:
        await client.close()
    return outcome, normal, after / before


@pytest.mark.parametrize("patience", [1.0, 30.0], ids=["giving-up", "patient"])
@pytest.mark.parametrize("kinds", [("http",), ("grpc",), ("http", "grpc")], ids="+".join)
def test_three_times_the_capacity_leaves_the_capacity_to_callers_that_wait(
    tmp_path, kinds, patience, record_property
):
    models, log = tmp_path / "models", tmp_path / "calls.log"
    repositories.python_model(models, "slow", repositories.sleeping(0.1), instances=4)
    flags = ("--model-repo", str(models), "--replicas", "1", "--workers", "2")
    with harness.up(tmp_path / "state", *flags, "--access-log", str(log)) as up:
        before = up.children()
        overload, normal, growth = asyncio.run(phases(up, kinds, patience))
        assert up.children() == before, "a process has died"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    refusals = [1000 * one["seconds"] for one in lines if one.get("error") == "overloaded"]
    told = {
        "overload": dict(overload.counts),
        "normal": dict(normal.counts),
        "goodput": round(overload.counts["answered"] / (CAPACITY * SECONDS), 3),
        "waited_p50_s": round(statistics.median(overload.waits), 3),
        "refusal_p99_ms": round(statistics.quantiles(refusals, n=100)[-1], 3),
        "memory": round(growth, 3),
    }
    for name, value in told.items():
        record_property(name, value)
    print(told)
    assert set(overload.counts) <= {"answered", "answered afterwards", "refused", "late"}, told
    assert overload.counts["answered"] >= 0.9 * CAPACITY * SECONDS, told
    assert set(normal.counts) <= {"answered", "answered afterwards"}, told
    assert growth <= 1.1, told
