"""The messages of KEDA's external scaler, described in a table.

They stand in a pool of their own, as those of TensorFlow Serving do, and are made when they are
needed. Source: `pkg/scalers/externalscaler/externalscaler.proto` of https://github.com/kedacore/keda
(read after 2.20.1, when `StreamMetricSpec` had been added). Numbers of KEDA up to 2.16 are whole:
`targetSize` and `metricValue`, which are filled in beside those that replace them.
"""

import functools
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

SERVICE = "externalscaler.ExternalScaler"
STREAMS = frozenset({"StreamIsActive", "StreamMetricSpec"})
METHODS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "IsActive": ("ScaledObjectRef", "IsActiveResponse"),
        "StreamIsActive": ("ScaledObjectRef", "IsActiveResponse"),
        "GetMetricSpec": ("ScaledObjectRef", "GetMetricSpecResponse"),
        "GetMetrics": ("GetMetricsRequest", "GetMetricsResponse"),
        "StreamMetricSpec": ("ScaledObjectRef", "GetMetricSpecResponse"),
    }
)
_PACKAGE = "externalscaler"
# message → number: "name kind"; kinds are scalars, `repeated` of a message, a message, and `map`
# from strings to strings.
_TABLE: Mapping[str, Mapping[int, str]] = {
    "ScaledObjectRef": {1: "name string", 2: "namespace string", 3: "scalerMetadata map"},
    "IsActiveResponse": {1: "result bool"},
    "GetMetricSpecResponse": {1: "metricSpecs repeated MetricSpec"},
    "MetricSpec": {1: "metricName string", 2: "targetSize int64", 3: "targetSizeFloat double"},
    "GetMetricsRequest": {1: "scaledObjectRef ScaledObjectRef", 2: "metricName string"},
    "GetMetricsResponse": {1: "metricValues repeated MetricValue"},
    "MetricValue": {1: "metricName string", 2: "metricValue int64", 3: "metricValueFloat double"},
}


@functools.cache
def classes() -> Mapping[str, Any]:
    """The message classes by name, made once."""
    from google.protobuf import descriptor_pool, message_factory

    pool: Any = descriptor_pool.DescriptorPool()
    pool.Add(_file())
    return MappingProxyType(
        {
            name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
            for name in _TABLE
        }
    )


def descriptors() -> bytes:
    """All of it as a serialised `FileDescriptorSet`, for server reflection."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    return FileDescriptorSet(file=[_file()]).SerializeToString(deterministic=True)


def _file() -> Any:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    file = FileDescriptorProto(name="externalscaler.proto", package=_PACKAGE, syntax="proto3")
    for name, fields in _TABLE.items():
        message = file.message_type.add(name=name)
        for number, words in fields.items():
            _add_field(message, number, *words.split())
    service = file.service.add(name=SERVICE.removeprefix(f"{_PACKAGE}."))
    for name, (taken, given) in METHODS.items():
        service.method.add(
            name=name,
            input_type=f".{_PACKAGE}.{taken}",
            output_type=f".{_PACKAGE}.{given}",
            server_streaming=name in STREAMS,
        )
    return file


def _add_field(message: Any, number: int, name: str, *kind: str) -> None:
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field

    field = message.field.add(name=name, number=number, label=Field.LABEL_OPTIONAL)
    what = kind[-1]
    if what != kind[0] or what == "map":
        field.label = Field.LABEL_REPEATED
    if what == "map":
        entry = message.nested_type.add(name=f"{name[0].upper()}{name[1:]}Entry")
        entry.options.map_entry = True
        _add_field(entry, 1, "key", "string")
        _add_field(entry, 2, "value", "string")
        what = f"{message.name}.{entry.name}"
    if what[0].isupper():
        field.type = Field.TYPE_MESSAGE
        field.type_name = f".{_PACKAGE}.{what}"
    else:
        field.type = Field.Type.Value(f"TYPE_{what.upper()}")
