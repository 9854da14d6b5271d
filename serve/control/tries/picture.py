"""A tensor as the picture that the model sees: its preprocessing undone, to 8 bits.

Without recorded preprocessing, what has the shape of a picture is one: UINT8 as it is, floats
spread from their least (black) to their largest (white).

Outputs as pictures: images, masks and boxes of the first row, as PNG files.

A mask has a colour for each class number; 0 is black, as the background usually is. Boxes are drawn
on a picture that the model was sent, if there was one: their corners are pixels of that input, or
shares of its sides if none is above 1.
"""

import colorsys
import io
from collections.abc import Mapping

import numpy as np
from PIL import Image, ImageDraw

from serve.tensors.datatypes import Array
from serve.tensors.metadata import TensorSpec
from serve.tensors.output_comparison import boxes_of, rows_of
from serve.tensors.output_kinds import DeclaredOutput
from serve.tensors.preprocessing import ImageSteps

# --- outputs as pictures --------------------------------------------------------------------------


_GOLDEN = 0.618034  # of a turn between the hues of two classes, so that neighbours differ
_BOXES = 100


def drawing(
    name: str,
    answer: Mapping[str, Array],
    declared: DeclaredOutput,
    spec: TensorSpec | None,
    background: Image.Image | None,
) -> bytes | None:
    """An output as a PNG file; None for what is no picture. `background` is what was sent."""
    rows = rows_of(answer[name], spec)
    image: Image.Image | None = None
    if not len(rows) or not rows[0].size:
        return None
    if declared.kind == "image":
        image = _image(rows[0], declared)
    elif declared.kind == "mask":
        image = _mask(rows[0])
    elif declared.kind == "boxes" and background is not None:
        image = _boxes(name, answer, declared, spec, background)
    return None if image is None else _file(image)


def _image(row: Array, declared: DeclaredOutput) -> Image.Image:
    order = [declared.layout.index(axis) for axis in "HWC" if axis in declared.layout]
    black, white = declared.range
    values = (row.astype(np.float64).transpose(order) - black) * (255 / (white - black))
    levels = np.nan_to_num(np.rint(values)).clip(0, 255).astype(np.uint8)
    return Image.fromarray(levels[..., 0] if levels.shape[-1:] == (1,) else levels)


def _mask(row: Array) -> Image.Image:
    single = next((axis for axis, size in enumerate(row.shape) if size == 1), 0)
    flat = row.squeeze(single) if row.ndim > 2 else row  # one channel, first or last
    classes, places = np.unique(flat, return_inverse=True)
    colors = np.array([_color(int(one)) for one in classes], np.uint8)
    return Image.fromarray(colors[places.reshape(flat.shape)])


def _boxes(
    name: str,
    answer: Mapping[str, Array],
    declared: DeclaredOutput,
    spec: TensorSpec | None,
    background: Image.Image,
) -> Image.Image:
    found = boxes_of(name, answer, declared, spec)[0]
    are_shares = not found.corners.size or np.nanmax(np.abs(found.corners)) <= 1
    scale = np.array(background.size * 2) if are_shares else np.ones(4)
    image = enlarged(background.convert("RGB"))
    scale = scale * (image.width / background.width)
    pen = ImageDraw.Draw(image)
    for corners, number in list(zip(found.corners, found.classes, strict=True))[:_BOXES]:
        left, top, right, bottom = np.nan_to_num(corners * scale).clip(-1e4, 1e4).tolist()
        if left <= right and top <= bottom:
            pen.rectangle((left, top, right, bottom), outline=_color(int(number) + 1), width=2)
    return image


def _color(number: int) -> tuple[int, int, int]:
    if number == 0:
        return 0, 0, 0
    red, green, blue = colorsys.hsv_to_rgb(number * _GOLDEN % 1, 0.75, 0.95)
    return round(red * 255), round(green * 255), round(blue * 255)


# --- a tensor as the picture that the model sees --------------------------------------------------


_SMALL = 256  # pixels of the longer side, up to which a picture is enlarged
_LARGEST = 1024  # pixels of a side that are shown
_LEAST = 2  # pixels of a side


def is_picture(array: Array, steps: ImageSteps | None) -> bool:
    """Whether there is a picture of the first row of a tensor."""
    return _pixels(array, steps) is not None


def png(array: Array, steps: ImageSteps | None) -> bytes | None:
    """The first row as a PNG file, None for what is no picture; enlarged if small."""
    image = picture(array, steps)
    return None if image is None else _file(image)


def _file(image: Image.Image) -> bytes:
    file = io.BytesIO()
    enlarged(image).save(file, "PNG")
    return file.getvalue()


def picture(array: Array, steps: ImageSteps | None) -> Image.Image | None:
    """The first row, a pixel for each element; None for what is no picture."""
    pixels = _pixels(array, steps)
    if pixels is None:
        return None
    grey = pixels.shape[-1] == 1
    return Image.fromarray(pixels[..., 0] if grey else pixels, "L" if grey else "RGB")


def enlarged(image: Image.Image) -> Image.Image:
    """A size that people can look at: small ones in whole steps, large ones reduced."""
    image = image.copy()
    image.thumbnail((_LARGEST, _LARGEST))
    factor = max(_SMALL // max(image.size), 1)
    size = (image.width * factor, image.height * factor)
    return image.resize(size, Image.Resampling.NEAREST)


def _pixels(array: Array, steps: ImageSteps | None) -> Array | None:
    """uint8 [height, width, channels], grey or red, green, blue."""
    row = array[0] if array.ndim == 4 and len(array) else array
    if row.ndim != 3 or row.dtype.kind not in "uf":
        return None
    if steps is None:
        channels_first = row.shape[0] in (1, 3) and row.shape[-1] not in (1, 3)
    else:
        channels_first = steps.layout == "CHW"
    pixels = row.transpose(1, 2, 0) if channels_first else row
    if pixels.shape[-1] not in (1, 3) or min(pixels.shape[:2]) < _LEAST:
        return None
    if steps is None:
        return _spread(pixels)
    if pixels.shape[-1] != steps.channels:
        return None
    return _undone(pixels, steps)


def _undone(pixels: Array, steps: ImageSteps) -> Array:
    """Back from numbers to levels of grey or colour."""
    values = pixels.astype(np.float64) * np.array(steps.std) + np.array(steps.mean)
    values = values * (steps.scale[1] / (steps.scale[0] or 1)) * steps.divide
    levels: Array = np.nan_to_num(np.rint(values)).clip(0, 255).astype(np.uint8)
    return levels[..., ::-1] if steps.color == "bgr" else levels


def _spread(pixels: Array) -> Array | None:
    if pixels.dtype == np.uint8:
        return pixels
    if pixels.dtype.kind != "f":
        return None
    values = np.nan_to_num(pixels.astype(np.float64), posinf=0.0, neginf=0.0)
    least, largest = values.min(), values.max()
    levels: Array = np.rint((values - least) * (255 / (largest - least or 1))).astype(np.uint8)
    return levels
