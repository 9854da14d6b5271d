"""A tensor as the picture that the model sees."""

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from serve.control.tries.picture import is_picture, png
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


def test_a_grey_picture_stays_grey() -> None:
    how = steps(color="grey", scale=(1.0, 255.0))
    assert drawn(image_tensor(file(), how), how).ndim == 2


def test_without_a_record_pixels_are_shown_and_floats_are_spread() -> None:
    assert np.array_equal(drawn(PIXELS, None)[::42, ::42], PIXELS)
    spread = drawn(np.linspace(-3, 7, 48, dtype=np.float32).reshape(1, 3, 4, 4), None)
    assert (spread.min(), spread.max()) == (0, 255)


@pytest.mark.parametrize("fill", [np.nan, np.inf, -np.inf, 3e38, 0])
def test_values_that_are_no_light_do_no_harm(fill: float) -> None:
    array = np.full((8, 8, 1), fill, np.float32)
    array[0, 0] = 1
    assert png(array, None) and png(array, steps(color="grey", scale=(0.0, 1.0)))


@pytest.mark.parametrize(
    "shape", [(4,), (4, 4), (8, 8, 2), (1, 1, 1), (0, 8, 8, 3), (2, 2, 2, 2, 3)]
)
def test_what_has_another_shape_is_no_picture(shape: tuple[int, ...]) -> None:
    assert not is_picture(np.zeros(shape, np.float32), None)


def test_a_large_picture_is_reduced() -> None:
    assert drawn(np.zeros((3000, 20, 3), np.uint8), None).shape == (1024, 7, 3)
