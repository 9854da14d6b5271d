"""The recorded preprocessing of texts: one element, or a row of numbers."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refusal

from serve.core.errors import Invalid
from serve.tensors.datatypes import Array
from serve.tensors.preprocessing import TextSteps, parse, tensor_of

CODEPOINTS = {"kind": "text", "as": "codepoints", "dtype": "INT32"}
UTF8 = {"kind": "text", "as": "utf8", "dtype": "UINT8"}
ELEMENT = {"kind": "text", "as": "bytes"}


def steps(row: Any) -> Any:
    return parse({"inputs": {"x": row}}).inputs["x"]


def made(text: str, row: Any) -> Array:
    return tensor_of(text.encode(), steps(row))


def test_a_text_becomes_one_element_of_bytes() -> None:
    tensor = made(" Grüße\n", ELEMENT)
    assert (tensor.shape, tensor.dtype, tensor[()]) == ((), object, " Grüße\n".encode())


def test_normal_form_comes_before_case_and_case_before_stripping() -> None:
    row = ELEMENT | {"normalize": "NFKC", "lower": True, "strip": True}
    assert made("\u00a0\uff21e\u0301\u2003", row)[()] == "aé".encode()


def test_codepoints_are_characters_and_utf8_are_bytes() -> None:
    assert made("aé😀", CODEPOINTS).tolist() == [97, 233, 0x1F600]
    assert made("aé", UTF8).tolist() == [97, 0xC3, 0xA9]
    assert made("aé", UTF8).dtype == np.uint8


def test_numbers_are_cut_or_padded_to_the_length() -> None:
    row = CODEPOINTS | {"length": 4, "pad": -1}
    assert made("ab", row).tolist() == [97, 98, -1, -1]
    assert made("abcdef", row).tolist() == [97, 98, 99, 100]
    assert made("", CODEPOINTS | {"length": 2}).tolist() == [0, 0]
    assert made("", CODEPOINTS).shape == (0,)


def test_what_is_no_utf8_is_refused() -> None:
    with pytest.raises(Invalid, match="the text cannot be read") as raised:
        tensor_of(b"\xff\xfe", steps(ELEMENT))
    assert raised.value.try_this == "save it as UTF-8"


def test_a_wrong_record_names_the_key_that_is_wrong() -> None:
    for row, what in (
        ({"kind": "text"}, "'inputs.x.as' is missing"),
        ({"kind": "text", "as": "tokens"}, "'inputs.x.as' is 'tokens'"),
        ({"kind": "text", "as": "utf8"}, "'inputs.x.dtype' is missing"),
        (CODEPOINTS | {"dtype": "UINT8"}, "'inputs.x.dtype' is 'UINT8'"),
        (ELEMENT | {"dtype": "INT32"}, "'inputs.x.dtype' is 'INT32'"),
        (ELEMENT | {"length": 3}, "'inputs.x.length' is 3"),
        (ELEMENT | {"encoding": "latin-1"}, "'inputs.x.encoding' is 'latin-1'"),
        (ELEMENT | {"normalize": "NFX"}, "'inputs.x.normalize' is 'NFX'"),
        (ELEMENT | {"lower": 1}, "'inputs.x.lower' is 1"),
        (ELEMENT | {"color": "rgb"}, "unknown key 'inputs.x.color'"),
        (CODEPOINTS | {"length": 0}, "'inputs.x.length' is 0"),
        (CODEPOINTS | {"length": 1 << 30}, "'inputs.x.length' is"),
        (CODEPOINTS | {"pad": 1}, "'inputs.x.pad' is 1"),
        (CODEPOINTS | {"length": 2, "pad": 1.5}, "'inputs.x.pad' is 1.5"),
        (UTF8 | {"length": 2, "pad": 256}, "'inputs.x.pad' is 256"),
    ):
        error = refusal(Invalid, steps, row)
        assert what in error.what, row
        assert error.why and error.try_this, row


@given(
    st.text(),
    st.builds(
        TextSteps,
        st.sampled_from(["codepoints", "utf8"]),
        st.sampled_from(["INT32", "INT64"]),
        st.sampled_from(["", "NFC", "NFKC"]),
        st.booleans(),
        st.booleans(),
        st.integers(0, 20),
        st.integers(0, 9),
    ),
)
def test_any_text_becomes_a_row_of_the_shape_that_the_steps_tell(
    text: str, wanted: TextSteps
) -> None:
    tensor = tensor_of(text.encode(), wanted)
    (length,) = wanted.shape
    assert tensor.ndim == 1 and length in (-1, len(tensor))


@given(st.text())
def test_utf8_numbers_are_the_text_again(text: str) -> None:
    assert bytes(made(text, UTF8)).decode() == text
