"""A client of KEDA's external scaler, with stubs made here of the published service definition.

`ScaledObject` asks as KEDA does, `Channel` of `grpc.aio` beneath; nothing of the code under test is
used. The definition's few kinds of lines are read here, since tests have no compiler for it.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

SERVICE = "externalscaler.ExternalScaler"
PUBLISHED = Path(__file__).with_name("externalscaler.proto")
BOUND = 20.0  # seconds, for what takes milliseconds
_RPC = re.compile(r"rpc (\w+)\s*\((\w+)\) returns \((stream )?(\w+)\)")
_MESSAGE = re.compile(r"message (\w+) \{(.*?)\}", re.DOTALL)
_FIELD = re.compile(r"(repeated )?(map<string, string>|\w+) (\w+) = (\d+);")
_Field = descriptor_pb2.FieldDescriptorProto


def definition(text: str) -> descriptor_pb2.FileDescriptorProto:
    """What the text of such a file declares."""
    text = re.sub(r"//[^\n]*", "", text)
    file = descriptor_pb2.FileDescriptorProto(
        name="externalscaler.proto", package="externalscaler", syntax="proto3"
    )
    for name, body in _MESSAGE.findall(text):
        message = file.message_type.add(name=name)
        for repeated, kind, field, number in _FIELD.findall(body):
            added = message.field.add(name=field, number=int(number), label=_Field.LABEL_OPTIONAL)
            if repeated or kind.startswith("map"):
                added.label = _Field.LABEL_REPEATED
            if kind.startswith("map"):
                kind = _map(message, field)
            if kind[0].islower():
                added.type = _Field.Type.Value(f"TYPE_{kind.upper()}")
            else:
                added.type = _Field.TYPE_MESSAGE
                added.type_name = f".externalscaler.{kind}"
    service = file.service.add(name="ExternalScaler")
    for name, taken, stream, given in _RPC.findall(text):
        service.method.add(
            name=name,
            input_type=f".externalscaler.{taken}",
            output_type=f".externalscaler.{given}",
            server_streaming=bool(stream),
        )
    return file


def _map(message: descriptor_pb2.DescriptorProto, field: str) -> str:
    entry = message.nested_type.add(name=f"{field[0].upper()}{field[1:]}Entry")
    entry.options.map_entry = True
    for number, name in enumerate(("key", "value"), 1):
        entry.field.add(
            name=name, number=number, label=_Field.LABEL_OPTIONAL, type=_Field.TYPE_STRING
        )
    return f"{message.name}.{entry.name}"


class ScaledObject:
    """One trigger of a ScaledObject on a channel: its metadata are what KEDA was given."""

    def __init__(self, channel: grpc.aio.Channel, shown: str = "", /, **metadata: str) -> None:
        pool: Any = descriptor_pool.DescriptorPool()
        pool.Add(definition(PUBLISHED.read_text()))
        self._service = pool.FindServiceByName(SERVICE)
        self._channel = channel
        self._metadata = metadata
        self._shown = (("authorization", shown),) if shown else ()

    async def is_active(self) -> bool:
        return bool((await self.call("IsActive")).result)

    async def specs(self) -> list[tuple[str, int, float]]:
        answer = await self.call("GetMetricSpec")
        return [(one.metricName, one.targetSize, one.targetSizeFloat) for one in answer.metricSpecs]

    async def metrics(self, name: str = "") -> list[tuple[str, int, float]]:
        answer = await self.call("GetMetrics", name)
        return [
            (one.metricName, one.metricValue, one.metricValueFloat) for one in answer.metricValues
        ]

    async def call(self, method: str, metric: str = "") -> Any:
        """One answer."""
        return await self.open(method, metric)

    def open(self, method: str, metric: str = "") -> Any:
        """The call itself, of `grpc.aio`; a stream's messages are read from it."""
        found = self._service.methods_by_name[method]
        make = self._channel.unary_stream if found.server_streaming else self._channel.unary_unary
        call = make(
            f"/{SERVICE}/{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=message_factory.GetMessageClass(found.output_type).FromString,
        )
        return call(
            self._request(found, metric), metadata=self._shown, wait_for_ready=True, timeout=BOUND
        )

    def _request(self, method: Any, metric: str) -> Any:
        reference: Mapping[str, Any] = {
            "name": "triton",
            "namespace": "models",
            "scalerMetadata": self._metadata,
        }
        message: Any = message_factory.GetMessageClass(method.input_type)
        if method.input_type.name == "GetMetricsRequest":
            return message(scaledObjectRef=reference, metricName=metric)
        return message(**reference)
