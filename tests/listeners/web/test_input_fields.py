"""The form of a try: tabs by datatype and shape, and what a form gives."""

import asyncio
import base64
import io
from typing import Any

import pytest
from starlette.datastructures import FormData, UploadFile

from serve.core.errors import Invalid
from serve.listeners.web.input_fields import Field, fields_of, given_of, together
from serve.tensors.metadata import TensorSpec

IMAGE = {
    "kind": "image",
    "color": "grey",
    "resize": [8, 16],
    "resample": "box",
    "layout": "HWC",
    "dtype": "FP32",
}


def field(datatype: str, *shape: int, steps: Any = None, examples: bool = False) -> Field:
    preprocessing = {"inputs": {"x": steps}} if steps else {}
    (found,) = fields_of({"x": TensorSpec("x", datatype, shape)}, preprocessing, examples=examples)
    return found


def given(form: list[tuple[str, Any]], *inputs: str) -> Any:
    return asyncio.run(given_of(FormData(form), inputs or ("x",)))


def upload(name: str, data: bytes) -> UploadFile:
    return UploadFile(io.BytesIO(data), filename=name)


@pytest.mark.parametrize(
    ("datatype", "shape", "steps", "first", "missing"),
    [
        ("FP32", (-1, 8, 16, 1), IMAGE, "draw", "text"),
        ("FP32", (-1, 8, 16, 3), IMAGE | {"color": "rgb"}, "image", "text"),
        ("BYTES", (-1, 1), None, "text", "grid"),
        ("INT64", (-1, 4), None, "grid", "image"),
        ("FP32", (-1, 3, 224, 224), None, "random", "grid"),
        ("INT32", (-1, 8), {"kind": "text", "as": "codepoints", "dtype": "INT32"}, "text", "draw"),
    ],
)
def test_what_can_be_given_follows_from_the_datatype_the_shape_and_the_preprocessing(
    datatype: str, shape: tuple[int, ...], steps: Any, first: str, missing: str
) -> None:
    forms = field(datatype, *shape, steps=steps).forms
    assert forms[0] == first and missing not in forms
    assert {"json", "csv", "npy", "random"} <= set(forms)
    assert len(set(forms)) == len(forms)


def test_a_drawing_has_the_proportions_that_the_model_sees() -> None:
    assert field("FP32", -1, 8, 16, 1, steps=IMAGE).canvas == (256, 128)


@pytest.mark.parametrize(
    ("shape", "grid", "has_rows"),
    [
        ((-1, 8, 8, 1), (8, 8, 1), False),
        ((-1, 4), (-1, 4), True),
        ((-1,), (-1,), True),
        ((2, 3), (2, 3), False),
    ],
)
def test_a_grid_has_rows_where_it_has_room_for_them(
    shape: tuple[int, ...], grid: tuple[int, ...], has_rows: bool
) -> None:
    found = field("FP32", *shape)
    assert (found.grid, found.has_rows) == (grid, has_rows)


def test_the_recorded_preprocessing_is_told() -> None:
    assert any("8 × 16" in word for word in field("FP32", -1, 8, 16, 1, steps=IMAGE).words)


def test_several_inputs_can_be_given_together_and_one_needs_no_second_way() -> None:
    specs = {name: TensorSpec(name, "FP32", (-1, 2)) for name in ("a", "b")}
    several = fields_of(specs, {}, examples=True)
    assert together(several, examples=True, again=False)[:2] == ("each", "example")
    assert all("example" not in one.forms for one in several)
    one = (field("FP32", -1, 2, examples=True),)
    assert together(one, examples=True, again=False) == ()
    assert "example" in one[0].forms
    assert together(one, examples=True, again=True) == ("again", "each")


def test_an_optional_input_is_left_out_unless_another_tab_is_chosen() -> None:
    specs = {name: TensorSpec(name, "FP32", (-1, 3)) for name in ("x", "mask")}
    needed, optional = fields_of(specs, {}, examples=False, optional={"mask"})
    assert (needed.forms[0], optional.forms[:2]) == ("grid", ("omit", "grid"))
    form = [("form-0", "json"), ("json-0", "[1]"), ("form-1", "omit"), ("grid-1", "[0, 0, 0]")]
    found = asyncio.run(given_of(FormData(form), ["x", "mask"]))
    assert list(found) == ["x"]


def test_only_the_open_tab_counts() -> None:
    form = [("form-0", "json"), ("json-0", " [1, 2] "), ("csv-0", "3"), ("text-0", "no")]
    assert given(form) == {"x": ("json", b"[1, 2]", "what stands under JSON")}


@pytest.mark.parametrize(
    ("form", "kind", "data"),
    [
        ([("form-0", "grid"), ("grid-0", "[[1]]")], "json", b"[[1]]"),
        ([("form-0", "text"), ("text-0", "a\r\nb\r\n")], "text", b"a\nb"),
        ([("form-0", "random")], "random", b""),
        ([("form-0", "image"), ("image-0", upload("a.png", b"png"))], "image", b"png"),
        ([("form-0", "npy"), ("npy-0", upload("a.npy", b"\x93NUMPY"))], "npy", b"\x93NUMPY"),
        ([("form-0", "npy"), ("npy-0", upload("a.npz", b"PK.."))], "npz", b"PK.."),
        (
            [
                ("form-0", "draw"),
                ("drawn-0", "data:image/png;base64," + base64.b64encode(b"png").decode()),
            ],
            "image",
            b"png",
        ),
    ],
)
def test_every_tab_gives_its_form(form: Any, kind: str, data: bytes) -> None:
    assert given(form)["x"][:2] == (kind, data)


def test_what_is_given_together_has_no_name() -> None:
    form = [("form-all", "json"), ("json-all", '{"inputs": []}'), ("form-0", "random")]
    assert list(given(form, "a", "b")) == [""]


def test_an_example_gives_all_inputs() -> None:
    assert given([("form-0", "example"), ("example-0", "3-0")]) == {"": ("example", b"3-0", "")}


@pytest.mark.parametrize(
    ("form", "word"),
    [
        ([], "no input is given"),
        ([("form-0", "json"), ("json-0", "  ")], "nothing is given under JSON"),
        ([("form-0", "draw"), ("drawn-0", "")], "nothing is drawn yet"),
        ([("form-0", "draw"), ("drawn-0", "data:image/png;base64,%%")], "cannot be read"),
        ([("form-0", "draw"), ("drawn-0", "data:text/html,<script>")], "nothing is drawn yet"),
        ([("form-0", "image"), ("image-0", upload("", b""))], "no picture is chosen"),
        ([("form-0", "npy"), ("npy-0", "text")], "no file is chosen"),
        ([("form-0", "pickle")], "cannot be given as 'pickle'"),
    ],
)
def test_what_is_missing_is_told(form: Any, word: str) -> None:
    with pytest.raises(Invalid, match=word):
        given(form)
