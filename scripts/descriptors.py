"""Writes the descriptors that gRPC reflection hands out: of tritonclient, and of our own tables.

Run it with `make docs`; a test fails while the file differs from what this would write.
"""

from google.protobuf.descriptor_pb2 import (
    FieldDescriptorProto,
    FileDescriptorProto,
    ServiceDescriptorProto,
)
from google.protobuf.descriptor_pb2 import FileDescriptorSet as Files
from tritonclient.grpc import model_config_pb2, service_pb2

from serve.listeners.grpc.reflection import DESCRIPTORS
from serve.wire import tfserving_messages

_TFSERVING = (
    tfserving_messages.PREDICT,
    tfserving_messages.GET_MODEL_METADATA,
    tfserving_messages.GET_MODEL_STATUS,
)


def descriptors() -> bytes:
    """What Triton serves: its own service, and health; and the services of TensorFlow Serving."""
    files = Files()
    for module in (model_config_pb2, service_pb2):
        files.file.add().ParseFromString(module.DESCRIPTOR.serialized_pb)
    files.file.append(_health())
    messages = next(iter(tfserving_messages.messages().classes.values())).DESCRIPTOR.file
    files.file.add().ParseFromString(messages.serialized_pb)
    files.file.append(_tfserving(messages.name, messages.package))
    return files.SerializeToString(deterministic=True)


def _health() -> FileDescriptorProto:
    """grpc.health.v1, of https://github.com/grpc/grpc/blob/master/doc/health-checking.md."""
    file = FileDescriptorProto(
        name="grpc/health/v1/health.proto", package="grpc.health.v1", syntax="proto3"
    )
    one, text = FieldDescriptorProto.LABEL_OPTIONAL, FieldDescriptorProto.TYPE_STRING
    asked = file.message_type.add(name="HealthCheckRequest")
    asked.field.add(name="service", json_name="service", number=1, label=one, type=text)
    answer = file.message_type.add(name="HealthCheckResponse")
    states = answer.enum_type.add(name="ServingStatus")
    for number, name in enumerate(("UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN")):
        states.value.add(name=name, number=number)
    answer.field.add(
        name="status",
        json_name="status",
        number=1,
        label=one,
        type=FieldDescriptorProto.TYPE_ENUM,
        type_name=".grpc.health.v1.HealthCheckResponse.ServingStatus",
    )
    service = file.service.add(name="Health")
    names = {
        "input_type": ".grpc.health.v1.HealthCheckRequest",
        "output_type": ".grpc.health.v1.HealthCheckResponse",
    }
    service.method.add(name="Check", **names)
    service.method.add(name="Watch", server_streaming=True, **names)
    return file


def _tfserving(messages: str, package: str) -> FileDescriptorProto:
    """TensorFlow Serving's services, as far as they are served, with the messages used here."""
    file = FileDescriptorProto(
        name="tensorflow_serving.proto",
        package="tensorflow.serving",
        dependency=[messages],
        syntax="proto3",
    )
    services: dict[str, ServiceDescriptorProto] = {}
    for path in _TFSERVING:
        _, name, method = path.split("/")
        name = name.removeprefix("tensorflow.serving.")
        service = services.get(name) or services.setdefault(name, file.service.add(name=name))
        service.method.add(
            name=method,
            input_type=f".{package}.{method}Request",
            output_type=f".{package}.{method}Response",
        )
    return file


if __name__ == "__main__":
    DESCRIPTORS.write_bytes(descriptors())
