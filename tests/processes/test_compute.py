"""A child process that computes: results, errors, its death, and callers that leave."""

import asyncio
import os
import re
import signal

import pytest

from serve.core.errors import BadRequest, ServegateError
from serve.processes.compute import ComputeProcess, Pieces, joined
from serve.tensors.tfserving_infer import infer_body, written
from serve.tensors.tfserving_json import document_of, large_inputs
from serve.tensors.tfserving_numbers import weigh
from serve.tensors.tfserving_tensors import Port, RawTensor, ServingSignature

LONG = re.compile(r"(a|aa)+$")  # takes exponential time


@pytest.fixture
async def compute():
    made = ComputeProcess()
    yield made
    child = made._child
    made.close()
    if child is not None:
        await child.wait()


def pid(compute: ComputeProcess) -> int:
    return int(re.search(r"pid=(\d+)", repr(compute))[1])


async def test_large_arguments_and_results_arrive_whole(compute: ComputeProcess) -> None:
    body = b'{"instances": [' + b",".join([b"[1.5]"] * 300_000) + b"]}"
    weighed = await compute.run(weigh, Pieces([body[:70_000], body[70_000:]]), True)
    assert weighed == weigh(body)
    signature = ServingSignature((Port("x", "FP32", (-1, 1)),), (), True)
    inputs, is_row = await compute.run(large_inputs, body, weighed, signature)
    assert is_row and inputs["x"] == RawTensor("FP32", (300_000, 1), b"\0\0\xc0\x3f" * 300_000)
    answer = infer_body(inputs)
    assert answer.tensors == (inputs["x"].raw,)
    assert await joined([body, body]) == body + body


async def test_errors_are_raised_as_they_are(compute: ComputeProcess) -> None:
    with pytest.raises(BadRequest, match="JSON Parse error") as caught:
        await compute.run(document_of, b"[" * 70_000)
    assert caught.value.code == "bad_request"
    with pytest.raises(ServegateError, match="cannot be read") as caught:
        await compute.run(written, len, b"{}", None)
    assert caught.value.why == "KeyError('outputs')"
    assert await compute.run(document_of, b"{}") == {}


async def test_a_child_that_is_killed_fails_its_call_only(compute: ComputeProcess) -> None:
    assert await compute.run(len, b"abc") == 3
    first = pid(compute)
    computing = asyncio.ensure_future(compute.run(LONG.match, "a" * 60 + "b"))
    await asyncio.sleep(0)
    os.kill(first, signal.SIGKILL)
    with pytest.raises(ServegateError, match="could not be converted"):
        await computing
    assert await compute.run(len, b"abc") == 3
    assert pid(compute) != first


async def test_what_a_cancelled_caller_wanted_is_computed_no_further(
    compute: ComputeProcess,
) -> None:
    assert await compute.run(len, b"abc") == 3
    computing = asyncio.ensure_future(compute.run(LONG.match, "a" * 60 + "b"))
    waiting = asyncio.ensure_future(compute.run(len, b"abcd"))
    await asyncio.sleep(0)
    computing.cancel()
    assert await waiting == 4
    with pytest.raises(asyncio.CancelledError):
        await computing
