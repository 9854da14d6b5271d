"""Triton's management calls: what they want, read from HTTP. `management_grpc` reads the others.

| extension     | HTTP                                                        | gRPC               |
|---------------|-------------------------------------------------------------|--------------------|
| repository    | POST /v2/repository/models/{m}/load or unload               | RepositoryModel…   |
| trace         | GET or POST /v2/trace/setting, /v2/models/{m}/trace/setting | TraceSetting       |
| logging       | GET or POST /v2/logging                                     | LogSettings        |
| shared memory | /v2/systemsharedmemory/…, /v2/cudasharedmemory/…            | SystemSharedMemor… |

Sources: Triton's http_server.cc (paths) and grpc_service.proto (field numbers).
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from serve.core.errors import BadRequest, MethodNotAllowed, WrongJson
from serve.wire import documents

Settings = Mapping[str, Any]

_PATH = re.compile(
    rb"/v2/(?:repository(?:/[^/]+)?/models/(?P<model>[^/]+)/(?P<act>load|unload)"
    rb"|(?:models/(?P<traced>[^/]+)/)?(?P<trace>trace)/setting"
    rb"|(?P<logging>logging))"
)
_MEMORY_PATH = re.compile(
    rb"/v2/(?P<kind>system|cuda)sharedmemory(?:/region/(?P<region>[^/]+))?"
    rb"/(?P<act>status|register|unregister)"
)
_NO_SETTINGS: Settings = MappingProxyType({})
_TRACE = ("trace_level", "trace_rate", "trace_count", "log_frequency", "trace_file", "trace_mode")
_LOG = {
    "log_file": str,
    "log_info": bool,
    "log_warning": bool,
    "log_error": bool,
    "log_verbose_level": int,
    "log_format": str,
}
ORDER: Mapping[str, tuple[str, ...]] = {"trace": _TRACE, "logging": tuple(_LOG)}
"""The settings that Triton knows, in the order of its answers over HTTP."""
_KINDS: Mapping[type, str] = {str: "string", bool: "boolean", int: "unsigned-integer"}
_LISTS = ("trace_level",)  # settings whose JSON value is a list
_LARGEST = 2**32  # of an unsigned integer

METHODS = {
    "RepositoryModelLoad": "load",
    "RepositoryModelUnload": "unload",
    "TraceSetting": "trace",
    "LogSettings": "logging",
}
MEMORY_METHODS = tuple(
    f"{kind}SharedMemory{act}"
    for kind in ("System", "Cuda")
    for act in ("Status", "Register", "Unregister")
)
"""Methods of Triton's gRPC service, and what they want."""


@dataclass(frozen=True, slots=True)
class ManagementOrder:
    """What a caller wants of the control plane: `load`, `unload`, `trace` or `logging`.

    `config` is the JSON of a configuration, `dependents` says that an ensemble's parts go, too;
    settings that are None are taken back. Without settings `trace` and `logging` only ask.
    """

    act: str
    model: str = ""
    config: str | None = None
    dependents: bool = False
    settings: Settings = field(default_factory=lambda: _NO_SETTINGS)


# --- HTTP -----------------------------------------------------------------------------------------


def read_path(method: str, raw_path: bytes) -> str:
    """`wish` or `memory` for a management path, empty for any other; `MethodNotAllowed`."""
    match = _PATH.fullmatch(raw_path)
    memory = _MEMORY_PATH.fullmatch(raw_path)
    if match is not None:
        allowed = ("POST",) if match["act"] else ("GET", "POST")
    elif memory is not None:
        allowed = ("GET",) if memory["act"] == b"status" else ("POST",)
    else:
        return ""
    if method not in allowed:
        raise MethodNotAllowed("Method Not Allowed")
    return "wish" if match is not None else "memory"


def wish_of_http(method: str, raw_path: bytes, body: bytes) -> ManagementOrder:
    """What a request for a management path wants; `BadRequest` for what can never be done."""
    match = _PATH.fullmatch(raw_path)
    assert match is not None, "read_path said so"
    if match["act"]:
        model = match["model"].decode("latin-1")
        parameters = _json(body).get("parameters", {}) if body else {}
        return _repository_wish(match["act"].decode(), model, parameters)
    act = "trace" if match["trace"] else "logging"
    model = (match["traced"] or b"").decode("latin-1")
    if method != "POST":
        return ManagementOrder(act, model)
    data = _json(body)
    return ManagementOrder(act, model, settings=_trace(data) if act == "trace" else _log(data))


def settings_json(act: str, settings: Settings) -> bytes:
    """The answer's body, in Triton's order: trace settings are texts, and one of them a list."""
    told = {name: settings[name] for name in (*ORDER[act], *settings) if name in settings}
    if act == "trace":
        told = {
            name: values if name in _LISTS else ",".join(values) for name, values in told.items()
        }
    return json.dumps(told, separators=(",", ":"), ensure_ascii=False).encode()


def _repository_wish(act: str, model: str, parameters: Any) -> ManagementOrder:
    if not isinstance(parameters, dict):
        raise WrongJson("attempt to get members for non-object")
    if act == "unload":
        dependents = parameters.get("unload_dependents", False)
        if not isinstance(dependents, bool):
            raise WrongJson("attempt to access JSON non-boolean as boolean")
        return ManagementOrder(act, model, dependents=dependents)
    refuse_files(parameters)
    for name, value in parameters.items():
        _typed(value, str)
        if name != "config":
            raise WrongJson("unexpected error on creating Triton parameter", why=f"'{name}'")
    return ManagementOrder(act, model, config=parameters.get("config"))


def _trace(data: dict[str, Any]) -> Settings:
    """The trace settings that there are; a file stays in, to be refused behind unknown models."""
    settings = {name: data[name] for name in _TRACE if name in data}
    if "trace_file" in settings:
        return settings
    for name, value in settings.items():
        if value is not None and name in _LISTS:
            if not isinstance(value, list):
                raise WrongJson("attempt to access JSON non-array as array")
            for one in value:
                _typed(one, str)
        elif value is not None:
            _typed(value, str)
    return settings


def _log(data: dict[str, Any]) -> Settings:
    """The log settings that have a value."""
    settings = {name: data[name] for name in _LOG if data.get(name) is not None}
    if "log_file" not in settings:
        for name, value in settings.items():
            _typed(value, _LOG[name])
    return settings


def _typed(value: Any, kind: type) -> None:
    is_right = type(value) is kind  # a truth value is no number
    if isinstance(value, int) and not 0 <= value < _LARGEST:
        is_right = False
    if not is_right:
        raise WrongJson(f"attempt to access JSON non-{_KINDS[kind]} as {_KINDS[kind]}")


def _json(body: bytes) -> dict[str, Any]:
    """The members of a body; like Triton, none where it is JSON and no object."""
    try:
        data = documents.read(body)
    except (ValueError, RecursionError) as error:
        raise WrongJson("failed to parse the request JSON buffer", why=str(error)) from error
    return data if isinstance(data, dict) else {}


# --- what both protocols have in common -----------------------------------------------------------


def refuse_files(parameters: Iterable[str]) -> None:
    """`BadRequest` for a load call's parameters that are model files."""
    if any(name.startswith("file:") for name in parameters):
        raise BadRequest(
            "a load call must not contain model files",
            why="they run as code in the server, and the other replicas would not have them",
            try_this="put the files into the model repository, then load the model",
        )
