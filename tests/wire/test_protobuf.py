"""Protobuf bytes: what the reader sees is what protobuf sees, and garbage is a bad request."""

import contextlib
import itertools
import random

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from refusals import refusal
from tritonclient.grpc import service_pb2

from serve.core.errors import BadRequest, Unparsable
from serve.wire.protobuf import (
    FieldWalk,
    Peek,
    answered_name,
    boolean,
    field,
    fields,
    names,
    peek,
    request_id,
    whole_names,
)

NAMES = ["", "m", "digits", "größe", "x" * 127, "x" * 128, "x" * 20_000, "\0", "😀"]


def request(
    model: str = "digits", version: str = "", sequence: int | None = None, tensors: int = 1
) -> service_pb2.ModelInferRequest:
    """An infer request with some of everything around what routing reads."""
    message = service_pb2.ModelInferRequest(model_name=model, model_version=version, id="77")
    message.parameters["binary_data"].bool_param = True
    message.parameters["temperature"].double_param = 0.5
    if sequence is not None:
        message.parameters["sequence_id"].int64_param = sequence
    for number in range(tensors):
        message.inputs.add(name=f"x{number}", datatype="FP32", shape=[1, 8, 8, 1])
        message.raw_input_contents.append(random.Random(number).randbytes(256))
    return message


def test_name_and_version_are_read_without_the_tensors() -> None:
    for version in ("", "1", "stable", "9" * 300):
        for model in NAMES:
            message = request(model, version, tensors=3).SerializeToString()
            assert peek(message, infer=True) == Peek(model, version, ""), (model, version)


def test_the_correlation_id_is_found_among_the_parameters() -> None:
    for kind, sequence, key in (
        ("int64_param", 77, "n77"),
        ("int64_param", 2**63 - 1, f"n{2**63 - 1}"),
        ("uint64_param", 2**64 - 1, f"n{2**64 - 1}"),
        ("string_param", "77", "s77"),
        ("string_param", "größe", "sgröße"),
        ("int64_param", 0, ""),
        ("string_param", "", ""),
        ("bool_param", True, ""),
        ("double_param", 1.0, ""),
    ):
        message = request()
        setattr(message.parameters["sequence_id"], kind, sequence)
        assert peek(message.SerializeToString(), infer=True).sequence == key, (kind, sequence)
    message = request(sequence=7)
    message.parameters["sequence_id"].MergeFromString(b"\x30\x01")
    assert peek(message.SerializeToString(), infer=True).sequence == "n7", "of an unknown field"


def test_the_other_requests_have_name_and_version_in_the_same_places() -> None:
    for kind in ("Ready", "Metadata", "Config", "Statistics"):
        message = getattr(service_pb2, f"Model{kind}Request")(name="digits", version="2")
        assert peek(message.SerializeToString(), infer=False) == Peek("digits", "2", ""), kind
    assert peek(b"", infer=True) == Peek("", "", "")


def test_fields_may_come_in_any_order_and_the_last_one_counts() -> None:
    parts = [
        service_pb2.ModelInferRequest(raw_input_contents=[b"tensor"]),
        service_pb2.ModelInferRequest(model_version="1"),
        service_pb2.ModelInferRequest(model_name="old"),
        request("digits", "2", 5),
    ]
    message = b"".join(part.SerializeToString() for part in parts)
    assert peek(message, infer=True) == Peek("digits", "2", "n5")


def test_unknown_fields_of_every_kind_are_stepped_over() -> None:
    fields = bytes.fromhex("f80601 f906 0102030405060708 fa06 02 0102 fd06 01020304")
    message = fields + request("digits", "2").SerializeToString() + fields
    assert peek(message, infer=True) == Peek("digits", "2", "")


def test_a_message_that_is_none_is_a_bad_request() -> None:
    for name, message in {
        "length cut off": b"\x0a\xff\xff",
        "text cut off": b"\x0a\x05abc",
        "key alone": b"\x0a",
        "field 0": b"\x00",
        "group": b"\x0b",
        "wire type 7": b"\x0f",
        "fixed64 cut off": b"\x09\x01",
        "fixed32 cut off": b"\x0d\x01",
        "endless number": b"\x08" + b"\xff" * 11,
        "number of eleven bytes": b"\x08" + b"\xff" * 10 + b"\x01",
        "name is not UTF-8": b"\x0a\x01\xff",
        "version is not UTF-8": b"\x12\x01\xff",
        "broken parameter": b"\x22\x01\xff",
    }.items():
        assert refusal(BadRequest, peek, message, infer=True), name


@given(st.binary(max_size=24))
def test_garbage_is_read_or_refused_but_never_breaks_the_reader(data: bytes) -> None:
    with contextlib.suppress(Unparsable):
        assert isinstance(peek(data, infer=True), Peek)


def test_of_a_damaged_message_protobuf_reads_nothing_else() -> None:
    rng = random.Random(8)
    whole = request("digits", "2", 77).SerializeToString()
    agreed = 0
    for _ in range(5_000):
        damaged = bytearray(whole)
        for _ in range(rng.randrange(1, 3)):
            damaged[rng.randrange(40)] = rng.randrange(256)
        try:
            theirs = service_pb2.ModelInferRequest.FromString(bytes(damaged))
        except DecodeError:
            continue
        mine = peek(bytes(damaged), infer=True)
        assert (mine.model, mine.version) == (theirs.model_name, theirs.model_version)
        agreed += 1
    assert agreed > 500


def test_a_message_that_ends_too_early_is_never_read_as_something_else() -> None:
    whole = request("digits", "2", 77).SerializeToString()
    seen = set()
    for end in range(len(whole)):
        with contextlib.suppress(BadRequest):
            seen.add(peek(whole[:end], infer=True))
    assert seen == {
        Peek("", "", ""),
        Peek("digits", "", ""),
        Peek("digits", "2", ""),
        Peek("digits", "2", "n77"),
    }


def test_appended_fields_win_and_nothing_else_changes() -> None:
    for name in NAMES[1:]:
        message = request("digits", "stable", 5, tensors=2)
        changed = message.SerializeToString() + field(1, name.encode()) + field(2, b"3")
        message.model_name, message.model_version = name, "3"
        assert service_pb2.ModelInferRequest.FromString(changed) == message, name
        assert peek(changed, infer=True) == Peek(name, "3", "n5"), name


def test_fields_are_written_as_protobuf_writes_them() -> None:
    assert field(16, b"ab") == b"\x82\x01\x02ab", "its number needs two bytes"
    for value in (True, False):
        theirs = service_pb2.ServerReadyResponse(ready=value).SerializeToString()
        assert boolean(1, value) == theirs, value


def test_names_are_read_from_the_start_of_a_message_as_soon_as_they_are_there() -> None:
    for version in ("", "1", "stable", "9" * 300):
        for model in NAMES[1:]:
            whole = request(model, version, tensors=2).SerializeToString()
            seen = [names(whole[:end], 0, len(whole)) for end in range(len(whole) + 1)]
            first = next(index for index, one in enumerate(seen) if one is not None)
            assert set(seen[first:]) == {(model, version)}, (model, version)
            named = service_pb2.ModelInferRequest(model_name=model, model_version=version)
            assert first == len(named.SerializeToString()) + 1  # the key of the next field


def test_names_may_lie_anywhere_in_what_has_come() -> None:
    whole = request("digits", "2").SerializeToString()
    assert names(b"12345" + whole + b"more", 5, 5 + len(whole)) == ("digits", "2")
    assert names(memoryview(b"12345" + whole), 5, 5 + len(whole)) == ("digits", "2")


def test_names_that_do_not_stand_first_need_the_whole_message_and_have_to_be_text() -> None:
    for message in (
        service_pb2.ModelInferRequest(model_version="2", id="7").SerializeToString(),
        service_pb2.ModelInferRequest(id="7").SerializeToString(),
        b"\x08\x01" + request().SerializeToString(),
    ):
        assert names(message, 0, len(message)) is None, message
    for message in (b"\x0a\x05abc", b"\x0a" + b"\xff" * 11 + b"\x01", b"\x0a\x01\xff\x1a"):
        refusal(BadRequest, names, message, 0, len(message))


def test_a_message_with_a_name_alone_is_whole_only_at_its_end() -> None:
    whole = service_pb2.ModelMetadataRequest(name="digits").SerializeToString()
    assert names(whole, 0, len(whole)) == ("digits", "")
    assert names(whole, 0, len(whole) + 1) is None
    assert names(b"", 0, 0) == ("", "")


def test_the_id_of_a_request_is_found_or_waited_for() -> None:
    whole = request("digits", "2").SerializeToString()
    seen = {request_id(whole[:end], is_whole=False) for end in range(len(whole) + 1)}
    assert seen == {None, b"77"}
    assert request_id(service_pb2.ModelInferRequest().SerializeToString(), is_whole=True) == b""
    assert request_id(b"\x0a\x05ab", is_whole=True) == b""


def test_the_names_in_an_answer_of_a_stream_are_found_or_waited_for() -> None:
    response = service_pb2.ModelStreamInferResponse()
    response.infer_response.model_name = "digits"
    response.infer_response.model_version = "2"
    response.infer_response.id = "77"
    whole = response.SerializeToString()
    seen = {answered_name(whole[:end], is_whole=False) for end in range(len(whole) + 1)}
    assert seen == {None, ("digits", "2")}
    error = service_pb2.ModelStreamInferResponse(error_message="no").SerializeToString()
    assert answered_name(error, is_whole=False) == ("", "")
    assert answered_name(b"", is_whole=True) == ("", "")


def test_a_whole_message_is_walked_to_its_end() -> None:
    for tensors in (0, 1, 3):
        whole = request("digits", "2", 77, tensors=tensors).SerializeToString()
        assert whole_names(b"12345" + whole, 5) == ("digits", "2"), tensors
        assert whole_names(memoryview(whole), 0) == ("digits", "2"), tensors
        assert whole_names(whole + field(1, b"x"), 0) == ("x", "2"), tensors
        for damaged in (whole[:-1], whole + b"\x3a", whole + b"\x3a\x05", whole + b"\x09\x01"):
            with pytest.raises(BadRequest):
                whole_names(damaged, 0)


@given(st.lists(st.integers(0, 2000), max_size=9), st.integers(0, 3))
def test_a_walk_ends_well_where_the_message_does_however_it_is_cut(
    cuts: list[int], tensors: int
) -> None:
    whole = request("digits", "2", 77, tensors=tensors).SerializeToString()
    borders = sorted({0, len(whole), *(cut % (len(whole) + 1) for cut in cuts)})
    walk = FieldWalk()
    for start, stop in itertools.pairwise(borders):
        walk.follow(whole[start:stop])
    walk.finish()


def test_a_walk_notices_a_message_that_ends_inside_a_field() -> None:
    whole = request("digits", "2", 77).SerializeToString()
    standing = set()
    for end in range(len(whole) + 1):
        walk = FieldWalk()
        walk.follow(b"xx" + whole[:end], 2)
        try:
            walk.finish()
            standing.add(end)
        except BadRequest:
            pass
    assert len(standing) == len(list(fields(whole))) + 1
    with pytest.raises(BadRequest):
        FieldWalk().follow(b"\x0b" * 30)
