"""Triton's management calls over gRPC: their requests read, and their answers written.

Source of the field numbers: grpc_service.proto of Triton, package `inference`.
"""

import base64
import json
from collections.abc import Iterator
from typing import Any

from serve.core.errors import BadRequest
from serve.wire import protobuf
from serve.wire.kserve_grpc import SERVICE
from serve.wire.management import (
    MEMORY_METHODS,
    METHODS,
    MemoryWish,
    Settings,
    Wish,
    repository_wish,
)

GRPC_METHODS = tuple(SERVICE + name for name in (*METHODS, *MEMORY_METHODS))


def of_grpc(method: str, request: bytes) -> Wish | MemoryWish:
    """What a management method's request wants; `BadRequest` on nonsense."""
    name = method.removeprefix(SERVICE)
    if name in MEMORY_METHODS:
        return _memory_of_grpc(*MEMORY_METHODS[name], request)
    act = METHODS[name]
    fields = list(protobuf.fields(request))
    model = _last_text(fields, 2)
    if act in ("load", "unload"):
        parameters = {key: _one_value(value) for key, value in _map(fields, 3)}
        return repository_wish(act, model, parameters)
    read = _trace_value if act == "trace" else _one_value
    settings = {key: read(value) for key, value in _map(fields, 1)}
    return Wish(act, model if act == "trace" else "", settings=settings)


def settings_message(act: str, settings: Settings) -> bytes:
    """A `TraceSettingResponse` or `LogSettingsResponse`: a map of values in field 1."""
    entries = []
    for name, value in settings.items():
        if act == "trace":
            told = b"".join(protobuf.field(1, str(one).encode()) for one in value)
        elif isinstance(value, bool):
            told = protobuf.number(1, int(value))  # false, too: it is a choice
        elif isinstance(value, int):
            told = protobuf.number(2, value)
        else:
            told = protobuf.field(3, str(value).encode())
        entry = protobuf.field(1, name.encode()) + protobuf.field(2, told)
        entries.append(protobuf.field(1, entry))
    return b"".join(entries)


def regions_message(kind: str, body: bytes) -> bytes:
    """A `…SharedMemoryStatusResponse` from the JSON list that Triton's HTTP interface gives."""
    entries = []
    for region in json.loads(body):
        name = protobuf.field(1, region["name"].encode())
        if kind == "cuda":
            told = name + protobuf.number(2, int(region["device_id"]))
            told += protobuf.number(3, int(region["byte_size"]))
        else:
            told = name + protobuf.field(2, region["key"].encode())
            told += protobuf.number(3, int(region["offset"]))
            told += protobuf.number(4, int(region["byte_size"]))
        entries.append(protobuf.field(1, name + protobuf.field(2, told)))
    return b"".join(entries)


def _memory_of_grpc(kind: str, act: str, request: bytes) -> MemoryWish:
    fields = list(protobuf.fields(request))
    name = _last_text(fields, 1)
    if "/" in name or "%" in name:
        raise BadRequest("a region's name cannot have a / or % here")
    path = f"/v2/{kind}sharedmemory" + (f"/region/{name}" if name else "") + f"/{act}"
    if act != "register":
        method = "GET" if act == "status" else "POST"
        return MemoryWish(method, path, is_status=act == "status")
    values = dict(fields)
    body: dict[str, Any] = {"byte_size": values.get(4, 0)}
    if kind == "cuda":
        handle = values.get(2, b"")
        assert isinstance(handle, bytes)
        body |= {"raw_handle": {"b64": base64.b64encode(handle).decode()}}
        body |= {"device_id": values.get(3, 0)}
    else:
        body |= {"key": _last_text(fields, 2), "offset": values.get(3, 0)}
    return MemoryWish("POST", path, json.dumps(body).encode())


def _map(fields: list[tuple[int, int | bytes]], number: int) -> Iterator[tuple[str, bytes]]:
    """The entries of a map field: the key and the bytes of the value message."""
    for found, entry in fields:
        if found == number and isinstance(entry, bytes):
            parts = dict(protobuf.fields(entry))
            value = parts.get(2, b"")
            key = parts.get(1, b"")
            if isinstance(key, bytes) and isinstance(value, bytes):
                yield key.decode("utf-8", "replace"), value


def _one_value(message: bytes) -> Any:
    """A parameter or log setting: a choice of bool (1), number (2), string (3) and bytes (4)."""
    for number, value in reversed(list(protobuf.fields(message))):
        if number == 1:
            return bool(value)
        if number == 3 and isinstance(value, bytes):
            return value.decode("utf-8", "replace")
        return value
    return None


def _trace_value(message: bytes) -> list[str] | None:
    """A trace setting: its values, or None to take it back."""
    values = [
        value.decode("utf-8", "replace")
        for number, value in protobuf.fields(message)
        if number == 1 and isinstance(value, bytes)
    ]
    return values or None


def _last_text(fields: list[tuple[int, int | bytes]], number: int) -> str:
    found = [value for at, value in fields if at == number and isinstance(value, bytes)]
    return found[-1].decode("utf-8", "replace") if found else ""
