"""A message of a stream whose model's pool has been scaled to zero: see `proxy/waking.py`.

It waits, and all that follows it in its stream waits behind it, in the stream's window.
"""

from typing import Protocol

from serve.core.calls import Call
from serve.core.errors import ServegateError
from serve.listeners.grpc.branch import Share
from serve.listeners.grpc.desk import Desk
from serve.proxy.attempts import Attempt


class Sleeper(Protocol):
    """The client's stream, as a message of it that waits knows it."""

    desk: Desk

    def on_awake(self, sleep: "Sleep", attempt: Attempt) -> None:
        """There is a replica for the message."""

    def on_asleep(self, sleep: "Sleep", error: ServegateError) -> None:
        """There will be none; that is counted."""

    def on_fault(self, error: Exception) -> None:
        """Our own code has failed for the message: the stream ends."""


class Sleep:
    """One message: what has come of it, and whether that is all."""

    __slots__ = ("_attempt", "_stream", "body", "is_last", "share")

    def __init__(
        self, stream: Sleeper, call: Call, share: Share, body: bytes, is_last: bool
    ) -> None:
        self.share = share
        self.body = body
        self.is_last = is_last
        self._stream = stream
        self._attempt = stream.desk.gateway.wait(call, self)

    def __repr__(self) -> str:
        return f"<Sleep {self._attempt!r}>"

    def on_awake(self, attempt: Attempt) -> None:
        """See `Waiter`."""
        self._stream.on_awake(self, attempt)

    def on_asleep(self, error: ServegateError) -> None:
        """See `Waiter`."""
        self._stream.on_asleep(self, error)

    def on_fault(self, error: Exception) -> None:
        """See `Waiter`."""
        self._stream.on_fault(error)

    def end(self, error: ServegateError | None) -> None:
        """The stream has ended; without an error, because the client has gone."""
        if error is None:
            self._attempt.left()
        else:
            self._attempt.failed(error)
