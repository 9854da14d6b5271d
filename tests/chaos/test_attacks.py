"""Hostile clients, one kind after the other: what others call is answered, once and correctly."""

import asyncio
import sys
import time

import harness
import numpy as np
import pytest
import repositories
import tritonclient.grpc.aio
import tritonclient.http.aio
from chaos import attackers

pytestmark = [pytest.mark.triton, pytest.mark.chaos]

RATE = 40.0  # calls per second that no attacker makes, half of them over gRPC
SECONDS = 15.0  # of each attack
REST = 45  # seconds within which memory is returned; a process that computes ends after 30


class Innocents:
    """Callers over HTTP and gRPC on connections that they keep; each call has an id of its own."""

    def __init__(self, up):
        pairs = ((tritonclient.http.aio, up.http), (tritonclient.grpc.aio, up.grpc))
        self._clients = [(module, module.InferenceServerClient(url)) for module, url in pairs]
        self.wrong = []  # what was not answered correctly
        self.ids = []

    async def _one(self, number):
        module, client = self._clients[number % 2]
        name, x = f"call-{number}", float(number % 1000)
        self.ids.append(name)
        tensor = module.InferInput("x", [1], "FP32")
        tensor.set_data_from_numpy(np.array([x], np.float32))
        try:
            answer = await client.infer("counting", [tensor], request_id=name)
            assert answer.as_numpy("y").tolist() == [x + 1]
        except Exception as error:  # every kind of failure is one
            self.wrong.append(f"{name}: {error!r}")

    async def call(self):
        """Call for as long as an attack takes."""
        begun, calls = time.monotonic(), []
        for turn in range(int(RATE * SECONDS)):
            await asyncio.sleep(max(0.0, begun + turn / RATE - time.monotonic()))
            calls.append(asyncio.create_task(self._one(len(self.ids))))
            await asyncio.sleep(0)  # it takes its number
        await asyncio.gather(*calls)

    async def close(self):
        for _, client in self._clients:
            await client.close()


async def attacked(up):
    """Every attack in turn, beside innocent callers: the callers, and the memory of each attack."""
    callers, memory = Innocents(up), {}
    await callers.call()  # warm
    for attack in attackers.ATTACKS:
        before = up.worker_memory()
        attacker = await asyncio.create_subprocess_exec(
            sys.executable, attackers.__file__, attack.__name__, up.http, up.grpc, str(SECONDS)
        )
        await callers.call()
        assert await attacker.wait() == 0
        for _ in range(REST):
            if up.worker_memory() <= 1.1 * before:
                break
            await asyncio.sleep(1.0)
        memory[attack.__name__] = before, up.worker_memory()
    await callers.close()
    return callers, memory


def test_what_others_call_is_answered_once_while_hostile_clients_attack(tmp_path):
    models, log = tmp_path / "models", tmp_path / "executed"
    log.touch()
    repositories.python_model(models, "counting", repositories.COUNTING.format(log=str(log)))
    repositories.python_model(models, "slow", repositories.sleeping(0.1), instances=4)
    flags = ("--model-repo", str(models), "--replicas", "1", "--workers", "2")
    with harness.up(tmp_path / "state", *flags) as up:
        before = up.children()
        callers, memory = asyncio.run(attacked(up))
        assert up.children() == before, "a process has died"
    executed = [one for one in log.read_text().split() if one.startswith("call-")]
    assert not callers.wrong, callers.wrong[:10]
    assert sorted(executed) == sorted(callers.ids), "a call was executed twice, or never"
    for name, (first, last) in memory.items():
        assert last <= 1.1 * first, name
