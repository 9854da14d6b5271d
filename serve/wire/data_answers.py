"""The data ports' answers as their clients read them: who decided, and the errors that were raised.

The reading half of `status.py`. Errors arrive as `what: why. Try: this` in Triton's shapes, with
the stable code beside them; the decision as `servegate-version: 2; by=split; generation=7`.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from serve.core.errors import (
    BadRequest,
    Conflict,
    DeadlineExceeded,
    Forbidden,
    NotFound,
    OutcomeUnknown,
    ServegateError,
    Unauthenticated,
    Unavailable,
)

DECISION = "servegate-version"
ERROR_CODE = "servegate-error"

_BY_STATUS: Mapping[int, type[ServegateError]] = {
    400: BadRequest,
    401: Unauthenticated,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    413: BadRequest,
    422: BadRequest,
    429: Unavailable,
    502: OutcomeUnknown,
    503: Unavailable,
}
_BY_GRPC_CODE: Mapping[str, type[ServegateError]] = {
    "INVALID_ARGUMENT": BadRequest,
    "UNAUTHENTICATED": Unauthenticated,
    "PERMISSION_DENIED": Forbidden,
    "NOT_FOUND": NotFound,
    "ABORTED": Conflict,
    "RESOURCE_EXHAUSTED": Unavailable,
    "UNAVAILABLE": Unavailable,
}


@dataclass(frozen=True, slots=True)
class Decision:
    """Which version answered, and why; empty and None as far as nobody has said it."""

    version: str = ""
    by: str = ""
    generation: int | None = None


def read_decision(text: str) -> Decision:
    """Read `2; by=split; generation=7`; Triton itself sends none."""
    version, *rest = [part.strip() for part in text.split(";")]
    facts = dict(part.split("=", 1) for part in rest if "=" in part)
    generation = facts.get("generation", "")
    return Decision(version, facts.get("by", ""), int(generation) if generation.isdigit() else None)


def http_error(status: int, body: str, code: str) -> ServegateError:
    """What the gateway, or Triton, answers instead of a reply; `code` is beside it, or empty."""
    if status == 504:
        return DeadlineExceeded()
    return _told(_BY_STATUS.get(status, ServegateError), _sentence(status, body), code)


def grpc_error(error: Any) -> ServegateError:
    """The same of gRPC: `error` is the exception of a call that has ended."""
    name = error.code().name
    if name == "DEADLINE_EXCEEDED":
        return DeadlineExceeded()
    kind = _BY_GRPC_CODE.get(name, ServegateError)
    return _told(kind, grpc_details(error), metadata_value(error.trailing_metadata(), ERROR_CODE))


def grpc_details(error: Any) -> str:
    """The message of a call that failed, or the name of its code."""
    return str(error.details() or error.code().name)


def metadata_value(metadata: Iterable[tuple[str, Any]] | None, key: str) -> str:
    """The first value under a key of gRPC metadata; empty when there is none."""
    return next((str(value) for name, value in metadata or () if name == key), "")


def shown(key: str) -> tuple[tuple[str, str], ...]:
    """The header, or metadata, that shows an API key; nothing for an empty one."""
    return (("authorization", f"Bearer {key}"),) if key else ()


def model_path(model: str, selector: str) -> str:
    """The path of a model over HTTP; `selector` is empty, a number or a label."""
    path = f"/v2/models/{quote(model, safe='')}"
    return f"{path}/versions/{quote(selector, safe='')}" if selector else path


def _sentence(status: int, body: str) -> str:
    try:
        return str(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError, RecursionError):
        said = " ".join(body.split())[:200]
        return f"the gateway returned status {status}" + (f": {said}" if said else "")


def _told(kind: type[ServegateError], text: str, code: str) -> ServegateError:
    what, _, try_this = text.partition(". Try: ")
    error = kind(what, try_this=try_this)
    if code:
        error.code = code
    return error
