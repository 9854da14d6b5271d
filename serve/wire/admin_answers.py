"""The admin API's refusals as its clients read them: the errors that the server raised."""

import json
from collections.abc import Mapping

from serve.core.errors import (
    Conflict,
    DeadlineExceeded,
    Forbidden,
    Invalid,
    NoSpace,
    NotFound,
    ServegateError,
    Unauthenticated,
    Unavailable,
)

_CLASSES: Mapping[int, type[ServegateError]] = {
    400: Invalid,
    401: Unauthenticated,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    412: Conflict,
    422: Invalid,
    503: Unavailable,
    504: DeadlineExceeded,
    507: NoSpace,
}


def error_of(status: int, text: str) -> ServegateError:
    """The error that an answer tells; by its status alone when it tells none of ours."""
    kind = _CLASSES.get(status, ServegateError)
    try:
        body = json.loads(text)
        error = kind(str(body["what"]), why=str(body["why"]), try_this=str(body["try_this"]))
        error.code = str(body["code"])
    except (ValueError, KeyError, TypeError):
        return kind(f"the control plane returned status {status}", why=text[:200])
    return error
