"""Heads that differ only in what names a call mean what they mean when they are cut into fields."""

from dataclasses import replace

import hpack
from refusals import refusal

from serve.wire.grpc_head_templates import RequestMemo
from serve.wire.grpc_requests import GrpcRequestReader, RequestHead
from serve.wire.http2 import ConnectionFault

FIXED = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/inference.GRPCInferenceService/ModelInfer"),
    (":authority", "x"),
    ("te", "trailers"),
    ("content-type", "application/grpc"),
    ("x-else", "1"),
    ("grpc-accept-encoding", "gzip"),
]
LIMIT = 4000


def block(*fields: tuple[str, str], huffman: bool = False) -> bytes:
    encoder = hpack.Encoder()
    encoder.header_table_size = 0
    plain = [hpack.NeverIndexedHeaderTuple(name, value) for name, value in fields]
    return bytes(encoder.encode(plain, huffman=huffman)).removeprefix(b"\x20")


def memo() -> RequestMemo:
    return RequestMemo(GrpcRequestReader(LIMIT))


def meaning(head: RequestHead) -> tuple[RequestHead, list[tuple[bytes, bytes]]]:
    """All that a head says; fields of different names have no order among them."""
    fields = GrpcRequestReader(LIMIT).fields
    pairs = sorted((one[0].name, fields.value(one)) for one in fields.split(head.block))
    return replace(head, block=b"", plain=b""), pairs


def varied(number: int) -> list[list[tuple[str, str]]]:
    trace = ("traceparent", f"00-{number:032x}-{number:016x}-01")
    name = ("x-request-id", "n" * (number % 126 + 1))
    return [
        [*FIXED, trace],
        [*FIXED, name],
        [*FIXED, trace, name],
        [*FIXED, name, ("authorization", "Bearer sg_abcd_0123456789abcdef"), trace],
        [*FIXED, trace, trace],
        [*FIXED, ("x-more", f"\x00\x0btraceparent\x05{number:05}"), trace],
        [*FIXED, ("x-request-id", f"\x00\x0btraceparent\x05{number:05}"), trace],
        [*FIXED, ("x-request-id", "é" * (number % 40)), trace],
        [*FIXED, ("x-request-id", "")],
        [*FIXED, ("x-request-id", "n" * (100 + number % 60))],
    ]


def test_a_head_that_was_filled_in_says_what_it_would_say_otherwise() -> None:
    for kind in range(10):
        for huffman in (False, True):
            remembering = memo()
            for number in range(130):
                one = block(*varied(number)[kind], huffman=huffman)
                assert meaning(remembering.learn(one, 0)) == meaning(memo().learn(one, 0))


def test_a_block_that_ends_inside_a_varying_field_is_broken() -> None:
    remembering = memo()
    for number in range(3):
        remembering.learn(block(*varied(number)[0]), 0)
    assert remembering.templates == 1
    whole = block(*varied(4)[0])
    for end in range(len(whole) - 60, len(whole)):
        refusal(ConnectionFault, remembering.learn, whole[:end], 0)
