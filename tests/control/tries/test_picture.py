"""Tensors as pictures: what the model sees, and what it answers."""

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from serve.control.tries.picture import drawing, is_picture, png
from serve.tensors.metadata import TensorSpec
from serve.tensors.output_kinds import DeclaredOutput
from serve.tensors.preprocessing import ImageSteps, image_tensor

PIXELS = np.random.default_rng(7).integers(0, 256, (6, 5, 3), dtype=np.uint8)


def steps(**more: Any) -> ImageSteps:
    return ImageSteps(**{"color": "rgb", "layout": "HWC", "dtype": "FP32", **more})


def drawn(array: Any, how: ImageSteps | None) -> Any:
    data = png(array, how)
    assert data is not None
    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(image)


def file() -> bytes:
    data = io.BytesIO()
    Image.fromarray(PIXELS).save(data, "PNG")
    return data.getvalue()


@pytest.mark.parametrize(
    "how",
    [
        steps(scale=(1.0, 255.0), mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.4)),
        steps(layout="CHW", divide=127.5, mean=(1.0,)),
        steps(color="bgr", layout="CHW", scale=(1.0, 16.0)),
        steps(dtype="UINT8"),
    ],
)
def test_preprocessing_is_undone(how: ImageSteps) -> None:
    tensor = image_tensor(file(), how)
    shown = drawn(tensor[None], how)
    assert shown.shape == (6 * 42, 5 * 42, 3)
    assert np.array_equal(shown[::42, ::42], PIXELS)
    assert np.array_equal(shown[41::42, 41::42], PIXELS)


def test_a_grey_picture_stays_grey_and_a_large_one_is_reduced() -> None:
    how = steps(color="grey", scale=(1.0, 255.0))
    assert drawn(image_tensor(file(), how), how).ndim == 2
    assert drawn(np.zeros((3000, 20, 3), np.uint8), None).shape == (1024, 7, 3)


def test_without_a_record_pixels_are_shown_and_floats_are_spread() -> None:
    assert np.array_equal(drawn(PIXELS, None)[::42, ::42], PIXELS)
    spread = drawn(np.linspace(-3, 7, 48, dtype=np.float32).reshape(1, 3, 4, 4), None)
    assert (spread.min(), spread.max()) == (0, 255)


def test_values_that_are_no_light_do_no_harm() -> None:
    for fill in (np.nan, np.inf, -np.inf, 3e38, 0):
        array = np.full((8, 8, 1), fill, np.float32)
        array[0, 0] = 1
        assert png(array, None) and png(array, steps(color="grey", scale=(0.0, 1.0))), fill


def test_what_has_another_shape_is_no_picture() -> None:
    for shape in ((4,), (4, 4), (8, 8, 2), (1, 1, 1), (0, 8, 8, 3), (2, 2, 2, 2, 3)):
        assert not is_picture(np.zeros(shape, np.float32), None), shape


# --- outputs -------------------------------------------------------------------------------------

BLACK, WHITE, GREY = (0, 0, 0), (255, 255, 255), (128, 128, 128)


def output(
    array: Any, declared: DeclaredOutput, background: Image.Image | None = None, **others: Any
) -> Image.Image | None:
    spec = TensorSpec("y", "FP32", (-1, *array.shape[1:]))
    data = drawing("y", {"y": array, **others}, declared, spec, background)
    return None if data is None else Image.open(io.BytesIO(data)).convert("RGB")


@pytest.mark.parametrize(
    ("layout", "shape"),
    [("HW", (2, 3)), ("HWC", (2, 3, 1)), ("CHW", (1, 2, 3)), ("CHW", (3, 2, 3))],
)
def test_an_image_is_drawn_in_its_range_and_layout(layout: str, shape: tuple[int, ...]) -> None:
    levels = np.array([[-1, 1, 0], [0, 7, np.nan]], np.float32)
    array = np.broadcast_to(
        levels.reshape(1, 2, 3) if layout == "CHW" else levels.reshape(shape), shape
    )
    made = output(array[None], DeclaredOutput("image", layout=layout, range=(-1.0, 1.0)))
    assert made is not None and made.size == (255, 170)
    found = [[made.getpixel((42 + 85 * x, 42 + 85 * y)) for x in range(3)] for y in range(2)]
    assert found == [[BLACK, WHITE, GREY], [GREY, WHITE, BLACK]]


def test_a_mask_has_a_colour_for_each_class_and_black_for_0() -> None:
    made = output(np.array([[[[0, 1], [2, 1]]]], np.int64), DeclaredOutput("mask"))
    assert made is not None
    background, one, two, same = (
        made.getpixel(at) for at in ((9, 9), (200, 9), (9, 200), (200, 200))
    )
    assert background == BLACK
    assert one == same != two


def test_boxes_are_drawn_on_the_picture_that_was_sent() -> None:
    background = Image.new("L", (16, 8), 255)
    boxes = DeclaredOutput("boxes", format="xyxy", scores="s", threshold=0.5)
    scores = np.array([[0.9, 0.1]], np.float32)
    pixels = np.array([[[4, 2, 12, 6], [0, 0, 1, 1]]], np.float32)
    shares = pixels / [16, 8, 16, 8]
    for corners in (pixels, shares):
        made = output(corners, boxes, background, s=scores)
        assert made is not None and made.size == (256, 128)
        assert made.getpixel((64, 64)) not in (WHITE, BLACK)
        assert made.getpixel((128, 64)) == made.getpixel((0, 8)) == WHITE
    assert output(pixels, boxes, None, s=scores) is None
    odd = np.array([[[np.nan, 5, -np.inf, 2], [9, 9, 1, 1]]], np.float32)
    assert output(odd, DeclaredOutput("boxes", format="xyxy"), background) is not None


def test_what_is_no_picture_is_not_drawn() -> None:
    assert output(np.zeros((1, 3), np.float32), DeclaredOutput("embedding")) is None
    for shape in ((0, 2, 2), (1, 0, 2), (1, 0, 0)):
        assert output(np.zeros(shape, np.float32), DeclaredOutput("image", layout="HW")) is None
        assert output(np.zeros(shape, np.int64), DeclaredOutput("mask")) is None
