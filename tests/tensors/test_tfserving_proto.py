"""`TensorProto` into tensors and back; the bytes are written by hand."""

import struct
from typing import Any

import tfserving_bytes as tf
from refusals import refusal

from serve.core.errors import BadRequest
from serve.tensors.tfserving_proto import declared_size, fill, tensor_of
from serve.tensors.tfserving_tensors import KINDS, RawTensor, pack, unpack
from serve.wire.tfserving_messages import messages

LIMIT = 1 << 20


def read(data: bytes, limit: int = LIMIT) -> RawTensor:
    return tensor_of(messages().read("Tensor", data), "x", limit)


CASES: list[tuple[bytes, str, tuple[int, ...], list[Any]]] = [
    (tf.tensor(tf.FLOAT, [2], tf.floats(1.5, -2)), "FP32", (2,), [1.5, -2.0]),
    (tf.tensor(tf.FLOAT, [2], tf.sized(4, struct.pack("<2f", 1, 2))), "FP32", (2,), [1.0, 2.0]),
    (tf.tensor(tf.FLOAT, [2, 2], tf.floats(1, 7)), "FP32", (2, 2), [1.0, 7.0, 7.0, 7.0]),
    (tf.tensor(tf.FLOAT, [3]), "FP32", (3,), [0.0, 0.0, 0.0]),
    (tf.tensor(tf.FLOAT, [], tf.floats(4)), "FP32", (), [4.0]),
    (tf.tensor(tf.FLOAT, [0, 5]), "FP32", (0, 5), []),
    (tf.tensor(tf.FLOAT, [1], tf.floats(1, 2)), "FP32", (1,), [1.0]),
    (
        # not packed, as proto2 writes it
        tf.tensor(tf.FLOAT, [1]) + b"\x2d" + struct.pack("<f", 2.5),
        "FP32",
        (1,),
        [2.5],
    ),
    (tf.tensor(tf.DOUBLE, [1], tf.sized(6, struct.pack("<d", 0.1))), "FP64", (1,), [0.1]),
    (tf.tensor(tf.INT32, [2], tf.sized(7, tf.varint(-1) + tf.varint(5))), "INT32", (2,), [-1, 5]),
    (tf.tensor(tf.UINT8, [2], tf.sized(7, b"\x01\x02")), "UINT8", (2,), [1, 2]),
    (tf.tensor(tf.INT64, [1], tf.sized(10, tf.varint(-2))), "INT64", (1,), [-2]),
    (tf.tensor(tf.BOOL, [2], tf.sized(11, b"\x01\x00")), "BOOL", (2,), [True, False]),
    (tf.tensor(tf.BOOL, [2], tf.sized(4, b"\x01\x00")), "BOOL", (2,), [True, False]),
    (tf.tensor(tf.HALF, [2], tf.sized(13, tf.varint(0x3C00))), "FP16", (2,), [1.0, 1.0]),
    (tf.tensor(14, [1], tf.sized(13, tf.varint(0x4040))), "BF16", (1,), [3.0]),
    (tf.tensor(17, [1], tf.sized(7, tf.varint(65535))), "UINT16", (1,), [65535]),
    (tf.tensor(22, [1], tf.sized(16, tf.varint(1 << 31))), "UINT32", (1,), [1 << 31]),
    (tf.tensor(23, [1], tf.sized(17, tf.varint(1 << 63))), "UINT64", (1,), [1 << 63]),
    (
        tf.tensor(tf.STRING, [3], tf.sized(8, b"\xff"), tf.sized(8, b"ab")),
        "BYTES",
        (3,),
        [b"\xff", b"ab", b"ab"],
    ),
    (
        tf.tensor(tf.STRING, [2], tf.sized(4, b"\x01" + tf.varint(200) + b"a" + b"b" * 200)),
        "BYTES",
        (2,),
        [b"a", b"b" * 200],
    ),
]


def test_a_tensor_proto_has_these_elements() -> None:
    for data, datatype, shape, elements in CASES:
        tensor = read(data)
        assert (tensor.datatype, tensor.shape, list(unpack(tensor))) == (
            datatype,
            shape,
            elements,
        ), (data, datatype, shape)


WRONG = [
    (tf.tensor(8, [1]), "data type 8"),
    (tf.tensor(tf.FLOAT, [-1], tf.floats(1)), "no definite shape"),
    (tf.number(1, 1) + tf.sized(2, tf.number(3, 1)), "no definite shape"),
    (tf.tensor(tf.FLOAT, [2], tf.sized(4, b"1234")), "4 bytes of tensor_content"),
    (tf.tensor(tf.FLOAT, [1] * 33, tf.floats(1)), "more than 32 dimensions"),
    (tf.tensor(tf.FLOAT, [1 << 40], tf.floats(1)), "more than 1048576"),
    (tf.tensor(tf.STRING, [1 << 40]), "more than 1048576"),
    (tf.tensor(tf.STRING, [1 << 12], tf.sized(8, b"x" * 1000)), "more than 1048576"),
    (tf.tensor(tf.UINT8, [1], tf.sized(7, tf.varint(256))), "a value that does not fit uint8"),
    (tf.tensor(tf.STRING, [2], tf.sized(4, b"\x05a")), "broken tensor_content"),
    (tf.tensor(tf.STRING, [1], tf.sized(4, b"\xff")), "broken tensor_content"),
]


def test_a_tensor_proto_that_cannot_be_is_refused() -> None:
    for data, sentence in WRONG:
        assert sentence in str(refusal(BadRequest, read, data)), data


def test_the_size_of_tensors_is_known_before_they_are_made() -> None:
    sizes = [(tf.FLOAT, [1 << 40, 2]), (tf.STRING, [3]), (tf.HALF, [-1]), (8, [5])]
    protos = [messages().read("Tensor", tf.tensor(*one)) for one in sizes]
    assert declared_size(protos) == (1 << 43) + 12


def test_a_tensor_comes_back_from_the_list_of_its_datatype() -> None:
    for datatype in [name for name in KINDS if name != "BYTES"]:
        tensor = RawTensor(
            datatype, (2, 1), pack([True, False] if datatype == "BOOL" else [1, 3], datatype)
        )
        proto = messages().make("Tensor")
        fill(proto, tensor)
        assert proto.tensor_content == b"", datatype
        assert read(proto.SerializeToString()) == tensor, datatype


def test_an_answer_has_its_elements_where_clients_read_them() -> None:
    proto = messages().make("Tensor")
    fill(proto, RawTensor("FP32", (1, 2), struct.pack("<2f", 0.25, 0.75)))
    wanted = tf.tensor(tf.FLOAT, [1, 2], tf.floats(0.25, 0.75))
    assert tf.read(proto.SerializeToString()) == tf.read(wanted)
    texts = messages().make("Tensor")
    fill(texts, RawTensor("BYTES", (2,), pack([b"a", b"\xff"], "BYTES")))
    wanted = tf.tensor(tf.STRING, [2], tf.sized(8, b"a"), tf.sized(8, b"\xff"))
    assert tf.read(texts.SerializeToString()) == tf.read(wanted)
