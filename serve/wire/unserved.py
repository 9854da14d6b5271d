"""What is said to a management call while Triton's management is not open: what to use instead.

Such a call changes or shows one process; behind a gateway there are many, and a restart undoes it.
"""

import re

from serve.core.errors import NotServed
from serve.wire.management import MEMORY_METHODS, METHODS

_OPEN = "or open Triton's management with --allow-management"
_ONE = "such a call changes one replica of many, until that replica restarts"
_SENTENCES = {  # by what is asked for: what, why, what to try
    "load": (
        "this call does not load models",
        _ONE,
        "put the model into the model repository, which loads it on every replica (see "
        f"servegate model ls), {_OPEN}",
    ),
    "unload": (
        "this call does not unload models",
        _ONE,
        "remove the model from the model repository, or take traffic from a version with "
        f"servegate route set, {_OPEN}",
    ),
    "memory": (
        "the gateway does not support shared memory",
        "a region belongs to one Triton on one machine, but calls go to all replicas",
        f"send binary tensors in the request body, as servegate infer does, {_OPEN}",
    ),
    "trace": (
        "the gateway does not support trace settings",
        _ONE,
        f"use servegate up --triton-arg=--trace-config=…, {_OPEN}",
    ),
    "logging": (
        "the gateway does not support log settings",
        _ONE,
        "use servegate up --triton-arg=--log-verbose=1, or --log-level for the gateway's log, "
        f"{_OPEN}",
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
    return NotServed(f"the gateway does not support {name}", why=why, try_this=try_this)
