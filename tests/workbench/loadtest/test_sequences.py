"""Ids of sequences in bodies."""

import json

import numpy as np
import pytest
from tritonclient.grpc import service_pb2 as pb

from serve.core.errors import Invalid
from serve.wire import protobuf
from serve.wire.sequences import sequence_of
from serve.workbench.loadtest.bodies import payload_of
from serve.workbench.loadtest.plan import LaneProtocol, Payload
from serve.workbench.loadtest.sequences import IDS, MARKER_ID, sequence_body, sequence_marker

WITH_IDS = [each for each in LaneProtocol if each is not LaneProtocol.TFSERVING]
NUMBERS = (0, 1, 2**40, IDS - 1)


def payload(protocol: LaneProtocol) -> Payload:
    return payload_of(protocol, "m", "", {"x": np.zeros((1, 2), np.float32)}, {}, sequences=True)


def read(protocol: LaneProtocol, made: Payload, body: bytes) -> str:
    """The id as the gateway reads it."""
    if protocol in (LaneProtocol.GRPC, LaneProtocol.GRPC_STREAM):
        return protobuf.peek(body, infer=True).sequence
    length = dict(made.headers).get("Inference-Header-Content-Length", len(body))
    return sequence_of(body[: int(length)])


@pytest.mark.parametrize("protocol", WITH_IDS)
def test_every_id_is_as_long_as_the_marker(protocol: LaneProtocol) -> None:
    made, marker = payload(protocol), sequence_marker(protocol)
    for body in (made.body, made.first, made.last, made.only):
        assert body.count(marker) == 1
        filled = [sequence_body(body, marker, protocol, number) for number in NUMBERS]
        assert {len(each) for each in filled} == {len(made.body)}
        ids = [read(protocol, made, each) for each in filled]
        assert ids == [f"n{10**15 + number}" for number in NUMBERS]


@pytest.mark.parametrize("protocol", WITH_IDS)
def test_numbers_begin_again_before_they_reach_the_marker(protocol: LaneProtocol) -> None:
    made, marker = payload(protocol), sequence_marker(protocol)
    last, again = (sequence_body(made.body, marker, protocol, IDS + more) for more in (-1, 0))
    assert read(protocol, made, last) == f"n{MARKER_ID - 1}"
    assert again == sequence_body(made.body, marker, protocol, 0)


@pytest.mark.parametrize("name", ["body", "first", "last", "only"])
def test_flags_say_where_in_its_sequence_a_call_is(name: str) -> None:
    flags = (name in ("first", "only"), name in ("last", "only"))
    for protocol in (LaneProtocol.HTTP_JSON, LaneProtocol.HTTP_BINARY):
        made = payload(protocol)
        length = int(dict(made.headers).get("Inference-Header-Content-Length", len(made.body)))
        said = json.loads(getattr(made, name)[:length])["parameters"]
        assert (said["sequence_start"], said["sequence_end"]) == flags
    message = pb.ModelInferRequest.FromString(getattr(payload(LaneProtocol.GRPC), name))
    said = message.parameters
    assert (said["sequence_start"].bool_param, said["sequence_end"].bool_param) == flags


def test_tensorflow_serving_has_no_sequences() -> None:
    with pytest.raises(Invalid, match="does not support sequences"):
        payload(LaneProtocol.TFSERVING)
    with pytest.raises(Invalid, match="http-binary"):
        sequence_marker(LaneProtocol.TFSERVING)
