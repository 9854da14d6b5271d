"""Status codes: which error is which answer, and which of Triton's answers are refusals.

The only place that knows numbers of HTTP and gRPC. The gateway's own errors have the shapes of
Triton's (a JSON object with the key `error`; a status message), so that no client needs a second
way to read them, and say in `servegate-error` that they are the gateway's.
"""

import json
import re
from dataclasses import dataclass

from serve.core.calls import PREDICTIONS, Headers, Reply, Verb
from serve.core.errors import (
    Asleep,
    BadRequest,
    BadVersion,
    BodyTooLarge,
    Conflict,
    DeadlineExceeded,
    ExpectationFailed,
    FixedSetting,
    Forbidden,
    HeadTooLarge,
    Invalid,
    LoadFailed,
    MethodNotAllowed,
    ModelControlOff,
    NoRoom,
    NoSpace,
    NotFound,
    NotHere,
    NotInRepository,
    NotServed,
    OutcomeUnknown,
    Overloaded,
    PreconditionFailed,
    ServegateError,
    TooManyIncomplete,
    TooSlow,
    TrialFailed,
    Unauthenticated,
    Unavailable,
    UnknownModel,
    UnknownVersion,
    Unparsable,
    WrongJson,
)
from serve.core.snapshot import VersionTarget

GRPC_NAMES = (
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
)
_HTTP_NAMES = {status: str(status) for status in range(100, 600)}
OK, UNKNOWN, INVALID_ARGUMENT, DEADLINE_EXCEEDED, NOT_FOUND = 0, 2, 3, 4, 5
RESOURCE_EXHAUSTED, FAILED_PRECONDITION, ABORTED = 8, 9, 10
UNIMPLEMENTED, INTERNAL, UNAVAILABLE = 12, 13, 14
PERMISSION_DENIED, UNAUTHENTICATED = 7, 16

# The most specific class comes first: the first row that matches decides.
_TABLE: tuple[tuple[type[ServegateError], int, int], ...] = (
    (BodyTooLarge, 413, RESOURCE_EXHAUSTED),
    (HeadTooLarge, 431, RESOURCE_EXHAUSTED),
    (TooSlow, 408, DEADLINE_EXCEEDED),
    (ExpectationFailed, 417, INVALID_ARGUMENT),
    (Unparsable, 400, INTERNAL),  # as Triton says it
    (WrongJson, 500, INTERNAL),  # so does this
    (BadRequest, 400, INVALID_ARGUMENT),
    (Invalid, 422, INVALID_ARGUMENT),
    (NotHere, 404, UNIMPLEMENTED),
    (NotFound, 404, NOT_FOUND),
    (MethodNotAllowed, 405, UNIMPLEMENTED),
    (NotServed, 403, UNIMPLEMENTED),
    (FixedSetting, 501, UNIMPLEMENTED),
    (ModelControlOff, 503, UNAVAILABLE),
    (LoadFailed, 400, INVALID_ARGUMENT),
    (TrialFailed, 422, INVALID_ARGUMENT),
    (NotInRepository, 500, INTERNAL),
    (Unauthenticated, 401, UNAUTHENTICATED),
    (Forbidden, 403, PERMISSION_DENIED),
    (PreconditionFailed, 412, FAILED_PRECONDITION),
    (Conflict, 409, ABORTED),
    (Overloaded, 429, RESOURCE_EXHAUSTED),
    (NoRoom, 429, RESOURCE_EXHAUSTED),
    (TooManyIncomplete, 429, RESOURCE_EXHAUSTED),
    (NoSpace, 507, RESOURCE_EXHAUSTED),
    (DeadlineExceeded, 504, DEADLINE_EXCEEDED),
    (OutcomeUnknown, 502, UNAVAILABLE),
    (Unavailable, 503, UNAVAILABLE),
    (ServegateError, 500, INTERNAL),
)


_PLAIN = frozenset({Verb.INFER, Verb.READY})
_EARLY = (NotFound, MethodNotAllowed, BadVersion)


def http_status(error: ServegateError) -> int:
    """The HTTP status of one of the gateway's own errors."""
    return next(status for kind, status, _ in _TABLE if isinstance(error, kind))


def grpc_code(error: ServegateError) -> int:
    """The gRPC status code number of one of the gateway's own errors."""
    return next(code for kind, _, code in _TABLE if isinstance(error, kind))


def http_error(error: ServegateError, verb: Verb = Verb.INFER) -> Reply:
    """The gateway's own error as an HTTP reply, with the media type that Triton uses for it.

    It calls an error that it finds before it has read a predict request plain text, and errors of
    generate and of questions JSON; all of them are JSON.
    """
    is_plain = isinstance(error, NotHere) or (verb in _PLAIN and isinstance(error, _EARLY))
    media = b"text/plain" if is_plain else b"application/json"
    headers: Headers = ((b"content-type", media), (b"servegate-error", error.code.encode()))
    if isinstance(error, Overloaded | NoRoom | TooManyIncomplete | Asleep):
        headers += ((b"retry-after", str(error.retry_after).encode()),)
    elif isinstance(error, Unavailable):
        headers += ((b"retry-after", b"1"),)
    elif isinstance(error, Unauthenticated):
        headers += ((b"www-authenticate", b'Bearer realm="servegate"'),)
    body = json.dumps({"error": str(error)}, ensure_ascii=False, separators=(",", ":"))
    return Reply(http_status(error), body.encode(errors="replace"), headers)


def grpc_error(error: ServegateError) -> Reply:
    """The gateway's own error as a gRPC reply: status code, message and trailing metadata."""
    headers: Headers = ((b"servegate-error", error.code.encode()),)
    return Reply(status=grpc_code(error), body=b"", headers=headers, message=str(error))


def not_ready(protocol: str, error: ServegateError) -> Reply | None:
    """What Triton says when somebody asks whether a model is ready that it does not have.

    That is no error to it: 400 over HTTP, an answer that says no (an empty message) over gRPC.
    """
    if not isinstance(error, NotFound | Unavailable):
        return None
    headers: Headers = ((b"servegate-error", error.code.encode()),)
    if protocol == "grpc":
        return Reply(OK, b"", headers)
    media: Headers = ((b"content-type", b"text/plain"),)
    return Reply(400, b'{"error":"Model version not ready"}', media + headers)


def no_statistics(protocol: str, error: ServegateError) -> Reply | None:
    """What Triton says when somebody asks for statistics of a model that it does not have.

    To it this is no unknown model, but a wrong argument: 400 over HTTP.
    """
    if isinstance(error, UnknownModel):
        said = f"requested model '{error.model}' is not available"
    elif isinstance(error, UnknownVersion):
        said = f"requested model version is not available for model '{error.model}'"
    else:
        return None
    headers: Headers = ((b"servegate-error", error.code.encode()),)
    if protocol == "grpc":
        return Reply(INVALID_ARGUMENT, b"", headers, said)
    body = json.dumps({"error": said}, ensure_ascii=False, separators=(",", ":"))
    return Reply(400, body.encode(), ((b"content-type", b"application/json"), *headers))


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer of Triton that proves that the call was not executed."""

    reason: str
    lacks_version: bool  # the replica does not hold the version that the snapshot says it has


# What Triton (2.51) writes when it turns a request away before executing it: its HTTP server, its
# core, and the scheduler of the model, which puts the request's id first.
_BEFORE_EXECUTION = re.compile(
    r"Server is stopping to serve requests\."
    r"|Server not ready"
    r"|(\[request id: .*?\] )?(Exceeds maximum queue size"
    r"|Server is stopping, scheduler for model has stopped accepting new inference requests)",
    re.DOTALL,
)
_UNKNOWN = "Request for unknown model: '"
_REFUSED = PREDICTIONS | {Verb.STREAM, Verb.METADATA, Verb.CONFIG}
_BUSY = Refusal("refused", lacks_version=False)
_ABSENT = Refusal("version absent", lacks_version=True)


def refusal(protocol: str, verb: Verb, reply: Reply, target: VersionTarget) -> Refusal | None:
    """Whether the reply is a complete refusal by Triton itself; None for every other answer.

    Retry rules 3 and 4: a 503 / UNAVAILABLE from the server before it executed anything, and
    "unknown model" from a replica that should have it, also in answer to a question. The whole
    message must be one of Triton's sentences, and about `target` where it names a model: gRPC
    libraries make up UNAVAILABLE themselves, and so does code in a model. Where the model calls
    others, 503 proves nothing: it may have run, and pass on what another model was refused with.
    """
    if verb not in _REFUSED:
        return None
    absent, busy = (404, 503) if protocol == "http" else (NOT_FOUND, UNAVAILABLE)
    if reply.status != absent and (reply.status != busy or target.calls_others):
        return None
    said = _said(protocol, reply)
    if said.startswith(_UNKNOWN):
        return _ABSENT if said in _absences(target) else None
    if reply.status == busy and verb in PREDICTIONS and _BEFORE_EXECUTION.fullmatch(said):
        return _BUSY
    return None


def _absences(target: VersionTarget) -> tuple[str, ...]:
    """Triton's sentences for a version that it does not hold; calls name it by its number."""
    model = f"{_UNKNOWN}{target.physical_name}'"
    version = f"{model} version {target.physical_version}"
    return (
        f"{model} is not found",
        f"{model} has no available versions",
        f"{version} is not found",
        f"{version} is not at ready state",
    )


_FAILURES = {"http": frozenset((500, 502, 504)), "grpc": frozenset((UNKNOWN, INTERNAL))}


def is_failure(protocol: str, status: int) -> bool:
    """Whether an answer with this status may be the fault of the server that gave it.

    A 503 is none: a server that is busy says it. Over gRPC an answer of what is no gRPC server, a
    proxy's for example, has the status UNKNOWN.
    """
    return status in _FAILURES[protocol]


# What Triton says of a body that it cannot read, with 500 or INTERNAL: it, and its JSON reader.
_UNREADABLE = re.compile(
    r"failed to parse the request JSON|Unable to parse ('|request)"
    r"|.*: attempt to (access (JSON non-|non-existing )|get members for non-)",
)


def is_unreadable(protocol: str, reply: Reply) -> bool:
    """Whether a failure (see `is_failure`) is the caller's: Triton cannot read the request."""
    return _UNREADABLE.match(_said(protocol, reply)) is not None


def is_broken(protocol: str, reply: Reply) -> bool:
    """Whether the answer says that the process behind the model has died (a Python stub).

    Triton goes on listing such a model as ready and fails every call of it.
    """
    if reply.status != (500 if protocol == "http" else INTERNAL):
        return False
    said = _said(protocol, reply)
    return "Stub process" in said and "is not healthy" in said


def _said(protocol: str, reply: Reply) -> str:
    """The sentence of an error of Triton's; empty when its answer is of another shape."""
    if protocol == "grpc":
        return reply.message
    try:
        said = json.loads(reply.body)["error"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    return said if isinstance(said, str) else ""


def code_name(protocol: str, status: int) -> str:
    """The status as metrics and logs write it: `200`, `NOT_FOUND`."""
    if protocol == "http":
        return _HTTP_NAMES.get(status) or str(status)
    return GRPC_NAMES[status] if 0 <= status < len(GRPC_NAMES) else str(status)
