"""Restoring names: only the names of an answer of gRPC change.

The first byte says which: `i`, `m` and `c`, the messages of ModelInfer, ModelMetadata and
ModelConfig, each as bytes of protobuf; `e`, an error.
"""

from typing import Any

from builders import target
from fuzz.cutting import ways
from google.protobuf.message import DecodeError
from tritonclient.grpc import service_pb2

from serve.core.calls import Verb
from serve.listeners.grpc.model_names import RestoredAnswer
from serve.wire import model_names
from serve.wire.grpc_messages import PREFIX

TARGET = target(7, model="own", physical="own--0a1b")
_MESSAGES: dict[bytes, tuple[Verb, Any]] = {
    b"i": (Verb.INFER, service_pb2.ModelInferResponse),
    b"m": (Verb.METADATA, service_pb2.ModelMetadataResponse),
    b"c": (Verb.CONFIG, service_pb2.ModelConfigResponse),
}


def play(data: bytes) -> None:
    kind, rest = data[:1], data[1:]
    if kind in _MESSAGES:
        _grpc(rest, *_MESSAGES[kind])
    else:
        _error(rest)


def _error(sentence: bytes) -> None:
    restored = model_names.in_error(sentence, TARGET)
    assert b"'own--0a1b'" not in restored
    try:
        text = sentence.decode()
    except UnicodeDecodeError:
        return
    assert RestoredAnswer(Verb.INFER, TARGET).in_sentence(text) == restored.decode()


def _grpc(message: bytes, verb: Verb, kind: Any) -> None:
    stream = PREFIX.pack(0, len(message)) + message
    for _, pieces in ways(stream):
        changed = RestoredAnswer(verb, TARGET)
        out = b"".join(bytes(part) for piece in pieces for part in changed.pass_on(piece))
        assert PREFIX.unpack_from(out) == (0, len(out) - 5), out[:5]
    try:
        before = kind.FromString(message)
    except DecodeError:
        return
    after = kind.FromString(out[5:])
    if verb is Verb.CONFIG:
        assert after.config.name == TARGET.model
        before.config.name = after.config.name
    elif verb is Verb.METADATA:
        assert after.name == TARGET.model
        before.name = after.name
    else:
        assert (after.model_name, after.model_version) == (TARGET.model, str(TARGET.version))
        before.model_name, before.model_version = after.model_name, after.model_version
    assert after.SerializeToString(deterministic=True) == before.SerializeToString(
        deterministic=True
    )
