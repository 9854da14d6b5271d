"""The test call of each lane before a run, so that failures are reported as errors of their own.

The call is the lane's own, byte for byte. A well-formed response with another class than expected
is only a note: a model may be wrong about a row.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Self

from serve.cli.callers import GrpcCaller, HttpCaller
from serve.core.errors import BadRequest, ServegateError
from serve.tensors.codec import HEAD_LENGTH_HEADER
from serve.wire.data_answers import grpc_error
from serve.workbench.loadtest.answer_checks import checker
from serve.workbench.loadtest.plan import Lane, LaneProtocol, Payload
from serve.workbench.loadtest.record import MALFORMED, WRONG
from serve.workbench.loadtest.sequences import sequence_body

_GRPC = (LaneProtocol.GRPC, LaneProtocol.GRPC_STREAM)
_NUMBER = 2**52  # of the sequence of the first call: no run counts so far


def check_lanes(lanes: Sequence[Lane], *, timeout: float) -> Iterator[str]:
    """Call each lane once, and yield what people should know. Raises what is answered instead."""
    for lane in lanes:
        payload = lane.payloads[0]
        body = payload.body
        if lane.sequences is not None:
            marker = lane.sequences.marker
            body = sequence_body(payload.only, marker, lane.protocol, _NUMBER)
        if lane.protocol in _GRPC:
            answer, length = _call_grpc(lane, body, timeout), None
        else:
            answer, length = _call_http(lane, payload, body, timeout)
        outcome = checker(lane)(payload, answer, length)
        if outcome == MALFORMED:
            raise ServegateError(
                f"the test call over {lane.name} returned a malformed response",
                why=f"it starts with {answer[:200]!r}",
                try_this="--url and --grpc-url of the data ports, or --no-check",
            )
        if outcome == WRONG:
            yield f"note: the test call over {lane.name} did not return the expected class"


def _call_http(
    lane: Lane, payload: Payload, body: bytes, timeout: float
) -> tuple[bytes, int | None]:
    """The whole answer, and how long its head is."""
    url = f"{'https' if lane.tls else 'http'}://{lane.address}"
    with _Http(url, timeout=timeout) as caller:
        return caller.post(lane.path, body, dict(lane.headers + payload.headers))


def _call_grpc(lane: Lane, body: bytes, timeout: float) -> bytes:
    target = f"https://{lane.address}" if lane.tls else lane.address
    with _Grpc(target, timeout=timeout) as caller:
        return caller.send(lane, body)


class _Http(HttpCaller):
    """Sends a body as it is."""

    def __enter__(self) -> Self:
        """See `HttpCaller`."""
        super().__enter__()
        return self

    def post(self, path: str, body: bytes, headers: dict[str, str]) -> tuple[bytes, int | None]:
        answer = self._send("POST", path, content=body, headers=headers)
        length = answer.headers.get(HEAD_LENGTH_HEADER)
        return answer.content, int(length) if length and length.isdigit() else None


class _Grpc(GrpcCaller):
    """Sends a message as it is, alone or as the only one of a stream."""

    def __enter__(self) -> Self:
        """See `GrpcCaller`."""
        super().__enter__()
        return self

    def send(self, lane: Lane, body: bytes) -> bytes:
        headers = tuple((name.lower(), value) for name, value in lane.headers)
        try:
            if lane.protocol is LaneProtocol.GRPC:
                whole: bytes = self._channel.unary_unary(lane.path)(body, self._timeout, headers)
                return whole
            stream: Any = self._channel.stream_stream(lane.path)
            for answer in stream(iter((body,)), self._timeout, headers):
                return _of_stream(bytes(answer))
        except self._error as error:
            raise grpc_error(error) from error
        raise ServegateError("the gRPC stream ended without a response", try_this="--protocol grpc")


def _of_stream(message: bytes) -> bytes:
    """The message of a stream; the error in it is raised."""
    from tritonclient.grpc import service_pb2

    read = service_pb2.ModelStreamInferResponse.FromString(message)
    if read.error_message:
        what, _, try_this = str(read.error_message).partition(". Try: ")
        raise BadRequest(what, try_this=try_this)
    return message
