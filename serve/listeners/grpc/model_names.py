"""Restoring names in gRPC answers: callers see the model's own name, whatever Triton calls it.

The last value of a protobuf field wins and embedded messages merge, so names are restored by
appending them to the message; nothing is parsed:

    ModelInferResponse            model_name (1), model_version (2)
    ModelStreamInferResponse      infer_response (2) { model_name (1), model_version (2) }
    ModelMetadataResponse         name (1)
    ModelConfigResponse           config (1) { name (1) }

The statistics of a model keep the names that Triton counts under.
"""

from collections.abc import Iterator, Mapping

from serve.core.calls import Verb
from serve.core.snapshot import VersionTarget
from serve.wire import model_names, protobuf
from serve.wire.grpc_messages import PREFIX, PREFIX_SIZE, MessageCutter
from serve.wire.http2_stream import Piece

_FRONT = 1 << 16  # bytes of an answer in which names are looked for
_JOIN = 1 << 15  # bytes up to which a copy is cheaper than a frame of its own


class RestoredAnswer:
    """One answer of a version that has other names in Triton."""

    __slots__ = ("_messages", "_suffix", "_target")

    def __init__(self, verb: Verb, target: VersionTarget) -> None:
        self._target = target
        self._suffix = _suffix(verb, target)
        self._messages = MessageCutter()

    def in_sentence(self, sentence: str) -> str:
        """An error message with the model's own name."""
        return model_names.in_error(sentence.encode(), self._target).decode()

    def pass_on(self, piece: Piece) -> Iterator[Piece]:
        """What goes to the client of these bytes: longer messages."""
        for prefix, part, is_last in self._messages.cut(piece):
            if prefix:
                flag, length = PREFIX.unpack(prefix)
                yield PREFIX.pack(flag, length + len(self._suffix))
            if part:
                yield part
            if is_last:
                yield self._suffix


def _suffix(verb: Verb, target: VersionTarget) -> bytes:
    name = protobuf.field(1, target.model.encode())
    if verb is Verb.INFER:
        return name + protobuf.field(2, str(target.version).encode())
    if verb is Verb.METADATA:
        return name
    return protobuf.field(1, name) if verb is Verb.CONFIG else b""


class StreamRestoring:
    """The answers of one branch of a stream, each of which may come from another model.

    `renamed` holds the targets by their physical names; it grows while the stream goes on.
    """

    __slots__ = ("_front", "_is_looking", "_renamed", "_suffix")

    def __init__(self, renamed: Mapping[str, VersionTarget]) -> None:
        self._renamed = renamed
        self._front = b""  # the start of a message whose names are looked for, prefix included
        self._is_looking = False
        self._suffix = b""

    def pass_on(self, prefix: bytes, part: Piece, is_last: bool) -> Iterator[tuple[Piece, bool]]:
        """What goes to the client, and whether a message ends with it."""
        if prefix:
            self._front, self._suffix = b"", b""
            self._is_looking = bool(self._renamed)
        if not self._is_looking:
            yield from _joined(prefix, part, self._suffix if is_last else b"", is_last)
            return
        self._front += prefix
        self._front += part
        body = self._front[PREFIX_SIZE:]
        found = protobuf.answered_name(body, is_whole=is_last or len(body) > _FRONT)
        if found is None:
            return
        self._is_looking = False
        self._suffix = self._restored(found, body if is_last else b"")
        flag, length = PREFIX.unpack_from(self._front)
        longer = PREFIX.pack(flag, length + len(self._suffix))
        yield from _joined(longer, body, self._suffix if is_last else b"", is_last)

    def _restored(self, found: tuple[str, str], whole: bytes) -> bytes:
        """What is appended: names where there are any, else the sentence of an error."""
        name, version = found
        target = self._renamed.get(name)
        if target is not None:
            names = protobuf.field(1, target.model.encode())
            if version:
                names += protobuf.field(2, str(target.version).encode())
            return protobuf.field(2, names)
        if name or not whole:
            return b""
        sentence = dict(protobuf.fields(whole)).get(1)
        if not isinstance(sentence, bytes):
            return b""
        restored = sentence
        for one in self._renamed.values():
            restored = model_names.in_error(restored, one)
        return protobuf.field(1, restored) if restored != sentence else b""


def _joined(
    prefix: bytes, part: Piece, suffix: bytes, is_last: bool
) -> Iterator[tuple[Piece, bool]]:
    """One piece where a copy is cheaper than a frame, else two or three."""
    if len(part) <= _JOIN:
        yield b"".join((prefix, part, suffix)), is_last
        return
    if prefix:
        yield prefix, False
    yield part, is_last and not suffix
    if suffix:
        yield suffix, is_last
