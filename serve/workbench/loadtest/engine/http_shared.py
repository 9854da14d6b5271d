"""What the connections of one sender have in common, and the call that opens one."""

from __future__ import annotations

import ssl
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from serve.workbench.loadtest.engine.http_answers import HttpHeads
from serve.workbench.loadtest.engine.senders import Done
from serve.workbench.loadtest.plan import Payload

Address = tuple[int, Any]
"""A socket's family, and where it connects to."""


class HttpLoadCall(NamedTuple):
    """What is to be sent, who wants to know its end, and when it is over its time."""

    request: bytes
    payload: Payload
    done: Done
    deadline: float


class Connected(Protocol):
    """What a sender does with a connection. `deadline` is that of the call under way."""

    deadline: float

    @property
    def is_busy(self) -> bool:
        """Whether a call is under way."""
        ...

    def begin(self, request: bytes, payload: Payload, done: Done, deadline: float) -> bool:
        """Start the next call. False: the connection is broken, and nothing has left."""
        ...

    def expire(self, now: float) -> None:
        """The call is over its time."""
        ...

    def close(self) -> None:
        """Close at once; nobody is told. May be done twice."""
        ...


@dataclass(slots=True)
class Shared:
    """What all connections of a sender share. The last of `idle` is used next.

    `addresses`: where to connect, the first that worked first. `names_version`: whether the
    answer's own JSON may name the version.
    """

    loop: Any
    clock: Callable[[], float]
    addresses: tuple[Address, ...]
    check: Callable[[Payload, bytes, int | None], str]
    names_version: bool
    tls: ssl.SSLContext | None
    host: str
    heads: HttpHeads = field(default_factory=HttpHeads)
    idle: list[Connected] = field(default_factory=list)
    open: set[Connected] = field(default_factory=set)

    def prefer(self, left: int) -> None:
        """The address with so many behind it has worked: from now on it is the first."""
        place = len(self.addresses) - left - 1
        if place > 0:
            self.addresses = (
                self.addresses[place],
                *self.addresses[:place],
                *self.addresses[place + 1 :],
            )

    def tell(self, done: Done, outcome: str, decision: str, now: float) -> None:
        """A call has ended. gevent stops the watcher of a callback that raises, so none may."""
        try:
            done(outcome, decision, now)
        except Exception:  # the caller's own fault; gevent prints it
            self.loop.handle_error(self, *sys.exc_info())
