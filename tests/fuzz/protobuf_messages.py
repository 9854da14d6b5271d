"""Protobuf: what is routed is what is executed, for every message that a server can parse.

The judge is protobuf itself, with the messages of tritonclient.
"""

from builders import choice
from fuzz.cutting import ways
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet
from tritonclient.grpc import service_pb2

from serve.core.errors import BadRequest
from serve.wire import protobuf
from serve.wire.sequences import sequence_key


def play(data: bytes) -> None:
    try:
        judged = service_pb2.ModelInferRequest.FromString(data)
    except DecodeError:
        judged = None
    _peek(data, judged)
    _names(data, judged)
    _append(data, judged)
    _fields(data)
    _walk(data)


def _peek(data: bytes, judged: service_pb2.ModelInferRequest | None) -> None:
    try:
        seen = protobuf.peek(data, infer=True)
    except BadRequest as error:
        has_groups = "wire type 3" in str(error)  # which nobody writes any more
        assert judged is None or has_groups, f"a good message is refused: {error}"
        return
    if judged is None:
        return  # Triton will refuse it
    assert (seen.model, seen.version) == (judged.model_name, judged.model_version), seen
    if all(one.field_number != 4 for one in UnknownFieldSet(judged)):
        # Python takes a map entry with a stray field for an unknown field, C++ does not.
        assert seen.sequence == _sequence(judged), (seen.sequence, _sequence(judged))
    plain = protobuf.peek(data, infer=False)
    assert (plain.model, plain.version, plain.sequence) == (seen.model, seen.version, "")


def _sequence(judged: service_pb2.ModelInferRequest) -> str:
    parameter = judged.parameters.get("sequence_id")
    kind = parameter.WhichOneof("parameter_choice") if parameter is not None else None
    if kind == "int64_param":
        return sequence_key(parameter.int64_param & (1 << 64) - 1)
    if kind == "uint64_param":
        return sequence_key(parameter.uint64_param)
    return sequence_key(parameter.string_param) if kind == "string_param" else ""


def _names(data: bytes, judged: service_pb2.ModelInferRequest | None) -> None:
    """However much of a message is here, the names are the same, or not known yet."""
    found = set()
    for size in {*range(min(len(data), 80)), len(data)}:
        try:
            said = protobuf.names(b"\0\0\0\0\0" + data[:size], 5, 5 + len(data))
        except BadRequest:
            said = None
            assert judged is None, "a good message is refused by its start"
        if said is not None:
            found.add(said)
    assert len(found) <= 1, found


def _append(data: bytes, judged: service_pb2.ModelInferRequest | None) -> None:
    """What is appended decides, whatever stood in the message: for all that the gateway routes."""
    if not _is_routed(data):
        return
    target = choice(3, physical="m--0a1b").target
    suffix = protobuf.field(1, target.physical_name.encode())
    message = data + suffix + protobuf.field(2, str(target.physical_version).encode())
    try:
        after = service_pb2.ModelInferRequest.FromString(message)
    except DecodeError:
        assert judged is None, "a good message has become a broken one"
        return
    executed = (after.model_name, after.model_version)
    assert executed == ("m--0a1b", "3"), f"executed is not what was routed: {executed}"
    if judged is None:
        return  # a broken message has become a good one, and goes where it was routed
    judged.model_name, judged.model_version = executed
    assert after.SerializeToString(deterministic=True) == judged.SerializeToString(
        deterministic=True
    )


def _is_routed(data: bytes) -> bool:
    """Whether the message can be read to its end; the gateway refuses what ends inside a field."""
    try:
        protobuf.peek(data, infer=True)
    except BadRequest:
        return False
    return True


def _walk(data: bytes) -> None:
    """A message ends between two fields, or not, whether it is walked at once or in pieces."""
    try:
        seen = protobuf.peek(data, infer=False)
    except BadRequest:
        seen = None
    try:
        names = protobuf.whole_names(b"\0\0\0\0\0" + data, 5)
    except BadRequest:
        names = None
    assert names == (None if seen is None else (seen.model, seen.version))
    for _, pieces in ways(data):
        walk, is_whole = protobuf.FieldWalk(), True
        try:
            for piece in pieces:
                walk.follow(piece)
            walk.finish()
        except BadRequest:
            is_whole = False
        assert is_whole == _is_row_of_fields(data)


def _is_row_of_fields(data: bytes) -> bool:
    try:
        return list(protobuf.fields(data)) is not None
    except BadRequest:
        return False


def _fields(data: bytes) -> None:
    try:
        found = list(protobuf.fields(data))
    except BadRequest:
        return
    again = b"".join(protobuf.field(n, value) for n, value in found if isinstance(value, bytes))
    strings = [(n, value) for n, value in found if isinstance(value, bytes)]
    if all(n < 1 << 29 for n, _ in strings):
        assert list(protobuf.fields(again)) == strings
