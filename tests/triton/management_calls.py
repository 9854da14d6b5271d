"""Management calls over both protocols, as bytes, by a name that says what they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tritonclient.grpc import service_pb2 as pb

from . import http_calls, raw_grpc
from .raw_grpc import unary

MODEL = "plain"
_CONFIGS: Mapping[str, Any] = {
    "that is no JSON": "{",
    "that is empty": "",
    "of words": "max_batch_size: 1",
    "with an unknown field": '{"nothing": 1}',
    "that is a list": "[]",
    "of another model": '{"name": "other"}',
    "with an unknown data type": '{"input": [{"name": "x", "data_type": "TYPE_X"}]}',
    "as a number": 7,
}
_CONFIGS_IN_JSON: Mapping[str, Any] = {
    "with a wrong value": '{"max_batch_size": "many"}',
    "whose version is not there": '{"version_policy": {"specific": {"versions": [7]}}}',
    "as an object": {"backend": "python"},
    "of null": None,
}

# --- over HTTP -----------------------------------------------------------------------------------


def _with(**parameters: Any) -> dict[str, Any]:
    return {"parameters": parameters}


GET = object()
_LOAD, _OTHER = f"/v2/repository/models/{MODEL}/load", "/v2/repository/models/other/unload"
_NOTHING = "/v2/repository/models/nothing"
_TRACE, _LOG, _MEMORY = "/v2/trace/setting", "/v2/logging", "/v2/systemsharedmemory"
_OF_MODEL, _OF_NOTHING = f"/v2/models/{MODEL}/trace/setting", "/v2/models/nothing/trace/setting"
_FILE = {"trace_file": "/tmp/x"}
_REGION = {"key": "/nothing", "offset": 0, "byte_size": 8}
_CUDA = {"raw_handle": {"b64": "AAAA"}, "device_id": 0, "byte_size": 8}
_HTTP: Mapping[str, tuple[str, Any]] = {  # a path, and a body: bytes, or what they say in JSON
    "load": (_LOAD, b""),
    "load of an unknown model": (f"{_NOTHING}/load", b""),
    "load of an unknown model with a configuration": (f"{_NOTHING}/load", _with(config="{}")),
    **{
        f"a config {what}": (_LOAD, _with(config=config))
        for what, config in {**_CONFIGS, **_CONFIGS_IN_JSON}.items()
    },
    "an unknown parameter of a load": (_LOAD, _with(colour="red")),
    "an unload parameter of a load": (_LOAD, _with(unload_dependents=True)),
    "parameters as a list": (_LOAD, {"parameters": []}),
    "parameters as a number": (_LOAD, {"parameters": 7}),
    "parameters of null": (_LOAD, {"parameters": None}),
    "a load of no JSON": (_LOAD, b"{"),
    "a load of a list": (_LOAD, b"[]"),
    "a load of blanks": (_LOAD, b"  "),
    "load of a model whose folder is broken": ("/v2/repository/models/broken/load", b""),
    "load of a model whose code is broken": ("/v2/repository/models/failing/load", b""),
    "load, afterwards": (_LOAD, b""),
    "unload of an unknown model": (f"{_NOTHING}/unload", b""),
    "dependents as a word": (_OTHER, _with(unload_dependents="yes")),
    "an unknown parameter of an unload": (_OTHER, _with(colour="red")),
    "trace settings": (_TRACE, GET),
    "trace settings of a model": (_OF_MODEL, GET),
    "trace settings of an unknown model": (_OF_NOTHING, GET),
    "a trace file": (_TRACE, _FILE),
    "a trace file of a model": (_OF_MODEL, _FILE),
    "a trace file of an unknown model": (_OF_NOTHING, _FILE),
    "a trace file of null": (_TRACE, {"trace_file": None}),
    "a trace file and a rate": (_TRACE, {"trace_rate": "8", **_FILE}),
    "a trace file as a number": (_TRACE, {"trace_file": 7}),
    "a trace rate": (_TRACE, {"trace_rate": "7"}),
    "a trace rate as a number": (_TRACE, {"trace_rate": 6}),
    "a trace rate of words": (_TRACE, {"trace_rate": "often"}),
    "a trace level": (_TRACE, {"trace_level": ["TIMESTAMPS"]}),
    "a trace level of another kind": (_TRACE, {"trace_level": ["NOTHING"]}),
    "a trace level as a word": (_TRACE, {"trace_level": "TIMESTAMPS"}),
    "a trace level of numbers": (_TRACE, {"trace_level": [7]}),
    "a trace count below zero": (_TRACE, {"trace_count": "-2"}),
    "a trace level of null": (_TRACE, {"trace_level": None}),
    "a trace mode": (_TRACE, {"trace_mode": "opentelemetry"}),
    "an unknown trace setting": (_TRACE, {"colour": "red"}),
    "a trace rate of a model": (_OF_MODEL, {"trace_rate": "5"}),
    "trace settings back": (_TRACE, dict.fromkeys(("trace_rate", "trace_level", "trace_count"))),
    "trace settings of a list": (_TRACE, b"[]"),
    "trace settings of no JSON": (_TRACE, b"{"),
    "trace settings of nothing": (_TRACE, b""),
    "log settings": (_LOG, GET),
    "a log file": (_LOG, {"log_file": "/tmp/x"}),
    "a log file of null": (_LOG, {"log_file": None}),
    "a log file as a number": (_LOG, {"log_file": 7}),
    "a log file and a level": (_LOG, {"log_verbose_level": 1, "log_file": "/tmp/x"}),
    "a log level": (_LOG, {"log_verbose_level": 1}),
    "a log level as a word": (_LOG, {"log_verbose_level": "1"}),
    "a log level below zero": (_LOG, {"log_verbose_level": -1}),
    "a log switch as a word": (_LOG, {"log_info": "yes"}),
    "a log format": (_LOG, {"log_format": "ISO8601"}),
    "an unknown log format": (_LOG, {"log_format": "nothing"}),
    "an unknown log setting": (_LOG, {"colour": "red"}),
    "a log level beyond 32 bits": (_LOG, {"log_verbose_level": 2**32}),
    "a log level that is a fraction": (_LOG, {"log_verbose_level": 1.5}),
    "a log level of 2**31": (_LOG, {"log_verbose_level": 2**31}),
    "log settings of null": (_LOG, {"log_info": None}),
    "log settings back": (_LOG, {"log_verbose_level": 0, "log_format": "default"}),
    "log settings of a list": (_LOG, b"[]"),
    "log settings of no JSON": (_LOG, b"{"),
    "log settings of nothing": (_LOG, b""),
    "shared memory": (f"{_MEMORY}/status", GET),
    "shared memory of an unknown region": (f"{_MEMORY}/region/x/status", GET),
    "a region that is not there": (f"{_MEMORY}/region/x/register", _REGION),
    "a region without a key": (f"{_MEMORY}/region/x/register", {"byte_size": 8}),
    "a region of nothing": (f"{_MEMORY}/region/x/register", b""),
    "unregister": (f"{_MEMORY}/region/x/unregister", b""),
    "unregister all": (f"{_MEMORY}/unregister", b""),
    "register without a name": (f"{_MEMORY}/register", {"key": "/nothing"}),
    "CUDA memory": ("/v2/cudasharedmemory/status", GET),
    "a CUDA region": ("/v2/cudasharedmemory/region/x/register", _CUDA),
    "unregister all CUDA memory": ("/v2/cudasharedmemory/unregister", b""),
    "GET of a load": (_LOAD, GET),
}


def _over_http(path: str, body: Any) -> http_calls.RawCall:
    if body is GET:
        return http_calls.get(path)
    return http_calls.post(path, body if isinstance(body, bytes) else http_calls.as_json(body))


HTTP = {name: _over_http(*row) for name, row in _HTTP.items()}
HTTP["PUT of log settings"] = http_calls.call("PUT", _LOG, body=b"{}")

# --- over gRPC -----------------------------------------------------------------------------------


def _repository(method: str, model: str, parameters: Mapping[str, Any]) -> raw_grpc.RawCall:
    made = getattr(pb, f"{method}Request")(model_name=model)
    kinds = {bool: "bool_param", int: "int64_param", bytes: "bytes_param", str: "string_param"}
    for name, value in parameters.items():
        setattr(made.parameters[name], kinds[type(value)], value)
    return unary(method, made)


def _load(model: str = MODEL, /, **parameters: Any) -> raw_grpc.RawCall:
    return _repository("RepositoryModelLoad", model, parameters)


def _unload(model: str, /, **parameters: Any) -> raw_grpc.RawCall:
    return _repository("RepositoryModelUnload", model, parameters)


def _trace(model: str = "", **settings: list[str]) -> raw_grpc.RawCall:
    made = pb.TraceSettingRequest(model_name=model)
    for name, values in settings.items():
        made.settings[name].value.extend(values)
    return unary("TraceSetting", made)


def _log(**settings: Any) -> raw_grpc.RawCall:
    """What is None has no value."""
    made = pb.LogSettingsRequest()
    kinds = {bool: "bool_param", int: "uint32_param", str: "string_param"}
    for name, value in settings.items():
        if value is None:
            made.settings[name].SetInParent()
        else:
            setattr(made.settings[name], kinds[type(value)], value)
    return unary("LogSettings", made)


def _memory(method: str, kind: str = "System", **fields: Any) -> raw_grpc.RawCall:
    name = f"{kind}SharedMemory{method}"
    return unary(name, getattr(pb, f"{name}Request")(**fields))


GRPC: dict[str, raw_grpc.RawCall] = {
    "load": _load(),
    "load of an unknown model": _load("nothing"),
    "load of an unknown model with a configuration": _load("nothing", config="{}"),
    "load of no model": _load(""),
    "load of a model whose folder is broken": _load("broken"),
    "load of a model whose code is broken": _load("failing"),
    **{f"a config {what}": _load(config=config) for what, config in _CONFIGS.items()},
    "a config as a truth": _load(config=True),
    "a config as bytes": _load(config=b"{}"),
    "an unknown parameter of a load": _load(colour="red"),
    "load, afterwards": _load(),
    "unload of an unknown model": _unload("nothing"),
    "dependents as a word": _unload("other", unload_dependents="yes"),
    "an unknown parameter of an unload": _unload("other", colour="red"),
    "garbage as a load": unary("RepositoryModelLoad", b"\xff\xff"),
    "trace settings": _trace(),
    "trace settings of a model": _trace(MODEL),
    "trace settings of an unknown model": _trace("nothing"),
    "a trace file": _trace(trace_file=["/tmp/x"]),
    "a trace file of a model": _trace(MODEL, trace_file=["/tmp/x"]),
    "a trace file of an unknown model": _trace("nothing", trace_file=["/tmp/x"]),
    "a trace file taken back": _trace(trace_file=[]),
    "two trace files": _trace(trace_file=["/tmp/x", "/tmp/y"]),
    "a trace rate": _trace(trace_rate=["7"]),
    "a trace rate of words": _trace(trace_rate=["often"]),
    "two trace rates": _trace(trace_rate=["7", "8"]),
    "a trace level": _trace(trace_level=["TIMESTAMPS"]),
    "an unknown trace level": _trace(trace_level=["NOTHING"]),
    "a trace mode": _trace(trace_mode=["opentelemetry"]),
    "an unknown trace setting": _trace(colour=["red"]),
    "trace settings back": _trace(trace_rate=[], trace_level=[]),
    "log settings": _log(),
    "a log file": _log(log_file="/tmp/x"),
    "a log file and a level": _log(log_verbose_level=1, log_file="/tmp/x"),
    "a log file as a number": _log(log_file=7),
    "a log level": _log(log_verbose_level=1),
    "a log level as a word": _log(log_verbose_level="1"),
    "a log switch as a word": _log(log_info="yes"),
    "a log format": _log(log_format="ISO8601"),
    "an unknown log format": _log(log_format="nothing"),
    "an unknown log setting": _log(colour="red"),
    "a log setting without a value": _log(log_info=None),
    "a log file without a value": _log(log_file=None),
    "a log level of 2**31": _log(log_verbose_level=2**31),
    "log settings back": _log(log_verbose_level=0, log_format="default"),
    "shared memory": _memory("Status"),
    "shared memory of an unknown region": _memory("Status", name="x"),
    "a region without a name": _memory("Register"),
    "a region that is not there": _memory("Register", name="x", key="/nothing", byte_size=8),
    "a region without a name that is not there": _memory("Register", key="/nothing", byte_size=8),
    "a region without a size": _memory("Register", name="x", key="/nothing"),
    "unregister": _memory("Unregister", name="x"),
    "unregister all": _memory("Unregister"),
    "CUDA memory": _memory("Status", "Cuda"),
    "CUDA memory of an unknown region": _memory("Status", "Cuda", name="x"),
    "a CUDA region without a name": _memory("Register", "Cuda"),
    "a CUDA region": _memory("Register", "Cuda", name="x", raw_handle=b"\0\0\0", byte_size=8),
    "unregister all CUDA memory": _memory("Unregister", "Cuda"),
}
