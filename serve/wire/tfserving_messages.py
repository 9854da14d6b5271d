"""The messages of TensorFlow Serving's gRPC API, as far as they are served, described in a table.

They stand in a pool of their own, so that a process that has TensorFlow's or its clients' messages
does not see two of the same name; and they are made when the first call needs them, because
protobuf costs a worker 5 MB (measured).
Source: `model.proto`, `predict.proto`, `get_model_metadata.proto`, `get_model_status.proto` of
TensorFlow Serving; `tensor.proto`, `tensor_shape.proto`, `meta_graph.proto` of TensorFlow.
`Number` and `Packed` are, byte by byte, `Int64Value` and `Any` of protobuf.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

PREDICT = "/tensorflow.serving.PredictionService/Predict"
GET_MODEL_METADATA = "/tensorflow.serving.PredictionService/GetModelMetadata"
GET_MODEL_STATUS = "/tensorflow.serving.ModelService/GetModelStatus"
SIGNATURE_DEF_MAP = "type.googleapis.com/tensorflow.serving.SignatureDefMap"

_PACKAGE = "servegate.tfserving"
# message → number: "name kind"; kinds are scalars, messages, `repeated` of one, `map` from strings
# to one, and `choice`, which are those of which at most one is set.
_TABLE: Mapping[str, Mapping[int, str]] = {
    "Number": {1: "value int64"},
    "Packed": {1: "type_url string", 2: "value bytes"},
    "Dim": {1: "size int64", 2: "name string"},
    "TensorShape": {2: "dim repeated Dim", 3: "unknown_rank bool"},
    "Tensor": {
        1: "dtype int32",
        2: "tensor_shape TensorShape",
        4: "tensor_content bytes",
        5: "float_val repeated float",
        6: "double_val repeated double",
        7: "int_val repeated int32",
        8: "string_val repeated bytes",
        10: "int64_val repeated int64",
        11: "bool_val repeated bool",
        13: "half_val repeated int32",
        16: "uint32_val repeated uint32",
        17: "uint64_val repeated uint64",
    },
    "ModelSpec": {
        1: "name string",
        2: "version choice Number",
        3: "signature_name string",
        4: "version_label choice string",
    },
    "PredictRequest": {
        1: "model_spec ModelSpec",
        2: "inputs map Tensor",
        3: "output_filter repeated string",
    },
    "PredictResponse": {1: "outputs map Tensor", 2: "model_spec ModelSpec"},
    "TensorInfo": {1: "name string", 2: "dtype int32", 3: "tensor_shape TensorShape"},
    "SignatureDef": {
        1: "inputs map TensorInfo",
        2: "outputs map TensorInfo",
        3: "method_name string",
    },
    "SignatureDefMap": {1: "signature_def map SignatureDef"},
    "GetModelMetadataRequest": {1: "model_spec ModelSpec", 2: "metadata_field repeated string"},
    "GetModelMetadataResponse": {1: "model_spec ModelSpec", 2: "metadata map Packed"},
    "GetModelStatusRequest": {1: "model_spec ModelSpec"},
    "StatusProto": {1: "error_code int32", 2: "error_message string"},
    "ModelVersionStatus": {1: "version int64", 2: "state int32", 3: "status StatusProto"},
    "GetModelStatusResponse": {1: "model_version_status repeated ModelVersionStatus"},
}


@dataclass(frozen=True, slots=True)
class TfServingMessages:
    """The message classes by name."""

    classes: Mapping[str, Any]

    def make(self, name: str, **fields: Any) -> Any:
        """A new message with these fields."""
        return self.classes[name](**fields)

    def read(self, name: str, data: bytes) -> Any:
        """The message in these bytes; `ValueError` when they are none."""
        from google.protobuf.message import DecodeError

        message = self.classes[name]()
        try:
            message.ParseFromString(data)
        except DecodeError as error:
            raise ValueError(str(error)) from error
        return message


@functools.cache
def messages() -> TfServingMessages:
    """All messages, made once."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(
        name="servegate/tfserving.proto", package=_PACKAGE, syntax="proto3"
    )
    for name, fields in _TABLE.items():
        message = file.message_type.add(name=name)
        for number, words in fields.items():
            _add_field(message, number, *words.split())
    pool: Any = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    classes = {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
        for name in _TABLE
    }
    return TfServingMessages(MappingProxyType(classes))


def _add_field(message: Any, number: int, name: str, *kind: str) -> None:
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field

    field = message.field.add(name=name, number=number, label=Field.LABEL_OPTIONAL)
    how, what = kind if len(kind) == 2 else ("", *kind)
    if how == "choice":
        if not message.oneof_decl:
            message.oneof_decl.add(name="choice")
        field.oneof_index = 0
    elif how:
        field.label = Field.LABEL_REPEATED
    if how == "map":
        entry = message.nested_type.add(name=f"{name.title().replace('_', '')}Entry")
        entry.options.map_entry = True
        _add_field(entry, 1, "key", "string")
        _add_field(entry, 2, "value", what)
        what = f"{message.name}.{entry.name}"
    if what[0].isupper():
        field.type = Field.TYPE_MESSAGE
        field.type_name = f".{_PACKAGE}.{what}"
    else:
        field.type = Field.Type.Value(f"TYPE_{what.upper()}")
