"""The form of a try: tabs by datatype and shape, and what a form gives."""

import asyncio
import base64
import io
from typing import Any

import pytest
from starlette.datastructures import FormData, UploadFile

from serve.admin.web.input_fields import InputField, fields_of, given_of, together
from serve.core.errors import Invalid
from serve.tensors.metadata import TensorSpec

IMAGE: dict[str, Any] = {"kind": "image", "color": "grey", "layout": "HWC", "dtype": "FP32"}
IMAGE |= {"resize": [8, 16], "resample": "box"}
CODEPOINTS = {"kind": "text", "as": "codepoints", "dtype": "INT32"}


def field(datatype: str, *shape: int, steps: Any = None, examples: bool = False) -> InputField:
    preprocessing = {"inputs": {"x": steps}} if steps else {}
    (found,) = fields_of({"x": TensorSpec("x", datatype, shape)}, preprocessing, examples=examples)
    return found


def given(form: list[tuple[str, Any]], *inputs: str) -> Any:
    return asyncio.run(given_of(FormData(form), inputs or ("x",)))


def upload(name: str, data: bytes) -> UploadFile:
    return UploadFile(io.BytesIO(data), filename=name)


def test_what_can_be_given_follows_from_the_datatype_the_shape_and_the_preprocessing() -> None:
    for datatype, shape, steps, first, missing in (
        ("FP32", (-1, 8, 16, 1), IMAGE, "draw", "text"),
        ("FP32", (-1, 8, 16, 3), IMAGE | {"color": "rgb"}, "image", "text"),
        ("BYTES", (-1, 1), None, "text", "grid"),
        ("INT64", (-1, 4), None, "grid", "image"),
        ("FP32", (-1, 3, 224, 224), None, "random", "grid"),
        ("INT32", (-1, 8), CODEPOINTS, "text", "draw"),
    ):
        forms = field(datatype, *shape, steps=steps).forms
        assert forms[0] == first and missing not in forms, shape
        assert {"json", "csv", "npy", "random"} <= set(forms)
        assert len(set(forms)) == len(forms)
    drawn = field("FP32", -1, 8, 16, 1, steps=IMAGE)
    assert drawn.canvas == (256, 128), "the proportions that the model sees"
    assert any("8 × 16" in word for word in drawn.words)


def test_a_grid_has_rows_where_it_has_room_for_them() -> None:
    for shape, grid, has_rows in (
        ((-1, 8, 8, 1), (8, 8, 1), False),
        ((-1, 4), (-1, 4), True),
        ((-1,), (-1,), True),
        ((2, 3), (2, 3), False),
    ):
        found = field("FP32", *shape)
        assert (found.grid, found.has_rows) == (grid, has_rows), shape


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


def test_every_tab_gives_its_form_and_only_the_open_one_counts() -> None:
    picture = "data:image/png;base64," + base64.b64encode(b"png").decode()
    for tab, name, content, kind, data in (
        ("grid", "grid-0", "[[1]]", "json", b"[[1]]"),
        ("text", "text-0", "a\r\nb\r\n", "text", b"a\nb"),
        ("random", "json-0", "[1]", "random", b""),
        ("image", "image-0", upload("a.png", b"png"), "image", b"png"),
        ("npy", "npy-0", upload("a.npy", b"\x93NUMPY"), "npy", b"\x93NUMPY"),
        ("npy", "npy-0", upload("a.npz", b"PK.."), "npz", b"PK.."),
        ("draw", "drawn-0", picture, "image", b"png"),
    ):
        found = given([("form-0", tab), (name, content), ("csv-0", "3"), ("text-1", "no")])
        assert found["x"][:2] == (kind, data), tab
    form = [("form-0", "json"), ("json-0", " [1, 2] ")]
    assert given(form) == {"x": ("json", b"[1, 2]", "the field 'JSON'")}
    form = [("form-all", "json"), ("json-all", '{"inputs": []}'), ("form-0", "random")]
    assert list(given(form, "a", "b")) == [""], "what is given together has no name"
    form = [("form-0", "example"), ("example-0", "3-0")]
    assert given(form) == {"": ("example", b"3-0", "")}


def test_what_is_missing_is_told() -> None:
    with pytest.raises(Invalid, match="has no input"):
        given([])
    for tab, name, content, word in (
        ("json", "json-0", "  ", "the field 'JSON' is empty"),
        ("draw", "drawn-0", "", "the drawing is empty"),
        ("draw", "drawn-0", "data:image/png;base64,%%", "cannot be read"),
        ("draw", "drawn-0", "data:text/html,<script>", "the drawing is empty"),
        ("image", "image-0", upload("", b""), "no picture is selected"),
        ("npy", "npy-0", "text", "no file is selected"),
        ("pickle", "x", "", "'pickle' is not a valid input format"),
    ):
        with pytest.raises(Invalid, match=word):
            given([("form-0", tab), (name, content)])
