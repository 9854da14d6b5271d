"""Management calls on the wire, against the message definitions that tritonclient ships."""

import json
from typing import Any

from refusals import refusal
from tritonclient.grpc import service_pb2

from serve.core.errors import BadRequest, MethodNotAllowed, TooMuchJson, WrongJson
from serve.wire.kserve_grpc import SERVICE
from serve.wire.management import ManagementOrder, read_path, settings_json, wish_of_http
from serve.wire.management_grpc import MEMORY, WISHES, of_grpc, settings_message

LOAD = b"/v2/repository/models/m/load"
UNLOAD = b"/v2/repository/models/m/unload"


def test_management_paths_are_known() -> None:
    for method, path, kind in (
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
    ):
        assert read_path(method, path) == kind, (method, path)


def test_other_methods_are_not_allowed() -> None:
    for method, path in (
        ("GET", LOAD),
        ("PUT", b"/v2/logging"),
        ("HEAD", b"/v2/trace/setting"),
        ("DELETE", b"/v2/models/m/trace/setting"),
        ("GET", b"/v2/cudasharedmemory/region/r/register"),
        ("POST", b"/v2/systemsharedmemory/status"),
    ):
        refusal(MethodNotAllowed, read_path, method, path)


def grpc_load(**parameters: Any) -> bytes:
    request = service_pb2.RepositoryModelLoadRequest(model_name="m")
    for name, value in parameters.items():
        kind = {bool: "bool_param", int: "int64_param", bytes: "bytes_param"}
        setattr(request.parameters[name], kind.get(type(value), "string_param"), value)
    return bytes(request.SerializeToString())


def over(protocol: str, act: str, **parameters: Any) -> ManagementOrder:
    if protocol == "grpc":
        return of_grpc(f"{SERVICE}RepositoryModel{act.title()}", grpc_load(**parameters))
    body = json.dumps({"parameters": parameters}).encode()
    return wish_of_http("POST", LOAD if act == "load" else UNLOAD, body)


def test_load_and_unload_are_read() -> None:
    config, dependents = {"config": "{}"}, {"unload_dependents": True}
    for protocol in ("http", "grpc"):
        for act, parameters, order in (
            ("load", {}, ManagementOrder("load", "m")),
            ("load", config, ManagementOrder("load", "m", config="{}")),
            ("unload", dependents, ManagementOrder("unload", "m", dependents=True)),
            ("unload", config, ManagementOrder("unload", "m")),  # says nothing there
        ):
            assert over(protocol, act, **parameters) == order, (protocol, act, parameters)


def test_what_can_never_be_done_is_refused() -> None:
    """In Triton's words, with which `test_differential_management` compares them."""
    for protocol in ("http", "grpc"):
        for act, parameters in (
            ("load", {"file:1/model.onnx": "AAAA"}),
            ("load", {"file:" + "A" * 300: "AAAA", "config": "{}"}),
            ("load", {"config": 7}),
            ("load", {"x": "y"}),
            ("load", {"unload_dependents": True}),
            ("unload", {"unload_dependents": "yes"}),
        ):
            refusal(BadRequest, over, protocol, act, **parameters)
    for parameters in ({"config": {}}, {"config": None}):
        refusal(WrongJson, over, "http", "load", **parameters)


def test_a_body_may_say_nothing_and_one_that_cannot_be_read_is_refused() -> None:
    for body in (b"", b"{}", b"[]", b'{"parameters": {}}'):
        assert wish_of_http("POST", LOAD, body) == ManagementOrder("load", "m"), body
    for body in (b"{", b" ", b'{"parameters": 7}', b"[" * 100_000):
        refusal(WrongJson, wish_of_http, "POST", LOAD, body)
    refusal(TooMuchJson, wish_of_http, "POST", b"/v2/logging", b"[" + b"[]," * 300_000 + b"[]]")


def test_trace_settings_are_read_and_answered() -> None:
    request = service_pb2.TraceSettingRequest(model_name="m")
    request.settings["trace_level"].value.extend(["TIMESTAMPS", "TENSORS"])
    request.settings["trace_rate"].CopyFrom(service_pb2.TraceSettingRequest.SettingValue())
    wish = of_grpc(SERVICE + "TraceSetting", request.SerializeToString())
    levels = ["TIMESTAMPS", "TENSORS"]
    assert wish == ManagementOrder(
        "trace", "m", settings={"trace_level": levels, "trace_rate": None}
    )
    body = b'{"trace_level": ["OFF"], "trace_rate": null}'
    assert wish_of_http("POST", b"/v2/models/m/trace/setting", body) == ManagementOrder(
        "trace", "m", settings={"trace_level": ["OFF"], "trace_rate": None}
    )
    held = {"trace_level": levels, "trace_rate": ["9"]}
    answer = service_pb2.TraceSettingResponse.FromString(settings_message("trace", held))
    assert {name: list(value.value) for name, value in answer.settings.items()} == held
    mixed = {"trace_rate": ["9"], "more": ["x"], "trace_level": levels}
    assert settings_json("trace", mixed) == (
        b'{"trace_level":["TIMESTAMPS","TENSORS"],"trace_rate":"9","more":"x"}'
    )


def test_log_settings_are_read_and_answered() -> None:
    settings = {"log_info": False, "log_verbose_level": 3, "log_format": "ISO8601"}
    request = service_pb2.LogSettingsRequest()
    request.settings["log_info"].bool_param = False
    request.settings["log_verbose_level"].uint32_param = 3
    request.settings["log_format"].string_param = "ISO8601"
    wish = of_grpc(SERVICE + "LogSettings", request.SerializeToString())
    assert wish == ManagementOrder("logging", settings=settings)
    body = json.dumps(settings).encode()
    assert wish_of_http("POST", b"/v2/logging", body) == wish
    answer = service_pb2.LogSettingsResponse.FromString(settings_message("logging", settings))
    assert answer == service_pb2.LogSettingsResponse.FromString(request.SerializeToString())
    assert settings_json("logging", settings) == (
        b'{"log_info":false,"log_verbose_level":3,"log_format":"ISO8601"}'
    )


def test_a_setting_of_a_wrong_kind_is_refused_in_tritons_words() -> None:
    for path, body, kind in (
        (b"/v2/trace/setting", {"trace_rate": 7}, "string"),
        (b"/v2/trace/setting", {"trace_level": [7]}, "string"),
        (b"/v2/trace/setting", {"trace_level": "OFF"}, "array"),
        (b"/v2/logging", {"log_info": 1}, "boolean"),
        (b"/v2/logging", {"log_verbose_level": True}, "unsigned-integer"),
        (b"/v2/logging", {"log_verbose_level": -1}, "unsigned-integer"),
        (b"/v2/logging", {"log_format": 7}, "string"),
    ):
        error = refusal(WrongJson, wish_of_http, "POST", path, json.dumps(body).encode())
        assert str(error) == f"attempt to access JSON non-{kind} as {kind}", (path, body)


def test_settings_that_triton_does_not_know_and_log_settings_of_null_say_nothing() -> None:
    body = b'{"x": 1, "log_info": null, "log_file": null}'
    assert wish_of_http("POST", b"/v2/logging", body) == ManagementOrder("logging")
    assert wish_of_http("POST", b"/v2/trace/setting", b'{"x": 1}') == ManagementOrder("trace")
    request = service_pb2.LogSettingsRequest()
    request.settings["x"].bool_param = True
    for message in (request.SerializeToString(), b""):
        assert of_grpc(SERVICE + "LogSettings", message) == ManagementOrder("logging")
    assert wish_of_http("GET", b"/v2/trace/setting", b"") == ManagementOrder("trace")


def test_a_file_is_left_to_be_refused_once_the_model_is_known() -> None:
    for path in (b"/v2/trace/setting", b"/v2/logging"):
        name = "trace_file" if b"trace" in path else "log_file"
        body = json.dumps({"trace_rate": 7, "log_info": 7, name: "/x"}).encode()
        assert wish_of_http("POST", path, body).settings[name] == "/x", path


def test_every_management_method_of_tritons_service_is_known() -> None:
    service = service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"]
    words = ("SharedMemory", "Setting", "ModelLoad", "ModelUnload")
    names = {one.name for one in service.methods if any(word in one.name for word in words)}
    assert {SERVICE + name for name in names} == {*WISHES, *MEMORY}
