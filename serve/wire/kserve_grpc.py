"""KServe v2 over gRPC: the service's method paths, and which of them the gateway serves."""

import re

from serve.core.calls import Verb
from serve.core.errors import BadVersion, NotHere
from serve.wire import protobuf, unserved
from serve.wire.grpc_messages import PREFIX_SIZE, Piece, read_prefix

SERVICE = "/inference.GRPCInferenceService/"
SERVER_LIVE = SERVICE + "ServerLive"
SERVER_READY = SERVICE + "ServerReady"
OWN = frozenset({SERVER_LIVE, SERVER_READY})
"""Methods that the gateway always answers itself."""

_METHODS: dict[Verb, str] = {
    Verb.SERVER_METADATA: SERVICE + "ServerMetadata",
    Verb.READY: SERVICE + "ModelReady",
    Verb.METADATA: SERVICE + "ModelMetadata",
    Verb.CONFIG: SERVICE + "ModelConfig",
    Verb.STATS: SERVICE + "ModelStatistics",
    Verb.INDEX: SERVICE + "RepositoryIndex",
    Verb.INFER: SERVICE + "ModelInfer",
    Verb.STREAM: SERVICE + "ModelStreamInfer",
}
_STARTS_NUMBER = frozenset("0123456789+- \t\n\v\f\r")
_NUMBER = re.compile(r"[ \t\n\v\f\r]*([+-]?)([0-9]+)")
_LARGEST_NUMBER = 1 << 63  # below 0, that Triton can read
_LONGEST_NUMBER = 1000  # digits that are looked at
_VERBS = {path: verb for verb, path in _METHODS.items()}


def parse(method: str) -> Verb:
    """The verb behind a method path; `NotServed` for the rest of Triton's service."""
    verb = _VERBS.get(method)
    if verb is not None:
        return verb
    if method.startswith(SERVICE):
        refusal = unserved.refusal_of_method(method.removeprefix(SERVICE))
        if refusal is not None:
            raise refusal
    raise NotHere("")  # Triton has no words for it either


def selector_of(version: str) -> str:
    """What a message's version, which is no plain number, selects: a label, or a number's digits.

    Read as Triton reads it (`stol`): spaces, a sign, and as many digits as follow, so that ` 01`
    and `1.5` are 1. What starts so is never a label. `BadVersion`, in Triton's words, where no
    digits follow, and for less than 0.
    """
    if version[:1] not in _STARTS_NUMBER:
        return version
    match = _NUMBER.match(version)
    if match is None:
        raise BadVersion(version)
    sign, digits = match.groups()
    if sign == "-" and digits.strip("0"):
        is_read = len(digits) <= _LONGEST_NUMBER and int(digits) <= _LARGEST_NUMBER
        raise BadVersion(version, is_read=is_read)
    return digits


def stream_error(sentence: str, request_id: bytes) -> bytes:
    """A `ModelStreamInferResponse`: one request of a stream has failed, and the stream goes on."""
    identity = protobuf.field(3, request_id) if request_id else b""
    return protobuf.field(1, sentence.encode()) + protobuf.field(2, identity)


def stream_sentence(piece: Piece) -> str:
    """The error in a `ModelStreamInferResponse`, when this is all of one; else nothing."""
    if bytes(piece[PREFIX_SIZE : PREFIX_SIZE + 1]) != b"\x0a":  # an answer begins with field 2
        return ""
    flag, length = read_prefix(piece)
    if flag or len(piece) != PREFIX_SIZE + length:
        return ""
    sentence = dict(protobuf.fields(bytes(piece[PREFIX_SIZE:]))).get(1)
    return sentence.decode(errors="replace") if isinstance(sentence, bytes) else ""


def method_of(verb: Verb) -> str:
    """The method path of a verb on Triton."""
    return _METHODS[verb]
