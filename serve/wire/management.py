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
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from serve.core.errors import BadRequest, MethodNotAllowed

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
_LISTS = ("trace_level",)  # settings whose JSON value is a list

METHODS = {
    "RepositoryModelLoad": "load",
    "RepositoryModelUnload": "unload",
    "TraceSetting": "trace",
    "LogSettings": "logging",
}
MEMORY_METHODS = {
    f"{kind}SharedMemory{act}": (kind.lower(), act.lower())
    for kind in ("System", "Cuda")
    for act in ("Status", "Register", "Unregister")
}
"""Methods of Triton's gRPC service, and what they want: of which shared memory, system or cuda."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What a caller wants of the control plane: `load`, `unload`, `trace` or `logging`.

    `config` is the JSON of a configuration, `dependents` says that an ensemble's parts go, too;
    settings that are None are taken back. Without settings `trace` and `logging` only ask.
    """

    act: str
    model: str = ""
    config: str | None = None
    dependents: bool = False
    settings: Settings = field(default_factory=lambda: _NO_SETTINGS)


@dataclass(frozen=True, slots=True)
class MemoryWish:
    """What a caller wants of the one local Triton, as its HTTP interface takes it."""

    method: str
    path: str
    body: bytes = b""
    is_status: bool = False


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


def wish_of_http(method: str, raw_path: bytes, body: bytes) -> Wish:
    """What a request for a management path wants; `BadRequest` for what can never be done."""
    match = _PATH.fullmatch(raw_path)
    assert match is not None, "read_path said so"
    data = _json(body)
    if match["act"]:
        model = match["model"].decode("latin-1")
        return repository_wish(match["act"].decode(), model, data.get("parameters") or {})
    act = "trace" if match["trace"] else "logging"
    settings = data if method == "POST" else {}
    return Wish(act, (match["traced"] or b"").decode("latin-1"), settings=settings)


def memory_of_http(method: str, raw_path: bytes, body: bytes) -> MemoryWish:
    """A shared-memory request, to be passed on as it is."""
    return MemoryWish(method, raw_path.decode("latin-1"), body)


def settings_json(act: str, settings: Settings) -> bytes:
    """The answer's body: trace settings are texts, and one of them a list."""
    if act == "trace":
        settings = {
            name: values if name in _LISTS else ",".join(values)
            for name, values in settings.items()
        }
    return json.dumps(settings, separators=(",", ":"), ensure_ascii=False).encode()


# --- what both have in common ---------------------------------------------------------------------


def repository_wish(act: str, model: str, parameters: Any) -> Wish:
    """A load or unload call with these parameters; `BadRequest` for what can never be done."""
    if not isinstance(parameters, dict):
        raise BadRequest("the parameters are not an object")
    for name in parameters:
        if name.startswith("file:"):
            raise BadRequest(
                "model files are not taken from a load call",
                why="whoever may send them runs code in the server, and no other replica has them",
                try_this="put them into the model repository, then load",
            )
    known = "config" if act == "load" else "unload_dependents"
    strangers = [name for name in parameters if name != known]
    if strangers:
        raise BadRequest(f"unrecognized parameter '{strangers[0]}'", why=f"{act} knows {known}")
    value = parameters.get(known)
    if act == "unload":
        if not isinstance(value, bool | None):
            raise BadRequest("unload_dependents must be true or false")
        return Wish(act, model, dependents=bool(value))
    if not isinstance(value, str | None):
        raise BadRequest("the config must be a string", why="it holds a configuration as JSON")
    return Wish(act, model, config=value)


def _json(body: bytes) -> dict[str, Any]:
    if not body.strip():
        return {}
    try:
        data = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadRequest("failed to parse the request JSON buffer", why=str(error)) from error
    if not isinstance(data, dict):
        raise BadRequest("the request's JSON is not an object")
    return data
