"""What heads and messages of gRPC answers mean to the sender."""

import pytest
from grpc_wire import answer, message

from serve.wire.hpack_blocks import literal
from serve.workbench.loadtest.engine.grpc_answers import GrpcHeads, HeadFields, Versions, whole

STATUS = literal(b"grpc-status", b"0")
DECISION = literal(b"servegate-version", b"2; by=split; generation=7")


def named(name: bytes) -> bytes:
    return literal(b"servegate-request-id", name)


def test_trailers_that_differ_in_the_calls_name_alone_are_read_once() -> None:
    heads = GrpcHeads()
    read = [heads.learn(STATUS + DECISION + named(b"call-%d" % number), 0) for number in range(9)]
    assert read[0] == HeadFields(-1, 0, "", "2; by=split; generation=7")
    assert all(each is read[0] for each in read)


@pytest.mark.parametrize("name", [b"", b"n" * 126, b"n" * 127, b"n" * 300])
def test_a_calls_name_of_any_length_hides_nothing(name: bytes) -> None:
    heads = GrpcHeads()
    for block in (STATUS + named(name) + DECISION, named(name) + STATUS + DECISION):
        assert heads.learn(block, 0).decision == "2; by=split; generation=7"
        assert heads.learn(block, 0).decision == "2; by=split; generation=7"


def test_a_status_is_remembered_with_its_own_code_alone() -> None:
    heads = GrpcHeads()
    outcomes = [
        heads.learn(
            literal(b"grpc-status", b"14") + literal(b"servegate-error", code) + named(b"x"), 0
        ).outcome
        for code in (b"no_replica", b"overloaded", b"no_replica")
    ]
    assert outcomes == [
        "grpc_UNAVAILABLE:no_replica",
        "grpc_UNAVAILABLE:overloaded",
        "grpc_UNAVAILABLE:no_replica",
    ]


@pytest.mark.parametrize(
    ("body", "version"),
    [
        (answer(), "1"),
        (answer("m" * 200), "1"),
        (b"\x12\x023!", "3!"),
        (b"\x0a\x01m", ""),
        (b"\x0a\x01m\x12\x09", ""),
        (b"", ""),
        (b"\xff" * 9, ""),
    ],
)
def test_the_version_is_read_from_the_head_of_the_answer(body: bytes, version: str) -> None:
    versions = Versions()
    for _ in range(2):
        assert versions.read(message(body), 5) == version


def test_an_answer_is_one_message_in_any_number_of_pieces() -> None:
    sent = message(b"abc")
    assert whole([sent]) == whole([memoryview(sent)[:2], sent[2:]]) == sent
    for pieces in ([], [sent[:4]], [sent[:7]], [sent, sent], [message(b"abc", flag=1)]):
        assert whole(pieces) is None
