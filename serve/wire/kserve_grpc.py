"""KServe v2 over gRPC: the service's method paths, and which of them the gateway serves."""

from serve.core.calls import Headers, Verb
from serve.core.errors import NotHere, NotServed

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
}
_VERBS = {path: verb for verb, path in _METHODS.items()}

# Metadata that belongs to one hop; gRPC libraries write these themselves.
_HOP = frozenset({b"user-agent", b"te", b"content-type", b"host"})


def parse(method: str) -> Verb:
    """The verb behind a method path; `NotServed` for the rest of Triton's service."""
    verb = _VERBS.get(method)
    if verb is not None:
        return verb
    if method.startswith(SERVICE):
        raise NotServed(f"{method.removeprefix(SERVICE)} is not served by the gateway")
    raise NotHere(f"unknown method {method}")


def method_of(verb: Verb) -> str:
    """The method path of a verb on Triton."""
    return _METHODS[verb]


def end_to_end(metadata: Headers) -> Headers:
    """The metadata that is passed on: everything but pseudo-headers and what belongs to one hop."""
    return tuple(
        (key, value)
        for key, value in metadata
        if key not in _HOP and not key.startswith((b":", b"grpc-"))
    )
