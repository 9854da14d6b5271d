"""Triton's management calls over gRPC: their requests read, and their answers written.

Source of the field numbers: grpc_service.proto of Triton, package `inference`.
"""

from collections.abc import Iterator
from typing import Any

from serve.core.errors import BadRequest
from serve.wire import protobuf
from serve.wire.kserve_grpc import SERVICE
from serve.wire.management import (
    MEMORY_METHODS,
    METHODS,
    ORDER,
    ManagementOrder,
    Settings,
    refuse_files,
)

WISHES = tuple(SERVICE + name for name in METHODS)
MEMORY = tuple(SERVICE + name for name in MEMORY_METHODS)


def of_grpc(method: str, request: bytes) -> ManagementOrder:
    """What the request of one of `WISHES` wants; `BadRequest` for what can never be done."""
    act = METHODS[method.removeprefix(SERVICE)]
    fields = list(protobuf.fields(request))
    model = _last_text(fields, 2)
    if act in ("load", "unload"):
        parameters = {key: _one_value(value) for key, value in _map(fields, 3)}
        return _repository_wish(act, model, parameters)
    read = _trace_value if act == "trace" else _one_value
    settings = {key: read(value) for key, value in _map(fields, 1) if key in ORDER[act]}
    return ManagementOrder(act, model if act == "trace" else "", settings=settings)


def _repository_wish(act: str, model: str, parameters: dict[str, Any]) -> ManagementOrder:
    if act == "unload":
        dependents = parameters.get("unload_dependents", False)
        if not isinstance(dependents, bool):
            raise BadRequest(
                "invalid value type for 'unload_dependents' parameter, expected bool_param."
            )
        return ManagementOrder(act, model, dependents=dependents)
    refuse_files(parameters)
    for name, value in parameters.items():
        if name != "config":
            raise BadRequest(f"unrecognized load parameter '{name}'.")
        if not isinstance(value, str):
            raise BadRequest(
                "invalid value type for load parameter 'config', expected string_param."
            )
    return ManagementOrder(act, model, config=parameters.get("config"))


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
