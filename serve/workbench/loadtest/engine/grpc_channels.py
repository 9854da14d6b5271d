"""Channels of grpcio to one target, under gevent: how they are opened, and how they end.

grpcio waits for its completion queues in C. With `init_gevent` it does so in threads of gevent's
pool: a call that blocks takes one for itself, a stream none but the one of its channel (measured:
10 threads, as gevent has, hold up all calls behind 10 slow ones). Using a stream may switch
greenlets, which the hub must not.

A channel has its connection for itself, no proxy, no limit on sizes, and repeats nothing by itself.
A server that was away is tried again within a second; grpcio would take up to two minutes.
Processes must not fork once a channel is open: its threads are not there on the other side.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import gevent
import grpc
from grpc.experimental.gevent import init_gevent

from serve.trust import channel_credentials
from serve.workbench.loadtest.plan import Lane

_CALLS_EACH = 250  # calls in flight on one channel before there are more than the usual
_USUAL, _MOST = 4, 16  # channels of a lane: one thread waits for each
_OPTIONS = (
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
)


class ChannelUse:
    """One channel, its method `call`, and how many calls or streams are on it.

    It is closed when the last of them is over, never with calls on it: Triton 2.51 may crash when
    a client leaves its calls (server issues 7368, 8034).
    """

    __slots__ = ("_channel", "_is_closing", "_users", "call")

    def __init__(self, channel: grpc.Channel, call: Any) -> None:
        self.call = call
        self._channel = channel
        self._users = 0
        self._is_closing = False

    def __repr__(self) -> str:
        return f"<ChannelUse with {self._users} calls{', closing' * self._is_closing}>"

    def enter(self) -> None:
        """One call or stream more."""
        self._users += 1

    def leave(self) -> None:
        """One is over."""
        self._users -= 1
        if self._is_closing:
            self.close()

    def close(self) -> None:
        """Close the channel as soon as nobody uses it, in a greenlet: it may switch."""
        self._is_closing = True
        if not self._users:
            gevent.spawn(self._channel.close)


def lines(lane: Lane, most: int, method: Callable[[grpc.Channel], Any]) -> list[ChannelUse]:
    """Channels for so many calls at once, each with its `method`; they connect when first used."""
    _prepare()
    count = max(min(_USUAL, most), min(_MOST, -(-most // _CALLS_EACH)))
    channels = [_opened(lane) for _ in range(count)]
    return [ChannelUse(channel, method(channel)) for channel in channels]


@functools.cache
def _prepare() -> None:
    """Once for a process."""
    init_gevent()


def _opened(lane: Lane) -> grpc.Channel:
    if not lane.tls:
        return grpc.insecure_channel(lane.address, _OPTIONS)
    return grpc.secure_channel(lane.address, channel_credentials(), _OPTIONS)
