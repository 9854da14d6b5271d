"""The skew check: equal samples are told to be equal, and a mistake is called by its name."""

import importlib.util
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from refusals import refusal

from serve.core.errors import Invalid
from serve.tensors.archive import write_archive
from serve.tensors.datatypes import Array
from serve.tensors.preprocessing import parse, tensor_of
from serve.tensors.skew import InputSkew, skew
from serve.tensors.skew_samples import read_samples

ROOT = Path(__file__).parents[2]
RGB = {"kind": "image", "color": "rgb", "layout": "HWC", "dtype": "FP32"}
IMAGENET = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
PHOTOS = RGB | {"resize": [6, 6], "resample": "bilinear", "scale": [1, 255]} | IMAGENET


def digits() -> Any:
    """The training data of the demo model."""
    path = ROOT / "examples" / "digits" / "data.py"
    spec = importlib.util.spec_from_file_location("digits_samples", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def recorded(**changes: Any) -> dict[str, Any]:
    """What is recorded for the demo model, with changes."""
    text = (ROOT / "model_repo" / "digits" / "preprocessing.json").read_text("utf-8")
    row: dict[str, Any] = json.loads(text)["inputs"]["x"]
    return row | changes


def npz(**arrays: Any) -> bytes:
    return write_archive({name.replace("_", "/", 1): a for name, a in arrays.items()}, most=1 << 28)


def check(record: Mapping[str, Any], raw: Any, tensors: Any) -> InputSkew:
    """The one input `x` of a check."""
    samples = read_samples(npz(raw_x=raw, tensor_x=tensors))
    (found,) = skew(parse({"inputs": {"x": record}}), samples).inputs
    return found


def photos(count: int = 3, height: int = 12, width: int = 9) -> Array:
    rng = np.random.default_rng(7)
    return rng.integers(0, 256, (count, height, width, 3)).astype(np.uint8)


def trained(raw: Array, row: Mapping[str, Any]) -> Array:
    """What a training whose steps are those of `row` has fed its model."""
    steps = parse({"inputs": {"x": row}}).inputs["x"]
    return np.stack([tensor_of(png(one), steps) for one in raw])


def png(pixels: Array) -> bytes:
    held = io.BytesIO()
    Image.fromarray(pixels).save(held, "PNG")
    return held.getvalue()


def changed(record: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """The record with a cause's change."""
    return {key: value for key, value in {**record, **change}.items() if value is not None}


def test_the_training_samples_of_the_digits_become_their_tensors_bit_for_bit() -> None:
    samples = digits().samples()
    found = check(recorded(), samples["raw/x"], samples["tensor/x"])
    assert (found.rows, found.equal, found.first, found.largest) == (1198, 1198, None, 0.0)
    assert not found.is_skewed and found.causes == () and found.notes == ()


def test_a_wrong_record_of_the_digits_is_told_with_what_would_mend_it() -> None:
    samples = digits().samples()
    raw, tensors = samples["raw/x"][:100], samples["tensor/x"][:100]
    for change, what in (
        ({"scale": [1, 256]}, "pixels are multiplied by 1/255"),
        ({"scale": [1, 1]}, "pixels are multiplied by 1/255"),
        ({"scale": [1, 255], "mean": [0.5], "std": [0.5]}, "no mean is subtracted"),
        ({"layout": "CHW"}, "channels come last"),
    ):
        found = check(recorded(**change), raw, tensors)
        assert (found.equal, found.first) == (0, 0), change
        assert what in found.causes[0].what and found.causes[0].is_exact, change
        mended = changed(recorded(**change), found.causes[0].change)
        assert not check(mended, raw, tensors).is_skewed, change


def test_each_common_mistake_is_found_and_its_change_makes_all_rows_equal() -> None:
    for training, what in (
        (PHOTOS | {"color": "bgr"}, "the channels are blue, green, red"),
        (PHOTOS | {"resample": "bicubic"}, "filter bicubic"),
        (PHOTOS | {"layout": "CHW"}, "channels come first"),
        (PHOTOS | {"scale": [1, 1], "mean": [0], "std": [1]}, "are not scaled"),
        (PHOTOS | {"mean": [0], "std": [1]}, "no mean is subtracted"),
        (PHOTOS | {"mean": [0.5], "std": [0.5]}, "a mean and std of 0.5"),
        (PHOTOS | {"scale": [1, 127.5], "mean": [1], "std": [1]}, "x * (1 / 127.5) - 1"),
        (changed(PHOTOS, {"scale": None, "divide": 255}), "divided by 255, which rounds"),
        (changed(PHOTOS, {"scale": None, "divide": 256}), "divided by 256"),
        (
            changed(PHOTOS, {"scale": None, "divide": 127.5, "mean": [1], "std": [1]}),
            "x / 127.5 - 1",
        ),
        (
            PHOTOS | {"resize": {"shortest": 6}, "crop": [6, 6]},
            "the shortest side becomes 6, then the centre is cropped",
        ),
        (PHOTOS | {"resize": [5, 7]}, "resized to 5 x 7"),
    ):
        tensors = trained(photos(), training)
        found = check(PHOTOS, photos(), tensors)
        assert found.equal == 0, training
        assert any(what in cause.what for cause in found.causes), what
        assert found.causes[0].is_exact, what
        mended = changed(PHOTOS, found.causes[0].change)
        assert not check(mended, photos(), tensors).is_skewed, what


def test_a_missing_crop_and_two_mistakes_at_once_are_found() -> None:
    record = RGB | {"resize": {"shortest": 8}, "resample": "box", "crop": [6, 6]}
    training = RGB | {"resize": [6, 6], "resample": "box"}
    found = check(record, photos(), trained(photos(), training))
    assert "resized to their final size" in found.causes[0].what
    assert found.causes[0].change == {"crop": None, "resize": [6, 6]}
    training = PHOTOS | {"color": "bgr", "layout": "CHW"}
    found = check(PHOTOS, photos(), trained(photos(), training))
    assert found.causes[0].change == {"color": "bgr", "layout": "CHW"}
    assert "[3, 6, 6]" in found.notes[0]
    assert found.largest is None


def test_what_differs_by_rounding_only_is_told_as_such() -> None:
    tensors = trained(photos(), PHOTOS)
    found = check(PHOTOS, photos(), np.nextafter(tensors, np.float32(9), dtype=np.float32))
    assert found.equal == 0 and found.largest is not None and found.largest < 1e-6
    assert [cause.is_exact for cause in found.causes] == [False]
    assert found.causes[0].what == "only the rounding of floats differs"
    tensors = np.nextafter(trained(photos(), PHOTOS | {"color": "bgr"}), np.float32(9))
    found = check(PHOTOS, photos(), tensors)
    assert not found.causes[0].is_exact and found.causes[0].change == {"color": "bgr"}


def test_the_first_row_that_differs_and_the_largest_difference_are_told() -> None:
    tensors = trained(photos(), PHOTOS)
    tensors[1, 0, 0, 0] += 2
    found = check(PHOTOS, photos(), tensors)
    assert (found.rows, found.equal, found.first) == (3, 2, 1)
    assert found.largest == pytest.approx(2)
    unexplained = check(PHOTOS, photos(), np.zeros((3, 6, 6, 3), np.float32))
    assert unexplained.is_skewed and unexplained.causes == ()


def test_pictures_may_be_encoded_and_tensors_of_another_float_type() -> None:
    tensors = trained(photos(), PHOTOS)
    encoded = np.array([png(one) for one in photos()], dtype="S")
    assert not check(PHOTOS, encoded, tensors).is_skewed
    found = check(PHOTOS, photos(), tensors.astype(np.float64))
    assert not found.is_skewed
    assert found.notes == ("training has float64, the recorded preprocessing produces FP32",)
    for dtype in ("FP16", "BF16"):
        assert not check(PHOTOS | {"dtype": dtype}, photos(), tensors).is_skewed


def test_texts_are_checked_and_their_mistakes_found() -> None:
    record = {"kind": "text", "as": "codepoints", "dtype": "INT32", "length": 5}
    words = np.array(["Grün ", "a"])
    lower = np.array([[103, 114, 252, 110, 32], [97, 0, 0, 0, 0]], np.int64)
    found = check(record, words, lower)
    assert found.equal == 1 and found.causes[0].change == {"lower": True}
    assert not check(record | {"lower": True}, words, lower).is_skewed
    element = {"kind": "text", "as": "bytes"}
    assert not check(element, words, words[:, np.newaxis]).is_skewed
    stripped = check(element, words, np.array(["Grün", "a"]))
    assert stripped.causes[0].change == {"strip": True} and stripped.largest is None
    byte = {"kind": "text", "as": "utf8", "dtype": "UINT8", "length": 1}
    assert check(byte, np.array(["a"]), np.array([[97 + 256]])).is_skewed, "which does not fit"


def test_what_is_no_sample_is_refused() -> None:
    def checked(**arrays: Any) -> None:
        skew(parse({"inputs": {"x": PHOTOS}}), read_samples(npz(**arrays)))

    for arrays, said in (
        ({"x": np.ones(1)}, "array 'x' is not a sample"),
        ({"raw_x": np.ones(1)}, "'raw/x' has no counterpart"),
        ({"tensor_x": np.ones(1)}, "'tensor/x' has no counterpart"),
        ({}, "it is empty"),
        ({"raw_y": np.ones(1), "tensor_y": np.ones(1)}, "has no recorded preprocessing"),
    ):
        assert said in str(refusal(Invalid, checked, **arrays)), arrays
    one = np.ones((1, 2))
    for raw, tensors, said in (
        (np.ones((2, 3)), np.ones((3, 3)), "do not match"),
        (np.float32(1), np.ones(1), "do not match"),
        (np.ones((0, 3, 3)), np.ones((0, 3)), "there are 0 samples"),
        (np.ones((1, 2, 2)), one, "of float64 of shape"),
        (np.ones((1, 2, 2, 5), np.uint8), one, "of uint8 of shape [1, 2, 2, 5]"),
        (np.array([["a", "b"]]), one, "of texts of shape [1, 2]"),
        (np.array([b"no picture"]), one, "raw/x, row 0: the picture cannot be read"),
    ):
        assert said in str(refusal(Invalid, checked, raw_x=raw, tensor_x=tensors)), raw


def test_pictures_that_unpack_to_too_many_pixels_are_refused() -> None:
    encoded = np.array([png(one) for one in photos()], dtype="S")
    samples = read_samples(npz(raw_x=encoded, tensor_x=trained(photos(), PHOTOS)))
    record = parse({"inputs": {"x": PHOTOS}})
    assert not skew(record, samples, most_pixels=3 * 12 * 9).is_skewed
    with pytest.raises(Invalid, match="more than 323 pixels"):
        skew(record, samples, most_pixels=3 * 12 * 9 - 1)


def test_a_row_that_hides_the_mistake_does_not_hide_the_cause() -> None:
    raw = photos()
    raw[0] = 0
    raw[0, 0, 0] = 1
    found = check(PHOTOS, raw, trained(raw, PHOTOS | {"resample": "lanczos"}))
    assert [cause.change for cause in found.causes] == [{"resample": "lanczos"}]


def test_a_report_is_plain_json() -> None:
    tensors = np.full((3, 6, 6, 3), np.nan, np.float32)
    samples = read_samples(npz(raw_x=photos(), tensor_x=tensors))
    page = skew(parse({"inputs": {"x": PHOTOS}}), samples).to_json()
    assert json.loads(json.dumps(page, allow_nan=False)) == page
    assert page["inputs"][0]["largest_difference"] is None
