"""The recorded preprocessing: pictures become exactly the tensors of the training."""

import io
import json
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from refusals import refusal

from serve.core.errors import Invalid
from serve.tensors.preprocessing import MAX_PIXELS, image_tensor, parse

ROOT = Path(__file__).parents[2]
RGB = {"kind": "image", "color": "rgb", "layout": "HWC", "dtype": "FP32"}


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


def test_pictures_become_tensors_of_the_demo_model():
    """Its own training pictures are in the tests of the skew check."""
    text = (ROOT / "model_repo" / "digits" / "preprocessing.json").read_text("utf-8")
    recorded = parse(json.loads(text)).inputs["x"]
    for name in ("seven.png", "three.png", "disagree.png"):
        made = image_tensor((ROOT / "examples" / "digits" / name).read_bytes(), recorded)
        assert made.shape == (8, 8, 1)
        assert 0 <= made.min() < made.max() <= 1
    ramp = Image.fromarray(np.arange(64 * 48, dtype=np.uint32).astype(np.uint8).reshape(48, 64))
    small = np.asarray(ramp.resize((8, 8), Image.Resampling.BOX))
    expected = small.astype(np.float32) * np.float32(1 / 255)
    assert image_tensor(encoded(ramp), recorded).tobytes() == expected.tobytes()


def test_resize_is_height_then_width_with_the_named_filter() -> None:
    image = noisy(20, 30)
    for name in ("nearest", "box", "bilinear", "bicubic", "lanczos"):
        made = image_tensor(encoded(image), steps(resize=[5, 7], resample=name))
        expected = np.asarray(image.resize((7, 5), Image.Resampling[name.upper()]))
        assert made.shape == (5, 7, 3), name
        assert (made == expected).all(), name
        same = image_tensor(encoded(image), steps(resize=[20, 30], resample=name))
        assert (same == np.asarray(image)).all(), name


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


def test_other_formats_and_modes_are_read():
    image = colored((255, 255, 255), (0, 0, 0))
    for kind in ("JPEG", "WEBP", "GIF", "BMP", "TIFF"):
        assert image_tensor(encoded(image, kind), steps()).shape == (1, 2, 3)
    bits = image_tensor(encoded(image.convert("1")), steps())
    assert bits.ravel().tolist() == [255] * 3 + [0] * 3
    assert image_tensor(encoded(image.convert("CMYK"), "JPEG"), steps()).shape == (1, 2, 3)
    # Of 16 bits of grey the high byte counts, of an animation the first frame.
    deep = Image.fromarray(np.array([[0, 255, 256, 65535]], dtype=np.uint16))
    assert image_tensor(encoded(deep), steps(color="grey")).ravel().tolist() == [0, 0, 1, 255]
    frames = [colored((0, 0, 0)), colored((255, 255, 255))]
    moving = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert image_tensor(moving, steps()).ravel().tolist() == [0, 0, 0]


def test_a_picture_of_more_than_50_megapixels_is_refused_before_it_is_decoded() -> None:
    for width, height in ((10_000, 5_001), (20_000, 20_000), (1, 2**31 - 1)):
        assert width * height > MAX_PIXELS, width
        error = refusal(Invalid, image_tensor, claiming(width, height), steps())
        assert "more than 50 megapixels" in str(error), width
        assert error.try_this == "use a smaller picture", width


def test_what_cannot_be_decoded_or_nobody_needs_is_refused() -> None:
    broken = (b"", b"no picture", b"%!PS-Adobe-3.0 EPSF-3.0\n", claiming(3, 3), claiming(0, 0))
    unneeded = [encoded(Image.new("RGB", (16, 16)), kind) for kind in ("EPS", "PPM", "ICO", "PCX")]
    for data in (*broken, *unneeded):
        error = refusal(Invalid, image_tensor, data, steps())
        assert "the picture cannot be read" in str(error), data[:20]
        assert "PNG, JPEG" in error.try_this, data[:20]


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


def test_pictures_that_the_steps_do_not_take_are_refused():
    deep = [np.ones((2, 2), dtype=dtype) for dtype in (np.float32, np.int32)]
    shortest = steps(resize={"shortest": 400}, resample="box")
    for data, wanted, said in (
        *((encoded(Image.fromarray(one), "TIFF"), steps(), "32 bits per value") for one in deep),
        (encoded(noisy(4, 6)), steps(crop=[5, 5]), "too small for a crop of 5 x 5"),
        (encoded(noisy(1, 4000)), shortest, "more than 50 megapixels"),
    ):
        assert said in str(refusal(Invalid, image_tensor, data, wanted)), said


def test_a_wrong_record_names_the_key_that_is_wrong() -> None:
    for document, what in (
        ({"input": {}}, "unknown key 'input'"),
        ({}, "'inputs' is missing"),
        ({"inputs": []}, "'inputs' is missing"),
        ({"inputs": {"x": 3}}, "'inputs.x' is 3"),
        ({"inputs": {"x": {}}}, "'inputs.x.kind' is missing"),
    ):
        error = refusal(Invalid, parse, document)
        assert error.what.startswith("the recorded preprocessing is wrong: "), document
        assert what in error.what and error.why, document
    box, sized = {"resample": "box"}, {"resize": [8, 8], "resample": "box"}
    for changes, what in (
        ({"colour": "rgb"}, "unknown key 'inputs.x.colour'"),
        ({"kind": "sound"}, "'inputs.x.kind' is 'sound'"),
        ({"color": "RGB"}, "'inputs.x.color' is 'RGB'"),
        ({"layout": "NCHW"}, "'inputs.x.layout' is 'NCHW'"),
        ({"dtype": "INT8"}, "'inputs.x.dtype' is 'INT8'"),
        ({"resize": [8, 8]}, "'inputs.x.resample' is missing"),
        ({"resize": {"shortest": 9}}, "'inputs.x.resample' is missing"),
        ({"resize": [8, 8], "resample": "area"}, "'inputs.x.resample' is 'area'"),
        ({"resize": 8}, "'inputs.x.resize' is 8"),
        ({"resize": [8, 0]}, "'inputs.x.resize' is [8, 0]"),
        ({"resize": [8, 8.0]}, "'inputs.x.resize' is [8, 8.0]"),
        ({"resize": [99999, 99999]}, "'inputs.x.resize' is [99999,"),
        ({"resize": {"shortest": 0}} | box, "'inputs.x.resize.shortest' is 0"),
        ({"resize": {}} | box, "'inputs.x.resize.shortest' is missing"),
        ({"resize": {"longest": 3}} | box, "unknown key 'inputs.x.resize.longest'"),
        ({"crop": 8}, "'inputs.x.crop' is 8"),
        ({"crop": [8, True]}, "'inputs.x.crop' is [8, True]"),
        ({"crop": [9, 8]} | sized, "'inputs.x.crop' is [9, 8]"),
        ({"crop": [9, 9], "resize": {"shortest": 8}} | box, "'inputs.x.crop' is [9, 9]"),
        ({"scale": [1, 0]}, "'inputs.x.scale' is [1, 0]"),
        ({"scale": 0.1}, "'inputs.x.scale' is 0.1"),
        ({"scale": [1, 1e-60]}, "'inputs.x.scale' is [1, 1e-60]"),
        ({"scale": [1e30, 1e-30]}, "'inputs.x.scale' is [1e+30, 1e-30]"),
        ({"divide": 0}, "'inputs.x.divide' is 0"),
        ({"divide": "255"}, "'inputs.x.divide' is '255'"),
        ({"divide": 255, "scale": [1, 255]}, "both 'scale' and 'divide'"),
        ({"mean": [1, 2]}, "'inputs.x.mean' has 2 numbers"),
        ({"mean": ["1"]}, "'inputs.x.mean' is ['1']"),
        ({"mean": [float("nan")]}, "'inputs.x.mean' is [nan]"),
        ({"std": [1, 0, 1]}, "'inputs.x.std' is [1.0, 0.0, 1.0]"),
        ({"dtype": "UINT8", "scale": [1, 255]}, "'inputs.x.dtype' is UINT8"),
        ({"dtype": "UINT8", "divide": 255}, "'inputs.x.dtype' is UINT8"),
        ({"dtype": "FP16", "scale": [300, 1]}, "'inputs.x.dtype' is FP16"),
        ({"std": [2e-38]}, "'inputs.x.dtype' is FP32"),
        ({"scale": [3e38, 1], "mean": [3e38]}, "'inputs.x.dtype' is FP32"),
    ):
        error = refusal(Invalid, parse, {"inputs": {"x": RGB | changes}})
        assert what in error.what, changes
        assert error.why and error.try_this, changes


def noisy(height, width, channels=3):
    rng = np.random.default_rng(height * 1000 + width)
    return Image.fromarray(rng.integers(0, 256, (height, width, channels)).astype(np.uint8))


def test_the_shortest_side_is_resized_and_the_longer_is_cut_to_whole_pixels() -> None:
    for size, expected in (
        *(((20, 30), (8, 12)), ((30, 20), (12, 8)), ((8, 31), (8, 31))),
        *(((21, 33), (8, 12)), ((33, 21), (12, 8)), ((7, 7), (8, 8))),
    ):
        image = noisy(*size)
        made = image_tensor(encoded(image), steps(resize={"shortest": 8}, resample="bilinear"))
        direct = np.asarray(image.resize(expected[::-1], Image.Resampling.BILINEAR))
        assert made.shape == (*expected, 3), size
        assert (made == direct).all(), size


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


def test_divide_divides_where_scale_multiplies():
    ramp = encoded(Image.fromarray(np.arange(256, dtype=np.uint8).reshape(16, 16)))
    values = np.arange(256, dtype=np.float32).reshape(16, 16, 1)
    divided = image_tensor(ramp, steps(color="grey", divide=255))
    scaled = image_tensor(ramp, steps(color="grey", scale=[1, 255]))
    assert divided.tobytes() == (values / np.float32(255)).tobytes()
    assert scaled.tobytes() == (values * np.float32(1 / 255)).tobytes()
    assert divided.tobytes() != scaled.tobytes()


def test_an_entry_is_written_as_it_was_read():
    for row in (
        RGB,
        RGB | {"resize": [2, 3], "resample": "box", "scale": [1.0, 255.0], "mean": [0.5]},
        RGB | {"resize": {"shortest": 9}, "resample": "lanczos", "crop": [8, 8], "divide": 2.0},
        {"kind": "text", "as": "utf8", "dtype": "INT64", "length": 3, "pad": 1, "lower": True},
        {"kind": "text", "as": "bytes", "dtype": "BYTES", "strip": True, "normalize": "NFC"},
    ):
        assert parse({"inputs": {"x": row}}).inputs["x"].to_json() == row
