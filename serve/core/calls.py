"""Call and reply: one request to a model and its answer, opaque bytes in the middle.

A listener builds a `Call`, the gateway turns it into an `Attempt` on one replica, a `Transport`
carries the bytes there and back, the listener writes the `Reply`. HTTP and gRPC differ only at the
two rims: the listener and the transport of the same protocol.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from serve.core.replicas import Replica
from serve.core.snapshot import Target

Headers = tuple[tuple[bytes, bytes], ...]


class Verb(StrEnum):
    """What a call wants of a model, or of the server when it names none."""

    INFER = "infer"
    READY = "ready"
    METADATA = "metadata"
    CONFIG = "config"
    STATS = "stats"
    SERVER_METADATA = "server_metadata"


@dataclass(frozen=True, slots=True)
class Call:
    """One request. `selector` is empty, a number, or a label; `deadline` is monotonic seconds.

    `headers` are HTTP headers (lower-case names) or gRPC metadata, end-to-end ones only; `sequence`
    is the correlation id of a stateful sequence, empty for ordinary calls.
    """

    protocol: str
    verb: Verb
    model: str
    selector: str
    body: bytes
    headers: Headers = ()
    deadline: float | None = None
    sequence: str = ""


@dataclass(frozen=True, slots=True)
class Reply:
    """A complete answer, as it came: `status` is an HTTP status or a gRPC status code number.

    `message` is the gRPC status message; `headers` are HTTP headers or trailing metadata.
    """

    status: int
    body: bytes
    headers: Headers = ()
    message: str = ""


@dataclass(frozen=True, slots=True)
class Choice:
    """Which version answers a call, and why.

    `pinned` says whether the version is named to Triton. It is not for questions about the model as
    a whole (its metadata, say), where Triton's answer without a version is the right one.
    """

    target: Target
    by: str
    pinned: bool

    def reason(self, generation: int) -> str:
        """The `servegate-version` header, for people and scripts: `2; by=split; generation=7`."""
        return f"{self.target.version}; by={self.by}; generation={generation}"


class Transport(Protocol):
    """Carries one call to one replica.

    Raises `NotSent` when provably not a byte was written, `OutcomeUnknown` when some were and no
    complete answer came back, `DeadlineExceeded` when the call's deadline passed first.
    """

    async def send(self, call: Call, choice: Choice | None, replica: Replica) -> Reply:
        """The complete answer of this replica; any status is an answer."""
        ...
