"""What people give, as tensors that fit a model: forms, names, batches, and what is refused."""

import io
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given as examples
from hypothesis import strategies as st
from PIL import Image
from refusals import refusal

from serve.core.errors import Invalid
from serve.tensors.input_forms import GivenInput, InputForm, Inputs, read_inputs
from serve.tensors.metadata import TensorSpec

X = TensorSpec("x", "FP32", (-1, 2, 2, 1))
PAIR = TensorSpec("pair", "INT64", (-1, 2))
WORD = TensorSpec("word", "BYTES", (-1, 1))
PICTURE = {"kind": "image", "color": "grey", "layout": "HWC", "dtype": "FP32"}
LETTERS = {"kind": "text", "as": "codepoints", "dtype": "INT32", "length": 4}


def read(
    *specs: TensorSpec,
    record: Mapping[str, Any] | None = None,
    batch: int | None = None,
    **given: GivenInput,
) -> Inputs:
    """What is given by name; `whole` is what has no name."""
    named = {"" if name == "whole" else name: one for name, one in given.items()}
    wanted = {spec.name: spec for spec in specs}
    rows = {"inputs": record} if record else {}
    return read_inputs("m", wanted, named, rows, rng=np.random.default_rng(0), batch=batch)


def csv(text: str) -> GivenInput:
    return GivenInput(InputForm.CSV, text.encode(), "a.csv")


def text(said: str) -> GivenInput:
    return GivenInput(InputForm.TEXT, said.encode(), "a.txt")


def png(*rows: list[int]) -> GivenInput:
    held = io.BytesIO()
    Image.fromarray(np.array(rows, dtype=np.uint8)).save(held, "PNG")
    return GivenInput(InputForm.IMAGE, held.getvalue(), "a.png")


def npy(array: Any, **options: Any) -> GivenInput:
    held = io.BytesIO()
    np.save(held, array, **options)
    return GivenInput(InputForm.NPY, held.getvalue(), "a.npy")


def npz(**arrays: Any) -> GivenInput:
    held = io.BytesIO()
    np.savez(held, **arrays)
    return GivenInput(InputForm.NPZ, held.getvalue(), "a.npz")


def test_a_picture_goes_through_the_recorded_preprocessing() -> None:
    made = read(X, record={"x": PICTURE}, x=png([1, 2], [3, 4])).tensors["x"]
    assert made.tolist() == [[[[1.0], [2.0]], [[3.0], [4.0]]]]


def test_a_line_of_csv_is_a_row_in_the_shape_of_the_input() -> None:
    ready = read(X, x=csv("1,2,3,4\n5,6,7,8.5\n"))
    assert ready.tensors["x"].tolist() == [[[[1], [2]], [[3], [4]]], [[[5], [6]], [[7], [8.5]]]]
    assert ready.datatypes == {"x": "FP32"} and ready.notes == ()


def test_csv_may_be_written_in_many_ways() -> None:
    truths = TensorSpec("truths", "BOOL", (-1, 4))
    for spec, said, rows in (
        (PAIR, "a,b\n1,2\n", [[1, 2]]),  # a header is skipped
        (WORD, "word\nhello\n", [[b"hello"]]),
        (WORD, "hello\n", [[b"hello"]]),
        (WORD, '\ufeff"a, b"\r\n\r\n"two\nlines"\r\n', [[b"a, b"], [b"two\nlines"]]),
        (PAIR, f"{2**62 + 1},3.0\n", [[2**62 + 1, 3]]),
        (truths, "true,False,1,0\n", [[True, False, True, False]]),
    ):
        assert read(spec, **{spec.name: csv(said)}).tensors[spec.name].tolist() == rows, said


def test_an_open_length_takes_what_a_line_of_csv_has() -> None:
    for shape, said, found in (
        ((-1, -1, 2), "1,2,3,4,5,6\n", (1, 3, 2)),
        ((-1,), "1\n2\n", (2,)),
        ((3, 2), "1,2\n3,4\n5,6", (3, 2)),
    ):
        made = read(TensorSpec("x", "FP32", shape), x=csv(said)).tensors["x"]
        assert made.shape == found, shape


def test_csv_that_does_not_fit_says_where() -> None:
    for spec, said, expected in (
        (X, "1,2,3\n", "a.csv does not fit input 'x'"),
        (X, "1,2,3,4\n1,2,3\n", "row 2 has 3 values"),
        (X, "1,2,3,x\n", "row 1 has 'x': it is not a value of FP32"),
        (X, "", "a.csv has no rows"),
        (X, "a,b,c,d\n", "a.csv has no rows"),
        (X, '"1,2\n', "a.csv is not CSV"),
        (PAIR, "1,2.5\n", "row 1 has '2.5': it is not a value of INT64"),
        (PAIR, f"1,{2**63}\n", "it is not a value of INT64"),
        (TensorSpec("x", "UINT8", (-1, 1)), "-1\n", "it is not a value of UINT8"),
        (TensorSpec("x", "FP32", (-1, -1, -1)), "1,2\n", ".npy or .json"),
    ):
        error = refusal(Invalid, read, spec, **{spec.name: csv(said)})
        assert expected in str(error), (spec, said)


def test_each_line_of_a_text_is_an_element_unless_preprocessing_takes_the_whole() -> None:
    element = {"kind": "text", "as": "bytes", "lower": True}
    flat, numbers = TensorSpec("word", "BYTES", (-1,)), TensorSpec("word", "INT32", (-1, 4))
    three = TensorSpec("word", "BYTES", (-1, 3))
    for spec, row, said, made in (
        (WORD, None, "one\r\ntwo\n\n", [[b"one"], [b"two"], [b""]]),
        (three, None, "a\nb\nc\nd\ne\nf", [[b"a", b"b", b"c"], [b"d", b"e", b"f"]]),
        (numbers, LETTERS, "a\nb\n", [[97, 10, 98, 0]]),
        (WORD, element, "TWO\nlines", [[b"two\nlines"]]),
        (flat, element, "A", [b"a"]),
    ):
        record = {"word": row} if row else None
        assert read(spec, record=record, word=text(said)).tensors["word"].tolist() == made, said
    assert "it has 2 lines" in str(refusal(Invalid, read, three, word=text("a\nb")))


def test_what_nothing_says_how_to_read_says_what_to_record() -> None:
    for given, record, why in (
        (text("a"), {}, "no recorded preprocessing"),
        (png([1]), {}, "no recorded preprocessing"),
        (text("a"), {"x": PICTURE}, "of another kind"),
        (png([1]), {"x": LETTERS}, "of another kind"),
    ):
        error = refusal(Invalid, read, X, record=record, x=given)
        assert "cannot become input" in str(error), (given, record)
        assert why in error.why and "preprocessing.json" in error.try_this, (given, record)


def test_without_a_name_a_file_is_for_the_only_input_or_for_those_it_names() -> None:
    assert read(PAIR, whole=csv("1,2")).tensors["pair"].tolist() == [[1, 2]]
    both = read(X, PAIR, whole=npz(x=np.zeros((3, 2, 2, 1)), pair=np.ones((3, 2), np.int64)))
    assert list(both.tensors) == ["x", "pair"] and both.notes == ("x: FP64 is sent as FP32",)
    row = {"name": "pair", "shape": [1, 2], "datatype": "INT64", "data": [1, 2]}
    request = GivenInput(InputForm.JSON, json.dumps({"inputs": [row]}).encode())
    assert read(X, PAIR, whole=request).notes == ("missing inputs: x",)
    with pytest.raises(Invalid, match=r"the input for .* is ambiguous"):
        read(X, PAIR, whole=csv("1,2"))


def test_random_values_fill_one_input_or_all_that_are_left() -> None:
    ready = read(X, PAIR, WORD, pair=csv("1,2"), whole=GivenInput(InputForm.RANDOM), batch=3)
    assert ready.tensors["pair"].tolist() == [[1, 2]] * 3
    sizes = {name: len(rows) for name, rows in ready.tensors.items()}
    assert sizes == {"x": 3, "pair": 3, "word": 3}
    assert set(read(X, PAIR, x=GivenInput(InputForm.RANDOM)).tensors) == {"x"}
    single = TensorSpec("x", "FP32", (1, 2))  # a batch of exactly one is added
    assert read(single, x=npy(np.zeros(2, np.float32))).tensors["x"].shape == (1, 2)


def test_a_batch_needs_one_row_or_as_many_and_a_batch_dimension() -> None:
    single = TensorSpec("x", "FP32", (2,))
    for spec, said, why in (
        (PAIR, csv("1,2\n3,4"), "it has 2 rows"),
        (single, npy(np.zeros(2, np.float32)), "its shape [2] has no batch dimension"),
    ):
        error = refusal(Invalid, read, spec, batch=3, **{spec.name: said})
        assert error.what == f"a batch of 3 does not fit input '{spec.name}'"
        assert error.why == why


def test_what_cannot_be_read_says_why() -> None:
    for given, said in (
        (npy(np.array([{}], dtype=object), allow_pickle=True), "has type object"),
        (GivenInput(InputForm.NPY, b""), "the given npy cannot be read"),
        (GivenInput(InputForm.NPY, npz(x=np.ones(1)).data, "a.npy"), "a.npy is not a .npy file"),
        (GivenInput(InputForm.NPZ, npy(np.ones(1)).data, "a.npz"), "a.npz is not an .npz file"),
        (GivenInput(InputForm.NPZ, b"PK", "a.npz"), "a.npz cannot be read"),
        (npz(y=np.ones(1)), "a.npz has no 'x': it has y"),
        (GivenInput(InputForm.JSON, b"[1", "a.json"), "a.json is not valid JSON"),
        (GivenInput(InputForm.JSON, b"\xff", "a.json"), "a.json is not valid JSON"),
        (GivenInput(InputForm.JSON, b"[" * 100_000, "a.json"), "a.json is not valid JSON"),
        (GivenInput(InputForm.JSON, b"{}", "a.json"), "a.json is not a KServe v2 request"),
        (GivenInput(InputForm.CSV, b"\xff", "a.csv"), "a.csv is not text"),
        (npy(np.ones(3)), "input 'x' has the shape [3]"),
        (npy(np.array(["a"])), "tensor 'x' contains text"),
    ):
        error = refusal(Invalid, read, X, x=given)
        assert said in str(error), given


def test_an_archive_that_unpacks_to_too_much_and_nothing_given_are_refused() -> None:
    held = io.BytesIO()
    np.savez_compressed(held, x=np.zeros((1 << 25) + 1, np.float64))
    bomb = GivenInput(InputForm.NPZ, held.getvalue(), "bomb.npz")
    assert "too large" in str(refusal(Invalid, read, X, x=bomb))
    wanted = "model 'm' expects x FP32 [-1, 2, 2, 1], pair INT64 [-1, 2]"
    assert refusal(Invalid, read, X, PAIR).why == wanted


@examples(
    st.sampled_from([one for one in InputForm if one is not InputForm.RANDOM]),
    st.binary(max_size=60),
)
def test_any_bytes_in_any_form_are_read_or_refused(form: InputForm, data: bytes) -> None:
    for spec in (X, PAIR, WORD):
        try:
            ready = read(spec, whole=GivenInput(form, data))
        except Invalid:
            continue
        assert all(len(rows) for rows in ready.tensors.values())


@examples(st.lists(st.tuples(*[st.integers(-(2**63), 2**63 - 1)] * 2), min_size=1))
def test_numbers_written_as_csv_come_back(rows: list[tuple[int, int]]) -> None:
    lines = "".join(f"{one},{other}\n" for one, other in rows)
    assert read(PAIR, pair=csv(lines)).tensors["pair"].tolist() == [list(row) for row in rows]
