"""What is said to a management call while Triton's management is not open: what to use instead.

Such a call changes or shows one process; behind a gateway there are many, and a restart undoes it.
"""

import re

from serve.core.errors import NotServed

_OPEN = "or open Triton's management with --allow-management"
_ONE = "it is a matter of one replica out of many, until that one restarts"
_SENTENCES: tuple[tuple[re.Pattern[bytes], str, str, str], ...] = (
    (
        re.compile(rb"/load\Z"),
        "models are not loaded by this call",
        _ONE,
        "put the model into the model repository, which loads it on every replica, and see "
        f"servegate model ls, {_OPEN}",
    ),
    (
        re.compile(rb"/unload\Z"),
        "models are not unloaded by this call",
        _ONE,
        "remove the model from the model repository, or send a version no calls with "
        f"servegate route set, {_OPEN}",
    ),
    (
        re.compile(rb"sharedmemory/"),
        "shared memory is not served by the gateway",
        "a region belongs to one Triton on one machine, and calls go to any replica",
        f"binary tensors in the request's body, as servegate infer sends them, {_OPEN}",
    ),
    (
        re.compile(rb"/trace/setting\Z"),
        "trace settings are not served by the gateway",
        _ONE,
        f"servegate up --triton-arg=--trace-config=…, {_OPEN}",
    ),
    (
        re.compile(rb"/logging\Z"),
        "log settings are not served by the gateway",
        _ONE,
        f"servegate up --triton-arg=--log-verbose=1, or --log-level for its own log, {_OPEN}",
    ),
)


def refusal_of(raw_path: bytes) -> NotServed:
    """The refusal of a management path (see `management.read_path`)."""
    for pattern, what, why, try_this in _SENTENCES:
        if pattern.search(raw_path):
            return NotServed(what, why=why, try_this=try_this)
    raise AssertionError(f"{raw_path!r} is no management path")
