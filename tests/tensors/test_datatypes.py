"""Elements as raw bytes, as JSON and as arrays, checked against tritonclient's own."""

import json

import ml_dtypes
import numpy as np
import pytest
import tritonclient.utils as triton
from refusals import refusal

from serve.core.errors import Invalid
from serve.tensors.datatypes import (
    DATATYPES,
    cast,
    datatype_of,
    from_json,
    from_nested,
    from_raw,
    numpy_dtype,
    to_json,
    to_raw,
)
from serve.tensors.random_inputs import random_tensor

NUMERIC = [each for each in DATATYPES if each not in ("BYTES", "BF16")]
WORDS = [b"", b"plain", "grüße".encode(), b"\x00\xff\x00", b"x" * 300]


def objects(*elements):
    array = np.empty(len(elements), dtype=object)
    array[:] = elements
    return array


def extremes(datatype):
    """The values of a datatype that are most likely to be spoilt."""
    dtype = numpy_dtype(datatype)
    if datatype == "BOOL":
        return np.array([True, False])
    if dtype.kind == "f":
        limits = np.finfo(dtype)
        values = [0.0, -0.0, limits.max, limits.min, limits.tiny, np.inf, -np.inf, np.nan]
        return np.array(values, dtype=dtype)
    return np.array([0, 1, np.iinfo(dtype).min, np.iinfo(dtype).max], dtype=dtype)


def test_every_datatype_survives_the_way_through_raw_bytes_and_json_in_every_shape() -> None:
    for datatype in DATATYPES:
        for shape in ((3, 2, 4), (), (0,), (2, 0, 3)):
            sent = random_tensor(datatype, shape, np.random.default_rng(7))
            for received in (
                from_raw(to_raw(sent, datatype), datatype, shape),
                from_json(json.loads(json.dumps(to_json(sent))), datatype, shape),
            ):
                assert (received.dtype, received.shape) == (sent.dtype, shape), datatype
                assert np.array_equal(received, sent), (datatype, shape)


def test_the_extreme_values_keep_every_bit_in_arrays_as_those_of_triton() -> None:
    for datatype in NUMERIC:
        assert numpy_dtype(datatype) == triton.triton_to_np_dtype(datatype), datatype
        sent = extremes(datatype)
        assert datatype_of(sent) == datatype
        raw = to_raw(sent, datatype)
        assert raw == sent.tobytes(), datatype
        assert from_raw(raw, datatype, sent.shape).tobytes() == raw, datatype


def test_bytes_are_written_and_read_as_tritonclient_does():
    words = objects(*WORDS)
    raw = triton.serialize_byte_tensor(words).item()
    assert to_raw(words, "BYTES") == raw
    assert from_raw(raw, "BYTES", (5,)).tolist() == triton.deserialize_bytes_tensor(raw).tolist()
    assert from_raw(raw, "BYTES", (5,)).tolist() == WORDS
    assert to_raw(objects("grüße"), "BYTES") == to_raw(objects("grüße".encode()), "BYTES")
    assert datatype_of(np.array(["a", "bc"])) == "BYTES"
    assert to_raw(np.array(["a", "bc"]), "BYTES") == to_raw(np.array([b"a", b"bc"]), "BYTES")


def test_bfloat16_rounds_to_nearest_even_as_ml_dtypes_does_and_a_nan_stays_one():
    rng = np.random.default_rng(3)
    bits = rng.integers(0, 2**32, 200_000, dtype=np.uint32)
    ties = (rng.integers(0, 2**16, 2_000, dtype=np.uint32) << np.uint32(16)) | np.uint32(0x8000)
    values = np.concatenate([bits, ties]).view(np.float32)
    values = np.concatenate([values[~np.isnan(values)], extremes("FP32")[:-1]])
    with np.errstate(over="ignore"):  # the largest floats round to infinity
        expected = values.astype(ml_dtypes.bfloat16)
    assert to_raw(values, "BF16") == expected.tobytes()
    assert (from_raw(expected.tobytes(), "BF16", values.shape) == expected.astype(np.float32)).all()
    nans = np.array([0x7F800001, 0x7FFFFFFF, 0xFF800001, 0xFFFFFFFF], np.uint32).view(np.float32)
    assert np.isnan(from_raw(to_raw(nans, "BF16"), "BF16", (4,))).all()


def test_views_and_foreign_byte_orders_are_sent_in_row_major_little_endian():
    array = np.arange(12, dtype=np.int32).reshape(3, 4)
    assert to_raw(array.T, "INT32") == array.T.copy().tobytes()
    assert to_raw(array.astype(">i4"), "INT32") == array.tobytes()
    assert to_raw(array[::2, ::-1], "INT32") == array[::2, ::-1].copy().tobytes()


def test_what_was_read_can_be_written_to():
    array = from_raw(b"\x01\x02", "UINT8", (2,))
    array[0] = 9
    assert array.tolist() == [9, 2]


def test_raw_bytes_that_do_not_fit_name_the_tensor_and_the_reason() -> None:
    for raw, datatype, shape, why in (
        (b"\0" * 7, "FP32", (2,), "FP32 of shape [2] needs 8"),
        (b"\0" * 9, "INT8", (2, 4), "needs 8"),
        (b"\x05\0\0\0ab", "BYTES", (1,), "needs 9 bytes, and 6 are left"),
        (b"\x05\0", "BYTES", (1,), "needs 4 bytes, and 2 are left"),
        (b"\0\0\0\0", "BYTES", (2,), "its shape needs 2"),
        (b"\0\0\0\0" * 3, "BYTES", (2,), "has 3 elements"),
        (b"", "FP31", (0,), "unknown datatype 'FP31'"),
        (b"", "FP32", (0, 2**62, 2**62), "has the shape"),
    ):
        error = refusal(Invalid, from_raw, raw, datatype, shape, "scores")
        assert "tensor 'scores'" in str(error), (raw, datatype, shape)
        assert why in str(error), (raw, datatype, shape)


def test_json_values_of_another_kind_or_number_are_refused() -> None:
    for value, datatype in (
        *(("1", "FP32"), (True, "INT32"), (1, "BOOL"), (1.0, "INT64"), (256, "UINT8")),
        *((-1, "UINT64"), (10**400, "FP64"), (1e39, "FP32"), (7, "BYTES"), (None, "FP32")),
        ({}, "FP32"),
    ):
        error = refusal(Invalid, from_json, [value], datatype, (1,))
        assert f"not a value of {datatype}" in str(error), value
    error = refusal(Invalid, from_json, [1], "FP32", (2,))
    assert "has 1 elements" in str(error) and "needs 2" in str(error)


def test_large_whole_numbers_are_exact_in_json_and_bytes_that_are_no_text_are_shown():
    values = [0, 2**53 + 1, 2**64 - 1]
    assert from_json(values, "UINT64", (3,)).tolist() == values
    assert to_json(objects(b"a\xff")) == ["a\\xff"]


def test_nested_lists_give_their_own_shape_where_they_have_one():
    assert from_nested([[1, 2, 3], [4, 5, 6]], "INT8").shape == (2, 3)
    assert from_nested(2.5, "FP32").shape == ()
    assert from_nested([], "FP32").shape == (0,)
    assert from_nested([["a"], ["b"]], "BYTES").tolist() == [[b"a"], [b"b"]]
    for data in ([[1, 2], [3]], [[1], 2], [1, [2]], [[[1]], [[]]]):
        assert "different lengths" in str(refusal(Invalid, from_nested, data, "FP32")), data
    deep = json.loads("[" * 40 + "1" + "]" * 40)
    for error in (
        refusal(Invalid, from_nested, deep, "FP32"),
        refusal(Invalid, from_json, deep, "FP32", (1,)),
    ):
        assert "more than 32 dimensions" in str(error)


def test_arrays_without_a_datatype_are_refused():
    for array in (np.zeros(1, dtype=complex), np.zeros(1, dtype="datetime64[s]")):
        with pytest.raises(Invalid, match="no such datatype"):
            datatype_of(array, "x")
    with pytest.raises(Invalid, match="BYTES contains texts and bytes, not int"):
        to_raw(objects(1), "BYTES", "x")
    with pytest.raises(Invalid, match="FP32 needs float32"):
        to_raw(np.zeros(1), "FP32", "x")


def test_a_cast_that_keeps_the_values_is_made() -> None:
    for array, datatype in (
        (np.array([1.5, -2.0]), "FP32"),
        (np.array([1.0, 0.0]), "UINT8"),
        (np.array([0, 255], dtype=np.int64), "UINT8"),
        (np.array([0, 1]), "BOOL"),
        (np.array([True, False]), "FP32"),
        (np.array([2**63], dtype=np.uint64), "FP64"),
        (np.array([np.inf, np.nan]), "FP16"),
        (np.array([], dtype=np.float64), "INT8"),
    ):
        result = cast(array, datatype)
        assert result.dtype == numpy_dtype(datatype), array
        assert np.array_equal(
            result.astype(array.dtype), array, equal_nan=array.dtype.kind == "f"
        ), array


def test_a_cast_that_would_change_the_values_is_refused() -> None:
    for value, datatype in (
        *((0.5, "INT32"), (np.nan, "INT32"), (256, "UINT8"), (-1, "UINT64")),
        *((np.uint64(2**63), "INT64"), (2.0**64, "UINT64"), (1e39, "FP32"), (65520.0, "FP16")),
        *((2, "BOOL"), ("1", "FP32"), (1, "BYTES"), (1j, "FP32")),
    ):
        error = refusal(Invalid, cast, np.array([value]), datatype, "x")
        assert "tensor 'x' " in str(error), (value, datatype)


# --- random inputs --------------------------------------------------------------------------------


def test_a_random_tensor_has_the_datatype_and_can_be_sent() -> None:
    for datatype in DATATYPES:
        tensor = random_tensor(datatype, (-1, 3, -1), np.random.default_rng(0), batch=4)
        assert tensor.dtype == numpy_dtype(datatype), datatype
        assert tensor.shape == (4, 3, 1), datatype
        assert to_raw(tensor, datatype), datatype
        one, other = (random_tensor(datatype, (50,), np.random.default_rng(5)) for _ in range(2))
        assert (one == other).all(), datatype
        assert len(set(one.tolist())) > 1, datatype
    with pytest.raises(Invalid, match="FP8"):
        random_tensor("FP8", (1,), np.random.default_rng(0))


def test_numbers_are_in_a_range_that_models_meet() -> None:
    for datatype, low, high in (
        ("FP16", 0, 1),
        ("FP32", 0, 1),
        ("UINT8", 0, 256),
        ("INT8", -128, 128),
        ("INT64", 0, 100),
    ):
        values = random_tensor(datatype, (20_000,), np.random.default_rng(1)).astype(np.float64)
        assert low <= values.min() and values.max() < high, (datatype, low)
        assert values.max() - values.min() > 0.95 * (high - low), (datatype, low)


def test_texts_are_short_words():
    words = random_tensor("BYTES", (200,), np.random.default_rng(2)).tolist()
    assert all(3 <= len(word) <= 8 and word.isalpha() and word.islower() for word in words)
