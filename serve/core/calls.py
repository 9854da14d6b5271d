"""Call and reply: one request to a model and its answer, opaque bytes in the middle.

A listener builds a `Call` from a head, the gateway turns it into an attempt on one replica, the
listener moves the bytes there and back over connections of the same protocol. HTTP and gRPC differ
at that rim only.
"""

from dataclasses import dataclass, field
from enum import StrEnum

from serve.core.snapshot import Target

Headers = tuple[tuple[bytes, bytes], ...]


class Verb(StrEnum):
    """What a call wants of a model, or of the server when it names none."""

    INFER = "infer"
    STREAM = "stream_infer"
    READY = "ready"
    METADATA = "metadata"
    CONFIG = "config"
    STATS = "stats"
    SERVER_METADATA = "server_metadata"


@dataclass(slots=True)
class Call:
    """One request, without its body. Made once per call and not changed afterwards.

    `selector` is empty, a number, or a label; `deadline` is monotonic seconds; `sequence` is the
    correlation id of a stateful sequence, empty for ordinary calls; `prefer` names the replica that
    the stream which this call is a message of already uses. (Not frozen: that triples the cost.)
    """

    protocol: str
    verb: Verb
    model: str
    selector: str
    deadline: float
    sequence: str = ""
    prefer: str = ""


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
    """Which version answers a call, and why. Made once per generation, and met by many calls.

    `pinned` says whether the version is named to Triton. It is not for questions about the model as
    a whole (its metadata, say), where Triton's answer without a version is the right one.
    `stateful` says that the model serves sequences: its state lives on one replica.
    """

    target: Target
    by: str
    pinned: bool
    stateful: bool = False
    generation: int = 0
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
