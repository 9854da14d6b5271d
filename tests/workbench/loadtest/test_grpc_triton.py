"""The gRPC senders against a real Triton, directly and through the gateway."""

from typing import Any

import numpy as np
import pytest

from serve.workbench.loadtest.bodies import payload_of
from serve.workbench.loadtest.plan import LaneProtocol, Payload

from .conftest import Beside
from .grpc_driving import STREAM, UNARY, drive

pytestmark = [pytest.mark.triton, pytest.mark.slow]


def payload(protocol: LaneProtocol, model: str, *values: float, **more: Any) -> Payload:
    return payload_of(protocol, model, "", {"x": np.array(values, np.float32)}, {}, **more)


@pytest.mark.parametrize("protocol", [UNARY, STREAM])
def test_triton_answers_directly_and_through_the_gateway(
    beside: Beside, protocol: LaneProtocol
) -> None:
    payloads = (payload(protocol, "shared", 0.5, 2.0, 1.0, expected=(1,), output="x", rows=1),)
    direct, fronted = beside.grpc
    assert set(drive(protocol, direct, 8, 50, payloads=payloads)) == {("", "1")}
    decision = "1; by=latest; generation=1" if protocol is UNARY else "1"
    assert set(drive(protocol, fronted, 8, payloads=payloads)) == {("", decision)}


def test_triton_says_that_it_has_no_such_model(beside: Beside) -> None:
    payloads = (payload(UNARY, "absent", 0.0),)
    direct, fronted = beside.grpc
    assert drive(UNARY, direct, 1, payloads=payloads) == [("grpc_NOT_FOUND", "")]
    assert drive(UNARY, fronted, 1, payloads=payloads) == [("grpc_NOT_FOUND:unknown_model", "")]
    payloads = (payload(STREAM, "absent", 0.0), payload(STREAM, "shared", 0.0))
    for address in beside.grpc:
        told = drive(STREAM, address, 1, 1, payloads=payloads)
        assert [outcome for outcome, _ in told] == ["stream_error", ""]
