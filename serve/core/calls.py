"""Call and reply: one request to a model and its answer, opaque bytes in the middle.

A listener builds a `Call` from a head, the gateway turns it into an attempt on one replica, the
listener moves the bytes there and back over connections of the same protocol. HTTP and gRPC differ
at that rim only.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from serve.core.snapshot import ComparedOutputs, VersionTarget

Headers = tuple[tuple[bytes, bytes], ...]


class Verb(StrEnum):
    """What a call wants of a model, or of the server when it names none."""

    INFER = "infer"
    STREAM = "stream_infer"
    GENERATE = "generate"
    GENERATE_STREAM = "generate_stream"
    READY = "ready"
    METADATA = "metadata"
    CONFIG = "config"
    STATS = "stats"
    SERVER_METADATA = "server_metadata"
    INDEX = "index"
    MANAGEMENT = "management"


PREDICTIONS = frozenset({Verb.INFER, Verb.GENERATE, Verb.GENERATE_STREAM})


@dataclass(frozen=True, slots=True)
class Account:
    """What a listener knows of a call beyond its route, for the access log.

    `request_id` and `traceparent` as the caller gave them (or as they were made up), `peer` is the
    caller's address, `received` and `answered` are bytes of bodies, `upstream` is seconds from the
    last byte of the request sent to the replica to the first byte of its answer.
    """

    request_id: str = ""
    traceparent: str = ""
    peer: str = ""
    received: int = 0
    answered: int = 0
    upstream: float = 0.0


class CallOrigin(Protocol):
    """Where a call came from: the object that holds its bytes. Asked to log or match a call."""

    def account(self) -> Account:
        """What is known at this moment."""

    def header(self, name: bytes) -> bytes:
        """A header or metadata by its name in lower case; several are joined by commas."""


@dataclass(slots=True)
class Call:
    """One request, without its body. Made once per call; only `deadline` changes afterwards.

    `selector` is empty, a number, or a label; `deadline` is monotonic seconds, which the gateway
    shortens if the model's route allows less; `sequence` is the correlation id of a stateful
    sequence, empty for ordinary calls; `prefer` names the replica that the stream which this call
    is a message of already uses; `credential` is the caller's Authorization value. (Not frozen:
    that triples the cost.)
    """

    protocol: str
    verb: Verb
    model: str
    selector: str
    deadline: float
    sequence: str = ""
    prefer: str = ""
    credential: bytes = b""
    origin: CallOrigin | None = None


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
class MirrorTarget:
    """Where copies of calls go, and of which share of them, above 0 and at most 1.

    `compared` says how the responses are compared, and `keeps` whether the inputs of some calls to
    which the two respond differently are kept.
    """

    target: VersionTarget
    share: float
    compared: ComparedOutputs
    keeps: bool = False


@dataclass(frozen=True, slots=True)
class Choice:
    """Which version answers a call, and why. Made once per generation, and met by many calls.

    `pinned` says whether the version is named to Triton. It is not for questions about the model as
    a whole (its metadata, say), where Triton's answer without a version is the right one.
    `stateful` says that the model serves sequences: its state lives on one replica. `idempotent`
    says that a call may be executed twice. `mirror` is where copies of such calls go.
    """

    target: VersionTarget
    by: str
    pinned: bool
    stateful: bool = False
    generation: int = 0
    idempotent: bool = False
    mirror: MirrorTarget | None = None
    reason: str = field(init=False, compare=False)
    """For people and scripts, the `servegate-version` header: `2; by=split; generation=7`."""
    labels: tuple[str, str, str] = field(init=False, compare=False)
    """Model, version and route, as metrics name them."""
    is_renamed: bool = field(init=False, compare=False)
    """Whether Triton knows the version by another name or number than callers do."""

    def __post_init__(self) -> None:
        """Write down once what every call says and counts."""
        version = str(self.target.version)
        reason = f"{version}; by={self.by}; generation={self.generation}"
        object.__setattr__(self, "reason", reason)
        object.__setattr__(self, "labels", (self.target.model, version, self.by))
        target = self.target
        same = (target.physical_name, target.physical_version) == (target.model, target.version)
        object.__setattr__(self, "is_renamed", not same)
