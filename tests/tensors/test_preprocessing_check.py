"""Any document is steps or a refusal; any steps fit the tensors that they make, and no other."""

import contextlib
import io
import json
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from serve.core.errors import Invalid
from serve.tensors.metadata import TensorSpec
from serve.tensors.preprocessing import ImageSteps, check, parse, tensor_of
from serve.tensors.signature import ModelTensor as FileSpec

RGB = {"kind": "image", "color": "rgb", "layout": "HWC", "dtype": "FP32"}
SIZED = RGB | {"resize": [4, 6], "resample": "box"}
LONG = {"kind": "text", "as": "codepoints", "dtype": "INT32", "length": 9}

KEYS = ["kind", "color", "resize", "resample", "crop", "scale", "divide", "mean", "std", "layout"]
KEYS += ["dtype", "as", "encoding", "normalize", "lower", "strip", "length", "pad", "other"]
WORDS = ["image", "text", "grey", "rgb", "bgr", "box", "HWC", "CHW", "FP32", "FP16", "UINT8"]
WORDS += ["INT32", "bytes", "utf8", "NFC", "utf-8", "shortest"]
SCALARS = st.one_of(
    st.sampled_from(WORDS), st.integers(-2, 300), st.floats(), st.booleans(), st.none(), st.text()
)
VALUES = st.one_of(
    SCALARS,
    st.lists(SCALARS, max_size=3),
    st.dictionaries(st.sampled_from(["shortest", "x"]), SCALARS, max_size=2),
)
PICTURES = st.fixed_dictionaries(
    {
        "kind": st.just("image"),
        "color": st.sampled_from(["grey", "rgb", "bgr"]),
        "layout": st.sampled_from(["HWC", "CHW"]),
        "dtype": st.sampled_from(["FP32", "FP16", "BF16", "FP64", "UINT8"]),
        "resample": st.sampled_from(["nearest", "box", "bilinear", "bicubic", "lanczos"]),
    },
    optional={
        "resize": st.one_of(
            st.lists(st.integers(1, 9), min_size=2, max_size=2),
            st.fixed_dictionaries({"shortest": st.integers(1, 9)}),
        ),
        "crop": st.lists(st.integers(1, 9), min_size=2, max_size=2),
        "divide": st.sampled_from([255, 127.5]),
        "mean": st.sampled_from([[0.5], [1], [104, 117, 124]]),
        "std": st.sampled_from([[0.5], [0.2, 0.3, 0.4]]),
    },
)


def fit(row: Any, *specs: TensorSpec | FileSpec) -> tuple[str, ...]:
    return check(parse({"inputs": {"x": row}}), {spec.name: spec for spec in specs})


def png(height: int, width: int) -> bytes:
    pixels = np.arange(height * width * 3, dtype=np.uint32).astype(np.uint8)
    held = io.BytesIO()
    Image.fromarray(pixels.reshape(height, width, 3)).save(held, "PNG")
    return held.getvalue()


@given(st.dictionaries(st.sampled_from(KEYS), VALUES))
def test_any_document_is_read_or_refused_with_a_reason(row: dict[str, Any]) -> None:
    with contextlib.suppress(Invalid):
        steps = parse({"inputs": {"x": row}}).inputs["x"]
        again = parse(json.loads(json.dumps({"inputs": {"x": steps.to_json()}})))
        assert again.inputs["x"].shape == steps.shape


@given(PICTURES, st.integers(1, 12), st.integers(1, 12))
def test_every_picture_becomes_finite_numbers_of_the_shape_that_the_steps_tell(
    row: dict[str, Any], height: int, width: int
) -> None:
    with contextlib.suppress(Invalid):
        steps = parse({"inputs": {"x": row}}).inputs["x"]
        assert isinstance(steps, ImageSteps)
        made = tensor_of(png(height, width), steps)
        assert np.isfinite(made).all() and made.flags["C_CONTIGUOUS"]
        spec = TensorSpec("x", steps.dtype, (-1, *made.shape))
        assert check(parse({"inputs": {"x": row}}), {"x": spec}) == ()


def test_what_does_not_fit_is_told_in_a_sentence() -> None:
    element = {"kind": "text", "as": "bytes"}
    for row, spec in (
        (SIZED, TensorSpec("x", "FP32", (-1, 4, 6, 3))),
        (SIZED, TensorSpec("x", "FP32", (4, 6, 3))),
        (SIZED, TensorSpec("x", "FP32", (1, 4, 6, 3))),
        (SIZED, TensorSpec("x", "FP32", (-1, -1, -1, 3))),
        (RGB, TensorSpec("x", "FP32", (-1, 224, 224, 3))),
        (SIZED | {"layout": "CHW"}, FileSpec("x", "FP32", (8, 3, 4, 6))),
        (SIZED, FileSpec("x", "FP32", None)),
        (LONG, TensorSpec("x", "INT32", (-1, 9))),
        (LONG, TensorSpec("x", "INT32", (-1, -1))),
        (element, TensorSpec("x", "BYTES", (-1, 1))),
        (element, TensorSpec("x", "BYTES", (-1,))),
    ):
        assert fit(row, spec) == (), row
    fitting, turned = (-1, 4, 6, 3), (-1, 3, 4, 6)
    for row, name, datatype, shape, said in (
        (SIZED, "y", "FP32", fitting, "'x' is not an input of the model (inputs: y)"),
        (SIZED, "x", "FP16", fitting, "'x' becomes FP32, but the model expects FP16"),
        (SIZED, "x", "FP32", turned, "of shape [4, 6, 3], but the model expects"),
        (SIZED, "x", "FP32", (-1, 72), "the model expects [-1, 72]"),
        (RGB, "x", "FP32", (-1, 8, 8, 1), "of shape [any, any, 3]"),
        (LONG, "x", "INT32", (-1, 8), "of shape [9]"),
        (element, "x", "BYTES", (-1, 2), "of shape []"),
    ):
        (sentence,) = fit(row, TensorSpec(name, datatype, shape))
        assert said in sentence, (row, name, datatype, shape)
