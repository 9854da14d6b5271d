"""Management calls over both protocols, as bytes, by a name that says what they are."""

from __future__ import annotations

import json
from typing import Any

from tritonclient.grpc import service_pb2 as pb

from . import http_calls, raw_grpc
from .raw_grpc import unary

MODEL = "plain"
_LOAD = f"/v2/repository/models/{MODEL}/load"


def _post(path: str, body: Any) -> http_calls.RawCall:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return http_calls.post(path, data)


def _load(**parameters: Any) -> raw_grpc.RawCall:
    return _repository("RepositoryModelLoad", pb.RepositoryModelLoadRequest, parameters)


def _unload(**parameters: Any) -> raw_grpc.RawCall:
    return _repository("RepositoryModelUnload", pb.RepositoryModelUnloadRequest, parameters)


def _repository(method: str, kind: Any, parameters: dict[str, Any]) -> raw_grpc.RawCall:
    made = kind(model_name=parameters.pop("model", MODEL))
    kinds = {bool: "bool_param", int: "int64_param", bytes: "bytes_param", str: "string_param"}
    for name, value in parameters.items():
        setattr(made.parameters[name], kinds[type(value)], value)
    return unary(method, made)


def _trace(model: str = "", **settings: list[str]) -> raw_grpc.RawCall:
    made = pb.TraceSettingRequest(model_name=model)
    for name, values in settings.items():
        made.settings[name].value.extend(values)
    return unary("TraceSetting", made)


def _log(**settings: Any) -> raw_grpc.RawCall:
    made = pb.LogSettingsRequest()
    kinds = {bool: "bool_param", int: "uint32_param", str: "string_param"}
    for name, value in settings.items():
        setattr(made.settings[name], kinds[type(value)], value)
    return unary("LogSettings", made)


def _without_value(name: str) -> pb.LogSettingsRequest:
    made = pb.LogSettingsRequest()
    made.settings[name].SetInParent()
    return made


HTTP: dict[str, http_calls.RawCall] = {
    "load": _post(_LOAD, b""),
    "load of an unknown model": _post("/v2/repository/models/nothing/load", b""),
    "load of an unknown model with a configuration": _post(
        "/v2/repository/models/nothing/load", {"parameters": {"config": "{}"}}
    ),
    "a config that is no JSON": _post(_LOAD, {"parameters": {"config": "{"}}),
    "a config that is empty": _post(_LOAD, {"parameters": {"config": ""}}),
    "a config of words": _post(_LOAD, {"parameters": {"config": "max_batch_size: 1"}}),
    "a config with an unknown field": _post(_LOAD, {"parameters": {"config": '{"nothing": 1}'}}),
    "a config with a wrong value": _post(
        _LOAD, {"parameters": {"config": '{"max_batch_size": "many"}'}}
    ),
    "a config that is a list": _post(_LOAD, {"parameters": {"config": "[]"}}),
    "a config as an object": _post(_LOAD, {"parameters": {"config": {"backend": "python"}}}),
    "a config as a number": _post(_LOAD, {"parameters": {"config": 7}}),
    "a config of another model": _post(_LOAD, {"parameters": {"config": '{"name": "other"}'}}),
    "a config with an unknown data type": _post(
        _LOAD, {"parameters": {"config": '{"input": [{"name": "x", "data_type": "TYPE_X"}]}'}}
    ),
    "a config whose version is not there": _post(
        _LOAD,
        {"parameters": {"config": '{"version_policy": {"specific": {"versions": [7]}}}'}},
    ),
    "a config of null": _post(_LOAD, {"parameters": {"config": None}}),
    "a config with an unknown backend": _post(
        _LOAD, {"parameters": {"config": '{"backend": "nothing"}'}}
    ),
    "an unknown parameter of a load": _post(_LOAD, {"parameters": {"colour": "red"}}),
    "an unload parameter of a load": _post(_LOAD, {"parameters": {"unload_dependents": True}}),
    "parameters as a list": _post(_LOAD, {"parameters": []}),
    "parameters as a number": _post(_LOAD, {"parameters": 7}),
    "parameters of null": _post(_LOAD, {"parameters": None}),
    "a load of no JSON": _post(_LOAD, b"{"),
    "a load of a list": _post(_LOAD, b"[]"),
    "a load of blanks": _post(_LOAD, b"  "),
    "load of a model whose folder is broken": _post("/v2/repository/models/broken/load", b""),
    "load of a model whose code is broken": _post("/v2/repository/models/failing/load", b""),
    "load, afterwards": _post(_LOAD, b""),
    "unload of an unknown model": _post("/v2/repository/models/nothing/unload", b""),
    "dependents as a word": _post(
        "/v2/repository/models/other/unload", {"parameters": {"unload_dependents": "yes"}}
    ),
    "an unknown parameter of an unload": _post(
        "/v2/repository/models/other/unload", {"parameters": {"colour": "red"}}
    ),
    "trace settings": http_calls.get("/v2/trace/setting"),
    "trace settings of a model": http_calls.get(f"/v2/models/{MODEL}/trace/setting"),
    "trace settings of an unknown model": http_calls.get("/v2/models/nothing/trace/setting"),
    "a trace file": _post("/v2/trace/setting", {"trace_file": "/tmp/x"}),
    "a trace file of a model": _post(f"/v2/models/{MODEL}/trace/setting", {"trace_file": "/tmp/x"}),
    "a trace file of an unknown model": _post(
        "/v2/models/nothing/trace/setting", {"trace_file": "/tmp/x"}
    ),
    "a trace file of null": _post("/v2/trace/setting", {"trace_file": None}),
    "a trace file and a rate": _post(
        "/v2/trace/setting", {"trace_rate": "8", "trace_file": "/tmp/x"}
    ),
    "a trace file as a number": _post("/v2/trace/setting", {"trace_file": 7}),
    "a trace rate": _post("/v2/trace/setting", {"trace_rate": "7"}),
    "a trace rate as a number": _post("/v2/trace/setting", {"trace_rate": 6}),
    "a trace rate of words": _post("/v2/trace/setting", {"trace_rate": "often"}),
    "a trace level": _post("/v2/trace/setting", {"trace_level": ["TIMESTAMPS"]}),
    "a trace level of another kind": _post("/v2/trace/setting", {"trace_level": ["NOTHING"]}),
    "a trace level as a word": _post("/v2/trace/setting", {"trace_level": "TIMESTAMPS"}),
    "a trace level of numbers": _post("/v2/trace/setting", {"trace_level": [7]}),
    "a trace count below zero": _post("/v2/trace/setting", {"trace_count": "-2"}),
    "a trace level of null": _post("/v2/trace/setting", {"trace_level": None}),
    "a trace mode": _post("/v2/trace/setting", {"trace_mode": "opentelemetry"}),
    "an unknown trace setting": _post("/v2/trace/setting", {"colour": "red"}),
    "a trace rate of a model": _post(f"/v2/models/{MODEL}/trace/setting", {"trace_rate": "5"}),
    "trace settings back": _post(
        "/v2/trace/setting", {"trace_rate": None, "trace_level": None, "trace_count": None}
    ),
    "trace settings of a list": _post("/v2/trace/setting", b"[]"),
    "trace settings of no JSON": _post("/v2/trace/setting", b"{"),
    "trace settings of nothing": _post("/v2/trace/setting", b""),
    "log settings": http_calls.get("/v2/logging"),
    "a log file": _post("/v2/logging", {"log_file": "/tmp/x"}),
    "a log file of null": _post("/v2/logging", {"log_file": None}),
    "a log file as a number": _post("/v2/logging", {"log_file": 7}),
    "a log file and a level": _post("/v2/logging", {"log_verbose_level": 1, "log_file": "/tmp/x"}),
    "a log level": _post("/v2/logging", {"log_verbose_level": 1}),
    "a log level as a word": _post("/v2/logging", {"log_verbose_level": "1"}),
    "a log level below zero": _post("/v2/logging", {"log_verbose_level": -1}),
    "a log switch as a word": _post("/v2/logging", {"log_info": "yes"}),
    "a log format": _post("/v2/logging", {"log_format": "ISO8601"}),
    "an unknown log format": _post("/v2/logging", {"log_format": "nothing"}),
    "an unknown log setting": _post("/v2/logging", {"colour": "red"}),
    "a log level beyond 32 bits": _post("/v2/logging", {"log_verbose_level": 2**32}),
    "a log level that is a fraction": _post("/v2/logging", {"log_verbose_level": 1.5}),
    "a log level of 2**31": _post("/v2/logging", {"log_verbose_level": 2**31}),
    "log settings of null": _post("/v2/logging", {"log_info": None}),
    "log settings back": _post("/v2/logging", {"log_verbose_level": 0, "log_format": "default"}),
    "log settings of a list": _post("/v2/logging", b"[]"),
    "log settings of no JSON": _post("/v2/logging", b"{"),
    "log settings of nothing": _post("/v2/logging", b""),
    "shared memory": http_calls.get("/v2/systemsharedmemory/status"),
    "shared memory of an unknown region": http_calls.get("/v2/systemsharedmemory/region/x/status"),
    "a region that is not there": _post(
        "/v2/systemsharedmemory/region/x/register", {"key": "/nothing", "offset": 0, "byte_size": 8}
    ),
    "a region without a key": _post("/v2/systemsharedmemory/region/x/register", {"byte_size": 8}),
    "a region of nothing": _post("/v2/systemsharedmemory/region/x/register", b""),
    "unregister": _post("/v2/systemsharedmemory/region/x/unregister", b""),
    "unregister all": _post("/v2/systemsharedmemory/unregister", b""),
    "register without a name": _post("/v2/systemsharedmemory/register", {"key": "/nothing"}),
    "CUDA memory": http_calls.get("/v2/cudasharedmemory/status"),
    "a CUDA region": _post(
        "/v2/cudasharedmemory/region/x/register",
        {"raw_handle": {"b64": "AAAA"}, "device_id": 0, "byte_size": 8},
    ),
    "unregister all CUDA memory": _post("/v2/cudasharedmemory/unregister", b""),
    "GET of a load": http_calls.get(_LOAD),
    "PUT of log settings": http_calls.call("PUT", "/v2/logging", body=b"{}"),
}
GRPC: dict[str, raw_grpc.RawCall] = {
    "load": _load(),
    "load of an unknown model": _load(model="nothing"),
    "load of an unknown model with a configuration": _load(model="nothing", config="{}"),
    "load of no model": _load(model=""),
    "load of a model whose folder is broken": _load(model="broken"),
    "load of a model whose code is broken": _load(model="failing"),
    "a config that is no JSON": _load(config="{"),
    "a config that is empty": _load(config=""),
    "a config of words": _load(config="max_batch_size: 1"),
    "a config with an unknown field": _load(config='{"nothing": 1}'),
    "a config that is a list": _load(config="[]"),
    "a config as a number": _load(config=7),
    "a config as a truth": _load(config=True),
    "a config as bytes": _load(config=b"{}"),
    "a config of another model": _load(config='{"name": "other"}'),
    "a config with an unknown data type": _load(
        config='{"input": [{"name": "x", "data_type": "TYPE_X"}]}'
    ),
    "a config with an unknown backend": _load(config='{"backend": "nothing"}'),
    "an unknown parameter of a load": _load(colour="red"),
    "load, afterwards": _load(),
    "unload of an unknown model": _unload(model="nothing"),
    "dependents as a word": _unload(model="other", unload_dependents="yes"),
    "an unknown parameter of an unload": _unload(model="other", colour="red"),
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
    "a log setting without a value": unary("LogSettings", _without_value("log_info")),
    "a log file without a value": unary("LogSettings", _without_value("log_file")),
    "a log level of 2**31": _log(log_verbose_level=2**31),
    "log settings back": _log(log_verbose_level=0, log_format="default"),
    "shared memory": unary("SystemSharedMemoryStatus"),
    "shared memory of an unknown region": unary(
        "SystemSharedMemoryStatus", pb.SystemSharedMemoryStatusRequest(name="x")
    ),
    "a region without a name": unary("SystemSharedMemoryRegister"),
    "a region that is not there": unary(
        "SystemSharedMemoryRegister",
        pb.SystemSharedMemoryRegisterRequest(name="x", key="/nothing", byte_size=8),
    ),
    "a region without a name that is not there": unary(
        "SystemSharedMemoryRegister",
        pb.SystemSharedMemoryRegisterRequest(key="/nothing", byte_size=8),
    ),
    "a region without a size": unary(
        "SystemSharedMemoryRegister",
        pb.SystemSharedMemoryRegisterRequest(name="x", key="/nothing"),
    ),
    "unregister": unary(
        "SystemSharedMemoryUnregister", pb.SystemSharedMemoryUnregisterRequest(name="x")
    ),
    "unregister all": unary("SystemSharedMemoryUnregister"),
    "CUDA memory": unary("CudaSharedMemoryStatus"),
    "CUDA memory of an unknown region": unary(
        "CudaSharedMemoryStatus", pb.CudaSharedMemoryStatusRequest(name="x")
    ),
    "a CUDA region without a name": unary("CudaSharedMemoryRegister"),
    "a CUDA region": unary(
        "CudaSharedMemoryRegister",
        pb.CudaSharedMemoryRegisterRequest(name="x", raw_handle=b"\0\0\0", byte_size=8),
    ),
    "unregister all CUDA memory": unary("CudaSharedMemoryUnregister"),
}
