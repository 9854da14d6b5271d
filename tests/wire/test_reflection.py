"""Reflection: a client that knows nothing can build the messages of what is served."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from serve.core.errors import Unparsable
from serve.listeners.grpc.reflection import DESCRIPTORS
from serve.wire.messages import MessageField, ScalarKind, Table, read, write
from serve.wire.reflection import Reflection

ROOT = Path(__file__).resolve().parents[2]
REQUEST: Table = {
    1: MessageField("host", ScalarKind.TEXT),
    3: MessageField("file", ScalarKind.TEXT),
    4: MessageField("symbol", ScalarKind.TEXT),
    5: MessageField(
        "extension",
        {1: MessageField("type", ScalarKind.TEXT), 2: MessageField("number", ScalarKind.NUMBER)},
    ),
    6: MessageField("extensions", ScalarKind.TEXT),
}
SERVICES = b"\x3a\x00"
ANSWER: Table = {
    2: MessageField("asked", ScalarKind.BYTES),
    4: MessageField("files", {1: MessageField("file", ScalarKind.BYTES, many=True)}),
    5: MessageField("extensions", {1: MessageField("type", ScalarKind.TEXT)}),
    6: MessageField(
        "services",
        {1: MessageField("service", {1: MessageField("name", ScalarKind.TEXT)}, many=True)},
    ),
    7: MessageField(
        "error",
        {1: MessageField("code", ScalarKind.NUMBER), 2: MessageField("message", ScalarKind.TEXT)},
    ),
}


@pytest.fixture(scope="module")
def reflection() -> Reflection:
    return Reflection(DESCRIPTORS.read_bytes())


def ask(reflection: Reflection, message: bytes = b"", **asked: Any) -> dict[str, Any]:
    message = message or write(REQUEST, asked)
    told = read(ANSWER, reflection.answer(message))
    assert told.pop("asked", b"") == message
    return told


def files(told: dict[str, Any]) -> list[descriptor_pb2.FileDescriptorProto]:
    found = told["files"]["file"]
    return [descriptor_pb2.FileDescriptorProto.FromString(one) for one in found]


def test_the_descriptors_are_what_the_installed_tritonclient_has() -> None:
    spec = importlib.util.spec_from_file_location("descriptors", ROOT / "scripts/descriptors.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert DESCRIPTORS.read_bytes() == module.descriptors(), "out of date: run `make docs`"


def test_services_are_listed(reflection: Reflection) -> None:
    listed = ask(reflection, SERVICES)["services"]["service"]
    assert [one["name"] for one in listed] == [
        "grpc.health.v1.Health",
        "inference.GRPCInferenceService",
        "tensorflow.serving.ModelService",
        "tensorflow.serving.PredictionService",
    ]


def test_a_symbol_leads_to_its_file_and_a_file_comes_with_what_it_needs(
    reflection: Reflection,
) -> None:
    for file, symbols in (
        (
            "grpc_service.proto",
            (
                *("GRPCInferenceService", "GRPCInferenceService.ModelInfer", "ModelInferRequest"),
                "ModelInferRequest.InferInputTensor",
                "ModelInferRequest.InferInputTensor.datatype",
            ),
        ),
        ("model_config.proto", ("DataType", "TYPE_FP32")),
    ):
        for symbol in symbols:
            found = files(ask(reflection, symbol=f"inference.{symbol}"))
            assert found[0].name == file, symbol
    for symbol in ("HealthCheckResponse.ServingStatus", "HealthCheckResponse.SERVING"):
        found = files(ask(reflection, symbol=f"grpc.health.v1.{symbol}"))
        assert found[0].name == "grpc/health/v1/health.proto", symbol
    names = [one.name for one in files(ask(reflection, file="grpc_service.proto"))]
    assert names == ["grpc_service.proto", "model_config.proto"]


def test_what_is_told_is_enough_to_build_a_request(reflection: Reflection) -> None:
    for service, method, fields, message in (
        ("inference.GRPCInferenceService", "ModelInfer", {"model_name": "m"}, b"\x0a\x01m"),
        ("grpc.health.v1.Health", "Check", {"service": "m"}, b"\x0a\x01m"),
        (
            "tensorflow.serving.PredictionService",
            "Predict",
            {"model_spec": {"name": "m"}},
            b"\x0a\x03\x0a\x01m",
        ),
    ):
        pool = descriptor_pool.DescriptorPool()
        for file in reversed(files(ask(reflection, symbol=service))):
            pool.Add(file)
        found = pool.FindServiceByName(service).FindMethodByName(method)
        made = message_factory.GetMessageClass(found.input_type)(**fields)
        assert made.SerializeToString() == message, (service, method, fields)


def test_what_there_is_not_is_not_found_and_what_asks_nothing_is_refused(
    reflection: Reflection,
) -> None:
    for code, asked in (
        (5, {"file": "nothing.proto"}),
        (5, {"symbol": "inference.Nothing"}),
        (5, {"extension": {"type": "inference.ModelInferRequest", "number": 5}}),
        (5, {"extensions": "inference.Nothing"}),
        (3, {"host": "here"}),
    ):
        assert ask(reflection, **asked)["error"]["code"] == code, asked
    name = "inference.ModelInferRequest"
    assert ask(reflection, extensions=name) == {"extensions": {"type": name}}, "it has none"
    with pytest.raises(Unparsable):
        reflection.answer(b"\xff\xff")
