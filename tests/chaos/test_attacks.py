"""Hostile clients, one kind after the other: what others call is answered, once and correctly."""

import asyncio
import json
import statistics
import struct
import sys
import time
from collections import deque

import attackers
import grpc
import harness
import pytest
import repositories
from tritonclient.grpc import service_pb2

pytestmark = [pytest.mark.triton, pytest.mark.chaos]

RATE = 40.0  # calls per second that no attacker makes, half of them over gRPC
SECONDS = 15.0  # of each attack
REST = 45  # seconds within which memory is returned; a process that computes ends after 30
IDLE = 5.0  # seconds after which a connection is not used again


class Innocents:
    """Callers over HTTP and gRPC on connections that they keep; each call has an id of its own."""

    def __init__(self, up):
        self._http, self._grpc = up.http, grpc.aio.insecure_channel(up.grpc)
        self._infer = self._grpc.unary_unary(attackers.INFER)
        self._idle = deque()
        self._count = 0
        self.wrong = []  # what was not answered correctly
        self.ids = []
        self.waits = []  # seconds

    async def _over_http(self, name, x):
        while self._idle and self._idle[0][2] < time.monotonic() - IDLE:
            self._idle.popleft()[1].close()
        if self._idle:
            reader, writer, _ = self._idle.pop()
        else:
            host, port = self._http.split(":")
            reader, writer = await asyncio.open_connection(host, int(port))
        body = json.dumps({"id": name, "inputs": [_input(x)]}).encode()
        head = f"POST /v2/models/counting/infer HTTP/1.1\r\nHost: {self._http}\r\n"
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        answer = await reader.readexactly(length)
        self._idle.append((reader, writer, time.monotonic()))
        assert head.split()[1] == b"200", answer
        assert json.loads(answer)["outputs"][0]["data"] == [x + 1], answer

    async def _over_grpc(self, name, x):
        request = service_pb2.ModelInferRequest(model_name="counting", id=name)
        tensor = request.inputs.add(name="x", datatype="FP32", shape=[1])
        tensor.contents.fp32_contents.append(x)
        answer = service_pb2.ModelInferResponse.FromString(
            await self._infer(request.SerializeToString(), timeout=60.0)
        )
        assert answer.raw_output_contents[0] == struct.pack("<f", x + 1)

    async def _one(self, number):
        call = self._over_grpc if number % 2 else self._over_http
        name, begun = f"call-{number}", time.monotonic()
        self.ids.append(name)
        try:
            await call(name, float(number % 1000))
        except Exception as error:  # every kind of failure is one
            self.wrong.append(f"{name}: {error!r}")
        self.waits.append(time.monotonic() - begun)

    async def call(self, seconds):
        """Call for so long; 99 % of the calls took at most so many seconds."""
        self.waits.clear()
        begun, calls = time.monotonic(), []
        for turn in range(int(RATE * seconds)):
            await asyncio.sleep(max(0.0, begun + turn / RATE - time.monotonic()))
            self._count += 1
            calls.append(asyncio.create_task(self._one(self._count)))
        await asyncio.gather(*calls)
        return statistics.quantiles(self.waits, n=100)[-1]

    async def close(self):
        for _, writer, _ in self._idle:
            writer.close()
        await self._grpc.close()


def _input(x):
    return {"name": "x", "shape": [1], "datatype": "FP32", "data": [x]}


async def attacked(up, report):
    """Every attack in turn, beside innocent callers; the callers."""
    callers = Innocents(up)
    await callers.call(SECONDS)  # warm
    for attack in attackers.ATTACKS:
        undisturbed, before = await callers.call(SECONDS), up.worker_memory()
        attacker = await asyncio.create_subprocess_exec(
            sys.executable, attackers.__file__, attack.__name__, up.http, up.grpc, str(SECONDS)
        )
        disturbed = await callers.call(SECONDS)
        assert await attacker.wait() == 0
        for _ in range(REST):
            if up.worker_memory() <= 1.1 * before:
                break
            await asyncio.sleep(1.0)
        report[attack.__name__] = {
            "undisturbed_p99_ms": round(1000 * undisturbed, 1),
            "p99_ms": round(1000 * disturbed, 1),
            "memory_before": round(before),
            "memory_after": round(up.worker_memory()),
            "wrong": len(callers.wrong),
        }
        print(attack.__name__, report[attack.__name__], flush=True)
    await callers.close()
    return callers


def test_what_others_call_is_answered_once_while_hostile_clients_attack(tmp_path, record_property):
    models, log = tmp_path / "models", tmp_path / "executed"
    log.touch()
    repositories.python_model(models, "counting", repositories.COUNTING.format(log=str(log)))
    repositories.python_model(models, "slow", repositories.sleeping(0.1), instances=4)
    flags = ("--model-repo", str(models), "--replicas", "1", "--workers", "2")
    report = {}
    with harness.up(tmp_path / "state", *flags) as up:
        before = up.children()
        callers = asyncio.run(attacked(up, report))
        assert up.children() == before, "a process has died"
    for name, values in report.items():
        record_property(name, values)
    executed = [one for one in log.read_text().split() if one.startswith("call-")]
    assert not callers.wrong, callers.wrong[:10]
    assert sorted(executed) == sorted(callers.ids), "a call was executed twice, or never"
    for name, values in report.items():
        assert values["memory_after"] <= 1.1 * values["memory_before"], name
