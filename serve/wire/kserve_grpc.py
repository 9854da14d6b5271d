"""KServe v2 over gRPC: the service's method paths, and which of them the gateway serves."""

from serve.core.calls import Verb
from serve.core.errors import NotHere, NotServed
from serve.wire import protobuf

SERVICE = "/inference.GRPCInferenceService/"
SERVER_LIVE = SERVICE + "ServerLive"
SERVER_READY = SERVICE + "ServerReady"

_METHODS: dict[Verb, str] = {
    Verb.SERVER_METADATA: SERVICE + "ServerMetadata",
    Verb.READY: SERVICE + "ModelReady",
    Verb.METADATA: SERVICE + "ModelMetadata",
    Verb.CONFIG: SERVICE + "ModelConfig",
    Verb.STATS: SERVICE + "ModelStatistics",
    Verb.INFER: SERVICE + "ModelInfer",
    Verb.STREAM: SERVICE + "ModelStreamInfer",
}
_VERBS = {path: verb for verb, path in _METHODS.items()}


def parse(method: str) -> Verb:
    """The verb behind a method path; `NotServed` for the rest of Triton's service."""
    verb = _VERBS.get(method)
    if verb is not None:
        return verb
    if method.startswith(SERVICE):
        raise NotServed(f"{method.removeprefix(SERVICE)} is not served by the gateway")
    raise NotHere(f"unknown method {method}")


def stream_error(sentence: str, request_id: bytes) -> bytes:
    """A `ModelStreamInferResponse`: one request of a stream has failed, and the stream goes on."""
    identity = protobuf.field(3, request_id) if request_id else b""
    return protobuf.field(1, sentence.encode()) + protobuf.field(2, identity)


def method_of(verb: Verb) -> str:
    """The method path of a verb on Triton."""
    return _METHODS[verb]
