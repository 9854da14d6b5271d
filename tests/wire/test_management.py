"""Management calls on the wire, against the message definitions that tritonclient ships."""

import json
from typing import Any

import pytest
from tritonclient.grpc import service_pb2

from serve.core.errors import BadRequest, MethodNotAllowed
from serve.wire.kserve_grpc import SERVICE
from serve.wire.management import (
    MemoryWish,
    Wish,
    memory_of_http,
    read_path,
    settings_json,
    wish_of_http,
)
from serve.wire.management_grpc import GRPC_METHODS, of_grpc, regions_message, settings_message

LOAD = b"/v2/repository/models/m/load"
UNLOAD = b"/v2/repository/models/m/unload"


@pytest.mark.parametrize(
    ("method", "path", "kind"),
    [
        ("POST", LOAD, "wish"),
        ("POST", b"/v2/repository/here/models/m/unload", "wish"),
        ("GET", b"/v2/trace/setting", "wish"),
        ("POST", b"/v2/models/m/trace/setting", "wish"),
        ("GET", b"/v2/logging", "wish"),
        ("GET", b"/v2/systemsharedmemory/status", "memory"),
        ("GET", b"/v2/cudasharedmemory/region/r/status", "memory"),
        ("POST", b"/v2/systemsharedmemory/region/r/register", "memory"),
        ("POST", b"/v2/systemsharedmemory/unregister", "memory"),
        ("POST", b"/v2/repository/index", ""),
        ("GET", b"/v2/models/m", ""),
        ("POST", LOAD + b"/", ""),
        ("GET", b"/v2/logging\n", ""),
    ],
)
def test_management_paths_are_known(method: str, path: bytes, kind: str) -> None:
    assert read_path(method, path) == kind


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", LOAD),
        ("PUT", b"/v2/logging"),
        ("HEAD", b"/v2/trace/setting"),
        ("GET", b"/v2/systemsharedmemory/region/r/register"),
        ("POST", b"/v2/systemsharedmemory/status"),
    ],
)
def test_other_methods_are_not_allowed(method: str, path: bytes) -> None:
    with pytest.raises(MethodNotAllowed):
        read_path(method, path)


def grpc_load(**parameters: Any) -> bytes:
    request = service_pb2.RepositoryModelLoadRequest(model_name="m")
    for name, value in parameters.items():
        kind = {bool: "bool_param", int: "int64_param", bytes: "bytes_param"}
        setattr(request.parameters[name], kind.get(type(value), "string_param"), value)
    return bytes(request.SerializeToString())


def http_load(**parameters: Any) -> bytes:
    return json.dumps({"parameters": parameters}).encode()


def over(protocol: str, act: str, **parameters: Any) -> Wish | MemoryWish:
    if protocol == "grpc":
        return of_grpc(f"{SERVICE}RepositoryModel{act.title()}", grpc_load(**parameters))
    return wish_of_http("POST", LOAD if act == "load" else UNLOAD, http_load(**parameters))


both = pytest.mark.parametrize("protocol", ["http", "grpc"])


@both
def test_load_and_unload_are_read(protocol: str) -> None:
    assert over(protocol, "load") == Wish("load", "m")
    assert over(protocol, "load", config="{}") == Wish("load", "m", config="{}")
    assert over(protocol, "unload", unload_dependents=True) == Wish("unload", "m", dependents=True)


@both
@pytest.mark.parametrize(
    ("act", "parameters"),
    [
        ("load", {"file:1/model.onnx": "AAAA"}),
        ("load", {"file:" + "A" * 300: "AAAA", "config": "{}"}),
        ("load", {"config": 7}),
        ("load", {"unload_dependents": True}),
        ("unload", {"unload_dependents": "yes"}),
        ("unload", {"config": "{}"}),
    ],
)
def test_what_can_never_be_done_is_refused(
    protocol: str, act: str, parameters: dict[str, Any]
) -> None:
    with pytest.raises(BadRequest):
        over(protocol, act, **parameters)


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"parameters": 7}', b"[" * 100_000])
def test_a_body_that_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(BadRequest):
        wish_of_http("POST", LOAD, body)


@pytest.mark.parametrize("body", [b"", b" ", b"{}", b'{"parameters": null}'])
def test_a_body_may_say_nothing(body: bytes) -> None:
    assert wish_of_http("POST", LOAD, body) == Wish("load", "m")


def test_trace_settings_are_read_and_answered() -> None:
    request = service_pb2.TraceSettingRequest(model_name="m")
    request.settings["trace_level"].value.extend(["TIMESTAMPS", "TENSORS"])
    request.settings["trace_rate"].CopyFrom(service_pb2.TraceSettingRequest.SettingValue())
    wish = of_grpc(SERVICE + "TraceSetting", request.SerializeToString())
    levels = ["TIMESTAMPS", "TENSORS"]
    assert wish == Wish("trace", "m", settings={"trace_level": levels, "trace_rate": None})
    body = b'{"trace_level": ["OFF"], "trace_rate": null}'
    assert wish_of_http("POST", b"/v2/models/m/trace/setting", body) == Wish(
        "trace", "m", settings={"trace_level": ["OFF"], "trace_rate": None}
    )
    held = {"trace_level": levels, "trace_rate": ["9"]}
    answer = service_pb2.TraceSettingResponse.FromString(settings_message("trace", held))
    assert {name: list(value.value) for name, value in answer.settings.items()} == held
    assert json.loads(settings_json("trace", held)) == {"trace_level": levels, "trace_rate": "9"}


def test_a_question_for_settings_carries_none() -> None:
    assert wish_of_http("GET", b"/v2/trace/setting", b"") == Wish("trace")
    assert of_grpc(SERVICE + "LogSettings", b"") == Wish("logging")


def test_log_settings_are_read_and_answered() -> None:
    settings = {"log_info": False, "log_verbose_level": 3, "log_format": "ISO8601"}
    request = service_pb2.LogSettingsRequest()
    request.settings["log_info"].bool_param = False
    request.settings["log_verbose_level"].uint32_param = 3
    request.settings["log_format"].string_param = "ISO8601"
    wish = of_grpc(SERVICE + "LogSettings", request.SerializeToString())
    assert wish == Wish("logging", settings=settings)
    body = json.dumps(settings).encode()
    assert wish_of_http("POST", b"/v2/logging", body) == wish
    answer = service_pb2.LogSettingsResponse.FromString(settings_message("logging", settings))
    assert answer == service_pb2.LogSettingsResponse.FromString(request.SerializeToString())
    assert json.loads(settings_json("logging", settings)) == settings


def test_shared_memory_over_grpc_becomes_what_the_http_interface_takes() -> None:
    system = service_pb2.SystemSharedMemoryRegisterRequest(
        name="r", key="/k", offset=8, byte_size=1 << 33
    )
    made = of_grpc(SERVICE + "SystemSharedMemoryRegister", system.SerializeToString())
    assert isinstance(made, MemoryWish)
    assert (made.method, made.path) == ("POST", "/v2/systemsharedmemory/region/r/register")
    assert json.loads(made.body) == {"key": "/k", "offset": 8, "byte_size": 1 << 33}
    cuda = service_pb2.CudaSharedMemoryRegisterRequest(
        name="r", raw_handle=b"\x00\xff", device_id=1, byte_size=64
    )
    made = of_grpc(SERVICE + "CudaSharedMemoryRegister", cuda.SerializeToString())
    assert isinstance(made, MemoryWish)
    assert json.loads(made.body) == {
        "raw_handle": {"b64": "AP8="},
        "device_id": 1,
        "byte_size": 64,
    }
    asked = of_grpc(SERVICE + "SystemSharedMemoryStatus", b"")
    assert asked == MemoryWish("GET", "/v2/systemsharedmemory/status", is_status=True)
    gone = service_pb2.SystemSharedMemoryUnregisterRequest(name="r").SerializeToString()
    assert of_grpc(SERVICE + "SystemSharedMemoryUnregister", gone) == MemoryWish(
        "POST", "/v2/systemsharedmemory/region/r/unregister"
    )
    bad = service_pb2.SystemSharedMemoryUnregisterRequest(name="../x").SerializeToString()
    with pytest.raises(BadRequest):
        of_grpc(SERVICE + "SystemSharedMemoryUnregister", bad)


def test_regions_are_answered_as_messages() -> None:
    system = [{"name": "r", "key": "/k", "offset": 0, "byte_size": 64}]
    answer = service_pb2.SystemSharedMemoryStatusResponse.FromString(
        regions_message("system", json.dumps(system).encode())
    )
    assert answer.regions["r"].key == "/k"
    assert answer.regions["r"].byte_size == 64
    cuda = [{"name": "r", "device_id": 1, "byte_size": 64}]
    told = service_pb2.CudaSharedMemoryStatusResponse.FromString(
        regions_message("cuda", json.dumps(cuda).encode())
    )
    assert (told.regions["r"].device_id, told.regions["r"].byte_size) == (1, 64)


def test_a_shared_memory_request_over_http_passes_as_it_is() -> None:
    path = b"/v2/systemsharedmemory/region/r/register"
    assert memory_of_http("POST", path, b"{}") == MemoryWish("POST", path.decode(), b"{}")


def test_every_management_method_of_tritons_service_is_known() -> None:
    service = service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"]
    words = ("SharedMemory", "Setting", "ModelLoad", "ModelUnload")
    names = {one.name for one in service.methods if any(word in one.name for word in words)}
    assert {SERVICE + name for name in names} == set(GRPC_METHODS)
