"""Correlation ids in the JSON of a request: which sequence it belongs to."""

import gzip
import json

from serve.wire.sequences import sequence_key, sequence_of


def body(parameters: object) -> bytes:
    return json.dumps({"inputs": [], "parameters": parameters}).encode()


def test_the_correlation_id_is_a_number_or_a_text_and_the_two_differ() -> None:
    for identity, key in (
        *((77, "n77"), ("77", "s77"), ("user/9", "suser/9"), (2**64 - 1, f"n{2**64 - 1}")),
        *((0, ""), ("", ""), (None, ""), (True, ""), (7.0, ""), ([7], ""), ({"a": 1}, "")),
    ):
        assert sequence_of(body({"sequence_id": identity, "sequence_start": True})) == key, identity
        assert sequence_key(identity) == key, identity


def test_a_head_that_cannot_be_read_is_left_to_triton() -> None:
    for data in (
        *(b"", b"{", b"[]", b"1", b"null", b"\xff\xfe", b'{"parameters":[]}'),
        *(b'{"parameters":"x"}', b"{}", gzip.compress(body({"sequence_id": 5}))),
        *(b"[" * 100_000, b'{"parameters":{"sequence_id":' + b"9" * 5000 + b"}}"),
    ):
        assert sequence_of(data) == "", data


def flat(**keys: object) -> bytes:
    return json.dumps({"text_input": "x", **keys}).encode()


def test_in_a_flat_request_alone_the_correlation_id_may_stand_beside_the_rest() -> None:
    for data, key in (
        (flat(sequence_id=7), "n7"),
        (flat(parameters={"sequence_id": "7"}), "s7"),
        (flat(), ""),
        (b"[7]", ""),
        (b'"sequence_id"', ""),
    ):
        assert sequence_of(data, is_flat=True) == key, data
    assert sequence_of(flat(sequence_id=7)) == ""
