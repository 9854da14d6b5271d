"""What is said to a management call while Triton's management is not open: what to use instead.

Such a call changes or shows one process; behind a gateway there are many, and a restart undoes it.
"""

import re

from serve.core.errors import NotServed
from serve.wire.management import MEMORY_METHODS, METHODS

_OPEN = "or open Triton's management with --allow-management"
_ONE = "it is a matter of one replica out of many, until that one restarts"
_SENTENCES = {  # by what is asked for: what, why, what to try
    "load": (
        "models are not loaded by this call",
        _ONE,
        "put the model into the model repository, which loads it on every replica, and see "
        f"servegate model ls, {_OPEN}",
    ),
    "unload": (
        "models are not unloaded by this call",
        _ONE,
        "remove the model from the model repository, or send a version no calls with "
        f"servegate route set, {_OPEN}",
    ),
    "memory": (
        "shared memory is not served by the gateway",
        "a region belongs to one Triton on one machine, and calls go to any replica",
        f"binary tensors in the request's body, as servegate infer sends them, {_OPEN}",
    ),
    "trace": (
        "trace settings are not served by the gateway",
        _ONE,
        f"servegate up --triton-arg=--trace-config=…, {_OPEN}",
    ),
    "logging": (
        "log settings are not served by the gateway",
        _ONE,
        f"servegate up --triton-arg=--log-verbose=1, or --log-level for its own log, {_OPEN}",
    ),
}
_PATH = re.compile(rb"/(load|unload|trace|logging)(?:/setting)?\Z")


def refusal_of(raw_path: bytes) -> NotServed:
    """The refusal of a management path over HTTP (see `management.read_path`)."""
    match = _PATH.search(raw_path)
    what, why, try_this = _SENTENCES["memory" if match is None else match[1].decode()]
    return NotServed(what, why=why, try_this=try_this)


def refusal_of_method(name: str) -> NotServed | None:
    """The refusal of a management method of Triton's gRPC service; None for any other."""
    kind = "memory" if name in MEMORY_METHODS else METHODS.get(name)
    if kind is None:
        return None
    _, why, try_this = _SENTENCES[kind]
    return NotServed(f"{name} is not served by the gateway", why=why, try_this=try_this)
