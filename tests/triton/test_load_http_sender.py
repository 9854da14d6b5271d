"""The sender of HTTP load tests against a real Triton, and against the gateway in front of it."""

from __future__ import annotations

import time
from contextlib import closing

import numpy as np
import pytest
from gevent.event import Event

from serve.workbench.loadtest.bodies import path_of, payload_of
from serve.workbench.loadtest.engine.http import http_sender
from serve.workbench.loadtest.plan import Lane, LaneProtocol
from serve.workbench.loadtest.record import RIGHT, WRONG

from .conftest import Beside

pytestmark = [pytest.mark.triton, pytest.mark.slow]

CALLS = 200
AT_ONCE = 8
SCORES = np.array([0.25, 0.5, 0.125], np.float32)  # the model gives them back: class 1


def told_of(
    address: str, protocol: LaneProtocol, model: str, expected: int
) -> list[tuple[str, str]]:
    """What is told of some hundred calls, several at once."""
    payload = payload_of(
        protocol, model, "", {"FP32": SCORES}, {}, expected=(expected,), output="out_FP32"
    )
    lane = Lane("test", protocol, address, path_of(protocol, model, ""), (payload,))
    told: list[tuple[str, str]] = []
    over = Event()

    def done(outcome: str, decision: str, _: float) -> None:
        told.append((outcome, decision))
        if len(told) >= CALLS:
            over.set()
        else:
            sender.send(payload, payload.body, done)

    with closing(http_sender(lane, most=AT_ONCE, timeout=10.0, clock=time.monotonic)) as sender:
        for _ in range(AT_ONCE):
            assert sender.send(payload, payload.body, done)
        assert over.wait(30.0), told
    return told[:CALLS]


@pytest.mark.parametrize("protocol", [LaneProtocol.HTTP_JSON, LaneProtocol.HTTP_BINARY])
def test_answers_of_triton_and_of_the_gateway_are_checked_and_tell_the_version(
    beside: Beside, protocol: LaneProtocol
) -> None:
    triton, gateway = beside.http
    assert told_of(triton, protocol, "mirror", 1) == [(RIGHT, "1")] * CALLS
    assert {outcome for outcome, _ in told_of(triton, protocol, "mirror", 2)} == {WRONG}
    told = told_of(gateway, protocol, "mirror", 1)
    assert {(outcome, said.partition(";")[0]) for outcome, said in told} == {(RIGHT, "1")}
    assert all("by=" in said for _, said in told)
    # refusals of both are told apart
    assert {one for one, _ in told_of(triton, protocol, "nope", 1)} == {"http_404"}
    assert {one for one, _ in told_of(gateway, protocol, "nope", 1)} == {"http_404:unknown_model"}
