"""The recorded preprocessing: pictures become exactly the tensors of the training."""

import importlib.util
import io
import json
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from refusals import refusal

from serve.core.errors import Invalid
from serve.tensors.preprocessing import MAX_PIXELS, ImageSteps, image_tensor, parse

ROOT = Path(__file__).parents[2]
RGB = {"kind": "image", "color": "rgb", "layout": "HWC", "dtype": "FP32"}


@pytest.fixture(scope="module")
def digits():
    """The data contract of the demo model, as its training reads it."""
    path = ROOT / "examples" / "digits" / "data.py"
    spec = importlib.util.spec_from_file_location("digits_data", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def recorded():
    text = (ROOT / "model_repo" / "digits" / "preprocessing.json").read_text("utf-8")
    return parse(json.loads(text)).inputs["x"]


def steps(**changes):
    return parse({"inputs": {"x": RGB | changes}}).inputs["x"]


def encoded(image, kind="PNG", **options):
    out = io.BytesIO()
    image.save(out, format=kind, **options)
    return out.getvalue()


def colored(*pixels, mode="RGB"):
    """A picture of one row."""
    image = Image.new(mode, (len(pixels), 1))
    image.putdata(pixels)
    return image


def claiming(width, height):
    """A PNG that says it is this large and has no pixels."""

    def chunk(kind, data):
        checked = kind + data
        return len(data).to_bytes(4, "big") + checked + zlib.crc32(checked).to_bytes(4, "big")

    size = width.to_bytes(4, "big") + height.to_bytes(4, "big")
    head = chunk(b"IHDR", size + bytes([8, 0, 0, 0, 0]))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", b"") + chunk(b"IEND", b"")


def test_held_out_digits_become_their_training_tensors_bit_for_bit(digits, recorded):
    pictures, _ = digits.pictures()
    expected, _ = digits.held_out()
    assert len(expected) == 599
    pairs = list(zip(digits.held_out_rows(), expected, strict=True))
    for row, tensor in pairs[::10]:  # the skew check has all of them
        made = image_tensor(digits.png(pictures[row]), recorded)
        assert made.dtype == np.float32 and made.shape == (8, 8, 1)
        assert made.tobytes() == tensor.tobytes(), row


def test_every_grey_value_is_scaled_as_the_training_does(digits, recorded):
    ramp = np.arange(256, dtype=np.uint8).reshape(16, 16)
    made = image_tensor(digits.png(ramp), ImageSteps("grey", "HWC", "FP32", scale=(1, 255)))
    assert made.tobytes() == digits.tensors(ramp[np.newaxis])[0].tobytes()


def test_the_example_pictures_become_tensors_of_the_model(recorded):
    for name in ("seven.png", "three.png", "disagree.png"):
        made = image_tensor((ROOT / "examples" / "digits" / name).read_bytes(), recorded)
        assert made.shape == (8, 8, 1)
        assert 0 <= made.min() < made.max() <= 1


def test_a_larger_picture_is_resized_as_the_example_client_does(recorded):
    ramp = Image.fromarray(np.arange(64 * 48, dtype=np.uint32).astype(np.uint8).reshape(48, 64))
    small = np.asarray(ramp.resize((8, 8), Image.Resampling.BOX))
    expected = small.astype(np.float32) * np.float32(1 / 255)
    assert image_tensor(encoded(ramp), recorded).tobytes() == expected.tobytes()


def test_resize_is_height_then_width_with_the_named_filter() -> None:
    for name in ("nearest", "box", "bilinear", "bicubic", "lanczos"):
        rng = np.random.default_rng(0)
        image = Image.fromarray(rng.integers(0, 256, (20, 30, 3)).astype(np.uint8))
        made = image_tensor(encoded(image), steps(resize=[5, 7], resample=name))
        expected = np.asarray(image.resize((7, 5), Image.Resampling[name.upper()]))
        assert made.shape == (5, 7, 3), name
        assert (made == expected).all(), name


def test_a_picture_of_the_right_size_is_not_touched():
    image = Image.fromarray(np.eye(4, dtype=np.uint8) * 255).convert("RGB")
    for name in ("bicubic", "lanczos"):
        made = image_tensor(encoded(image), steps(resize=[4, 4], resample=name))
        assert (made == np.asarray(image)).all()


def test_colors_and_layouts():
    data = encoded(colored((10, 20, 30), (40, 50, 60)))
    assert image_tensor(data, steps()).tolist() == [[[10, 20, 30], [40, 50, 60]]]
    assert image_tensor(data, steps(color="bgr")).tolist() == [[[30, 20, 10], [60, 50, 40]]]
    assert image_tensor(data, steps(layout="CHW")).tolist() == [[[10, 40]], [[20, 50]], [[30, 60]]]
    luma = round(0.299 * 10 + 0.587 * 20 + 0.114 * 30)
    assert image_tensor(data, steps(color="grey"))[0, 0, 0] == luma


def test_every_tensor_is_contiguous_and_has_the_dtype():
    data = encoded(colored((10, 20, 30), (40, 50, 60)))
    for dtype, expected in (("FP16", "f2"), ("BF16", "f4"), ("FP64", "f8"), ("UINT8", "u1")):
        for color in ("rgb", "bgr", "grey"):
            made = image_tensor(data, steps(color=color, layout="CHW", dtype=dtype))
            assert made.dtype == np.dtype(expected)
            assert made.flags["C_CONTIGUOUS"]


def test_mean_and_std_are_per_channel_in_the_order_of_color():
    wanted = steps(color="bgr", scale=[1, 10], mean=[3, 2, 1], std=[1, 2, 4])
    assert image_tensor(encoded(colored((10, 20, 30))), wanted).tolist() == [[[0, 0, 0]]]
    wanted = steps(mean=[10], std=[2])
    assert image_tensor(encoded(colored((10, 20, 30))), wanted).tolist() == [[[0, 5, 10]]]


def test_transparent_parts_are_laid_on_black():
    half = encoded(colored((200, 100, 50, 0), (200, 100, 50, 255), mode="RGBA"))
    assert image_tensor(half, steps()).tolist() == [[[0, 0, 0], [200, 100, 50]]]
    grey = encoded(colored((200, 0), (200, 255), mode="LA"))
    assert image_tensor(grey, steps(color="grey")).ravel().tolist() == [0, 200]
    palette = colored(0, 1, mode="P")
    palette.putpalette([255, 255, 255, 9, 9, 9])
    assert image_tensor(encoded(palette, transparency=0), steps())[0, 0].tolist() == [0, 0, 0]


def test_of_16_bit_grey_the_high_byte_counts():
    deep = Image.fromarray(np.array([[0, 255, 256, 65535]], dtype=np.uint16))
    made = image_tensor(encoded(deep), steps(color="grey"))
    assert made.ravel().tolist() == [0, 0, 1, 255]


def test_other_formats_and_modes_are_read():
    image = colored((255, 255, 255), (0, 0, 0))
    for kind in ("JPEG", "WEBP", "GIF", "BMP", "TIFF"):
        assert image_tensor(encoded(image, kind), steps()).shape == (1, 2, 3)
    assert (
        image_tensor(encoded(image.convert("1")), steps()).ravel().tolist() == [255] * 3 + [0] * 3
    )
    assert image_tensor(encoded(image.convert("CMYK"), "JPEG"), steps()).shape == (1, 2, 3)


def test_of_an_animation_the_first_frame_counts():
    frames = [colored((0, 0, 0)), colored((255, 255, 255))]
    data = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert image_tensor(data, steps()).ravel().tolist() == [0, 0, 0]


def test_a_picture_of_more_than_50_megapixels_is_refused_before_it_is_decoded() -> None:
    for width, height in ((10_000, 5_001), (20_000, 20_000), (1, 2**31 - 1)):
        assert width * height > MAX_PIXELS, width
        error = refusal(Invalid, image_tensor, claiming(width, height), steps())
        assert "more than 50 megapixels" in str(error), width
        assert error.try_this == "use a smaller picture", width


def test_what_cannot_be_decoded_is_refused() -> None:
    for data in (b"", b"no picture", b"%!PS-Adobe-3.0 EPSF-3.0\n", claiming(3, 3), claiming(0, 0)):
        assert "the picture cannot be read" in str(refusal(Invalid, image_tensor, data, steps()))


def test_formats_that_nobody_needs_are_refused_though_pillow_reads_them() -> None:
    for kind in ("EPS", "PPM", "ICO", "PCX"):
        error = refusal(Invalid, image_tensor, encoded(Image.new("RGB", (16, 16)), kind), steps())
        assert "the picture cannot be read" in str(error), kind
        assert "PNG, JPEG" in error.try_this, kind


@pytest.mark.filterwarnings("ignore::UserWarning")  # Pillow remarks on each spoilt tag
def test_a_file_cut_short_or_spoilt_is_refused_or_read_but_never_breaks_anything():
    rng = np.random.default_rng(4)
    image = Image.fromarray(rng.integers(0, 256, (9, 9, 3)).astype(np.uint8))
    for kind in ("PNG", "JPEG", "GIF", "TIFF", "WEBP", "BMP"):
        whole = encoded(image, kind)
        for position in range(0, len(whole), max(len(whole) // 40, 1)):
            spoilt = bytearray(whole)
            spoilt[position] ^= 0xFF
            for data in (whole[:position], bytes(spoilt)):
                try:
                    made = image_tensor(data, steps(resize=[9, 9], resample="box"))
                except Invalid:
                    continue
                assert made.shape == (9, 9, 3)


def test_pictures_of_32_bits_per_value_are_refused():
    for dtype in (np.float32, np.int32):
        data = encoded(Image.fromarray(np.ones((2, 2), dtype=dtype)), "TIFF")
        with pytest.raises(Invalid, match="32 bits per value"):
            image_tensor(data, steps())


def test_a_wrong_record_names_the_key_that_is_wrong() -> None:
    for document, what in (
        ({"input": {}}, "unknown key 'input'"),
        ({}, "'inputs' is missing"),
        ({"inputs": []}, "'inputs' is missing"),
        ({"inputs": {"x": 3}}, "'inputs.x' is 3"),
        ({"inputs": {"x": RGB | {"colour": "rgb"}}}, "unknown key 'inputs.x.colour'"),
        ({"inputs": {"x": {}}}, "'inputs.x.kind' is missing"),
        ({"inputs": {"x": RGB | {"kind": "sound"}}}, "'inputs.x.kind' is 'sound'"),
        ({"inputs": {"x": RGB | {"color": "RGB"}}}, "'inputs.x.color' is 'RGB'"),
        ({"inputs": {"x": RGB | {"layout": "NCHW"}}}, "'inputs.x.layout' is 'NCHW'"),
        ({"inputs": {"x": RGB | {"dtype": "INT8"}}}, "'inputs.x.dtype' is 'INT8'"),
        ({"inputs": {"x": RGB | {"resize": [8, 8]}}}, "'inputs.x.resample' is missing"),
        (
            {"inputs": {"x": RGB | {"resize": [8, 8], "resample": "area"}}},
            "'inputs.x.resample' is 'area'",
        ),
        ({"inputs": {"x": RGB | {"resize": 8}}}, "'inputs.x.resize' is 8"),
        ({"inputs": {"x": RGB | {"resize": [8, 0]}}}, "'inputs.x.resize' is [8, 0]"),
        ({"inputs": {"x": RGB | {"resize": [8, 8.0]}}}, "'inputs.x.resize' is [8, 8.0]"),
        ({"inputs": {"x": RGB | {"resize": [99999, 99999]}}}, "'inputs.x.resize' is [99999,"),
        ({"inputs": {"x": RGB | {"scale": [1, 0]}}}, "'inputs.x.scale' is [1, 0]"),
        ({"inputs": {"x": RGB | {"scale": 0.1}}}, "'inputs.x.scale' is 0.1"),
        ({"inputs": {"x": RGB | {"scale": [1, 1e-60]}}}, "'inputs.x.scale' is [1, 1e-60]"),
        ({"inputs": {"x": RGB | {"scale": [1e30, 1e-30]}}}, "'inputs.x.scale' is [1e+30, 1e-30]"),
        ({"inputs": {"x": RGB | {"mean": [1, 2]}}}, "'inputs.x.mean' has 2 numbers"),
        ({"inputs": {"x": RGB | {"mean": ["1"]}}}, "'inputs.x.mean' is ['1']"),
        ({"inputs": {"x": RGB | {"mean": [float("nan")]}}}, "'inputs.x.mean' is [nan]"),
        ({"inputs": {"x": RGB | {"std": [1, 0, 1]}}}, "'inputs.x.std' is [1.0, 0.0, 1.0]"),
        (
            {"inputs": {"x": RGB | {"dtype": "UINT8", "scale": [1, 255]}}},
            "'inputs.x.dtype' is UINT8",
        ),
    ):
        error = refusal(Invalid, parse, document)
        assert error.what.startswith("the recorded preprocessing is wrong: "), document
        assert what in error.what, document
        assert error.why, document


def test_what_is_missing_does_nothing():
    made = image_tensor(encoded(colored((1, 2, 3), (4, 5, 6))), steps())
    assert made.tolist() == [[[1, 2, 3], [4, 5, 6]]]


def noisy(height, width, channels=3):
    rng = np.random.default_rng(height * 1000 + width)
    return Image.fromarray(rng.integers(0, 256, (height, width, channels)).astype(np.uint8))


def test_the_shortest_side_is_resized_and_the_longer_is_cut_to_whole_pixels() -> None:
    for height, width, expected in (
        (20, 30, (8, 12)),
        (30, 20, (12, 8)),
        (8, 31, (8, 31)),
        (21, 33, (8, 12)),
        (33, 21, (12, 8)),
        (7, 7, (8, 8)),
    ):
        image = noisy(height, width)
        made = image_tensor(encoded(image), steps(resize={"shortest": 8}, resample="bilinear"))
        direct = np.asarray(image.resize(expected[::-1], Image.Resampling.BILINEAR))
        assert made.shape == (*expected, 3), (height, width)
        assert (made == direct).all(), (height, width)


def test_the_middle_is_cropped_with_halves_rounded_to_even() -> None:
    for before, crop, top in ((9, 4, 2), (7, 4, 2), (8, 4, 2), (5, 4, 0), (4, 4, 0)):
        image = noisy(before, 6)
        made = image_tensor(encoded(image), steps(crop=[crop, 6]))
        assert (made == np.asarray(image)[top : top + crop]).all(), (before, crop)
        turned = image_tensor(
            encoded(image.transpose(Image.Transpose.TRANSPOSE)), steps(crop=[6, crop])
        )
        assert (turned.transpose(1, 0, 2) == made).all(), (before, crop)


def test_resize_comes_before_crop_and_both_before_the_numbers():
    wanted = steps(
        resize={"shortest": 8}, resample="box", crop=[6, 6], divide=255, mean=[0.5], layout="CHW"
    )
    image = noisy(16, 24)
    small = np.asarray(image.resize((12, 8), Image.Resampling.BOX))[1:7, 3:9]
    expected = small.astype(np.float32) / np.float32(255) - np.float32(0.5)
    made = image_tensor(encoded(image), wanted)
    assert made.tobytes() == np.ascontiguousarray(expected.transpose(2, 0, 1)).tobytes()
    assert made.shape == wanted.shape == (3, 6, 6)


def test_a_picture_smaller_than_the_crop_is_refused_not_padded():
    with pytest.raises(Invalid, match="too small for a crop of 5 x 5"):
        image_tensor(encoded(noisy(4, 6)), steps(crop=[5, 5]))


def test_a_long_thin_picture_does_not_become_a_huge_one():
    with pytest.raises(Invalid, match="more than 50 megapixels"):
        image_tensor(encoded(noisy(1, 4000)), steps(resize={"shortest": 400}, resample="box"))


def test_divide_divides_where_scale_multiplies():
    ramp = encoded(Image.fromarray(np.arange(256, dtype=np.uint8).reshape(16, 16)))
    values = np.arange(256, dtype=np.float32).reshape(16, 16, 1)
    divided = image_tensor(ramp, steps(color="grey", divide=255))
    assert divided.tobytes() == (values / np.float32(255)).tobytes()
    assert divided.tobytes() != image_tensor(ramp, steps(color="grey", scale=[1, 255])).tobytes()


def test_wrong_new_fields_are_named_too() -> None:
    for changes, what in (
        ({"resize": {"shortest": 0}, "resample": "box"}, "'inputs.x.resize.shortest' is 0"),
        ({"resize": {}, "resample": "box"}, "'inputs.x.resize.shortest' is missing"),
        ({"resize": {"longest": 3}, "resample": "box"}, "unknown key 'inputs.x.resize.longest'"),
        ({"resize": {"shortest": 9}}, "'inputs.x.resample' is missing"),
        ({"crop": 8}, "'inputs.x.crop' is 8"),
        ({"crop": [8, True]}, "'inputs.x.crop' is [8, True]"),
        ({"crop": [9, 8], "resize": [8, 8], "resample": "box"}, "'inputs.x.crop' is [9, 8]"),
        (
            {"crop": [9, 9], "resize": {"shortest": 8}, "resample": "box"},
            "'inputs.x.crop' is [9, 9]",
        ),
        ({"divide": 0}, "'inputs.x.divide' is 0"),
        ({"divide": "255"}, "'inputs.x.divide' is '255'"),
        ({"divide": 255, "scale": [1, 255]}, "both 'scale' and 'divide'"),
        ({"divide": 255, "dtype": "UINT8"}, "'inputs.x.dtype' is UINT8"),
        ({"scale": [300, 1], "dtype": "FP16"}, "'inputs.x.dtype' is FP16"),
        ({"std": [2e-38]}, "'inputs.x.dtype' is FP32"),
        ({"scale": [3e38, 1], "mean": [3e38]}, "'inputs.x.dtype' is FP32"),
    ):
        error = refusal(Invalid, steps, **changes)
        assert what in error.what, changes
        assert error.why and error.try_this, changes


def test_an_entry_is_written_as_it_was_read():
    for row in (
        RGB,
        RGB | {"resize": [2, 3], "resample": "box", "scale": [1.0, 255.0], "mean": [0.5]},
        RGB | {"resize": {"shortest": 9}, "resample": "lanczos", "crop": [8, 8], "divide": 2.0},
        {"kind": "text", "as": "utf8", "dtype": "INT64", "length": 3, "pad": 1, "lower": True},
        {"kind": "text", "as": "bytes", "dtype": "BYTES", "strip": True, "normalize": "NFC"},
    ):
        assert parse({"inputs": {"x": row}}).inputs["x"].to_json() == row
