"""Limits: how much one caller may ask of a worker. Sizes are in bytes, times in seconds.

Every number has a setting of the same meaning; the defaults live in `settings.py` alone.
"""

from dataclasses import dataclass

_MOVING = 5.0
SMALL = 256 << 10  # bytes; a body up to this size is sent when it is complete
FIRST = 64 << 10  # bytes of a larger one that have to have come before it is sent


@dataclass(frozen=True, slots=True)
class Limits:
    """What both listeners enforce; whoever exceeds a limit is told which one."""

    body: int  # one request body, or one gRPC message
    head: int  # one request head; in HTTP/2 the header list, counted as RFC 9113 6.5.2 does
    in_flight: int  # bodies that this worker holds at one moment, all calls together
    inflated: int  # what a compressed body may grow to
    call: float  # the longest time for one call
    head_time: float  # from the first byte of a head to its end
    body_idle: float  # without a byte of a body that is owed
    body_rate: float  # bytes per second of a body, over `body_idle`; see `body_window`
    idle: float  # a connection without a call
    chunks: int  # pieces of a chunked body
    incomplete: int  # calls of one key, or one address, whose bodies have not come whole
    connections: int  # client connections of this worker
    streams: int  # calls at one time on one HTTP/2 connection
    frame: int  # payload of one HTTP/2 frame
    continuations: int  # CONTINUATION frames after one HEADERS frame
    resets: int  # streams that a client resets within ten seconds on one connection
    pings: int  # PING, SETTINGS and other frames that want an answer, within ten seconds

    def body_window(self, *, holds_slot: bool) -> float:
        """Seconds over which a body has to keep its rate; short while its call holds a slot."""
        return min(_MOVING, self.body_idle) if holds_slot else self.body_idle

    @property
    def asleep(self) -> int:
        """Bytes of bodies beyond which no call begins to wait for its pool: others need room."""
        return self.in_flight // 2
