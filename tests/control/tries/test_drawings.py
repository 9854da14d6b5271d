"""Outputs as pictures."""

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from serve.control.tries.picture import drawing
from serve.tensors.metadata import TensorSpec
from serve.tensors.output_kinds import DeclaredOutput

BLACK, WHITE, GREY = (0, 0, 0), (255, 255, 255), (128, 128, 128)


def drawn(
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
    made = drawn(array[None], DeclaredOutput("image", layout=layout, range=(-1.0, 1.0)))
    assert made is not None and made.size == (255, 170)
    found = [[made.getpixel((42 + 85 * x, 42 + 85 * y)) for x in range(3)] for y in range(2)]
    assert found == [[BLACK, WHITE, GREY], [GREY, WHITE, BLACK]]


def test_a_mask_has_a_colour_for_each_class_and_black_for_0() -> None:
    made = drawn(np.array([[[[0, 1], [2, 1]]]], np.int64), DeclaredOutput("mask"))
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
        made = drawn(corners, boxes, background, s=scores)
        assert made is not None and made.size == (256, 128)
        assert made.getpixel((64, 64)) not in (WHITE, BLACK)
        assert made.getpixel((128, 64)) == made.getpixel((0, 8)) == WHITE
    assert drawn(pixels, boxes, None, s=scores) is None
    odd = np.array([[[np.nan, 5, -np.inf, 2], [9, 9, 1, 1]]], np.float32)
    assert drawn(odd, DeclaredOutput("boxes", format="xyxy"), background) is not None


def test_what_is_no_picture_is_not_drawn() -> None:
    assert drawn(np.zeros((1, 3), np.float32), DeclaredOutput("embedding")) is None
    for shape in ((0, 2, 2), (1, 0, 2), (1, 0, 0)):
        assert drawn(np.zeros(shape, np.float32), DeclaredOutput("image", layout="HW")) is None
        assert drawn(np.zeros(shape, np.int64), DeclaredOutput("mask")) is None
