"""The gRPC transport: one unary call to one Triton, as bytes, over one channel per replica.

Messages are neither parsed nor built; the version is set by appending its field. The library's own
retries are off: what may be repeated is decided in `proxy/attempts.py` alone.
"""

from collections.abc import Callable

import grpc
import grpc.aio

from serve.core.calls import Call, Choice, Headers, Reply
from serve.core.errors import DeadlineExceeded, NotSent, OutcomeUnknown
from serve.core.replicas import Replica
from serve.wire import kserve_grpc, protobuf, status

_OPTIONS = (
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.enable_retries", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.use_local_subchannel_pool", 1),
)
# What the library says when the connection broke; Triton itself writes none of these.
_BROKEN = (
    "Socket closed",
    "recvmsg:",
    "sendmsg:",
    "Connection reset",
    "Broken pipe",
    "GOAWAY",
    "Stream removed",
    "RST_STREAM",
    "keepalive",
    "Endpoint read failed",
    "Cancelling all calls",
)
# What it says when a call was never put on a connection.
_NEVER_SENT = ("failed to connect to all addresses", "Failed to pick subchannel", "DNS resolution")


class GrpcTransport:
    """Implements `core.calls.Transport` with grpc.aio. An async context manager."""

    def __init__(self, *, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._channels: dict[str, grpc.aio.Channel] = {}

    async def __aenter__(self) -> "GrpcTransport":
        """Nothing to open: channels open with their first call."""
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Close every channel."""
        for channel in self._channels.values():
            await channel.close()
        self._channels.clear()

    async def send(self, call: Call, choice: Choice | None, replica: Replica) -> Reply:
        """See `core.calls.Transport`; `status` of the reply is a gRPC status code number."""
        remaining = None if call.deadline is None else call.deadline - self._clock()
        if remaining is not None and remaining <= 0:
            raise DeadlineExceeded
        method = self._channel(replica).unary_unary(kserve_grpc.method_of(call.verb))
        pending = method(_message(call, choice), timeout=remaining, metadata=_to_grpc(call.headers))
        try:
            body = await pending
        except grpc.aio.AioRpcError as error:
            return _failure(error, replica)
        return Reply(status.OK, body, _from_grpc(await pending.trailing_metadata()))

    def _channel(self, replica: Replica) -> grpc.aio.Channel:
        target = replica.grpc_target
        channel = self._channels.get(target)
        if channel is None:
            channel = grpc.aio.insecure_channel(target, options=_OPTIONS)
            self._channels[target] = channel
        return channel


def _message(call: Call, choice: Choice | None) -> bytes:
    """The message with physical name and version set where they differ from what it says."""
    if choice is None:
        return call.body
    message, target = call.body, choice.target
    if target.physical_name != call.model:
        message = protobuf.set_field(message, 1, target.physical_name)
    if choice.pinned and call.selector != str(target.physical_version):
        message = protobuf.set_field(message, 2, str(target.physical_version))
    return message


def _failure(error: grpc.aio.AioRpcError, replica: Replica) -> Reply:
    code, details = error.code(), error.details() or ""
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        raise DeadlineExceeded from error
    if code is grpc.StatusCode.UNAVAILABLE and details.startswith(_NEVER_SENT):
        raise NotSent(f"replica {replica.name} cannot be reached", why=details) from error
    if code is grpc.StatusCode.UNAVAILABLE and any(word in details for word in _BROKEN):
        raise OutcomeUnknown(
            f"the connection to replica {replica.name} broke during the call",
            why=details,
            try_this="the call again only if it may be executed twice",
        ) from error
    return Reply(code.value[0], b"", _from_grpc(error.trailing_metadata()), details)


def _to_grpc(headers: Headers) -> tuple[tuple[str, str | bytes], ...]:
    return tuple(
        (key.decode(), value if key.endswith(b"-bin") else value.decode("latin-1"))
        for key, value in headers
    )


def _from_grpc(metadata: grpc.aio.Metadata | None) -> Headers:
    return kserve_grpc.end_to_end(
        tuple(
            (key.encode(), value if isinstance(value, bytes) else value.encode("latin-1"))
            for key, value in metadata or ()
        )
    )
