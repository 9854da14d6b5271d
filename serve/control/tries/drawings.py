"""Outputs as pictures: images, masks and boxes of the first row, as PNG files.

A mask has a colour for each class number; 0 is black, as the background usually is. Boxes are drawn
on a picture that the model was sent, if there was one: their corners are pixels of that input, or
shares of its sides if none is above 1.
"""

import colorsys
import io
from collections.abc import Mapping

import numpy as np
from PIL import Image, ImageDraw

from serve.control.tries.picture import enlarged
from serve.tensors.datatypes import Array
from serve.tensors.metadata import TensorSpec
from serve.tensors.output_comparison import boxes_of, rows_of
from serve.tensors.output_kinds import DeclaredOutput

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
    if not len(rows):
        return None
    if declared.kind == "image":
        image = _image(rows[0], declared)
    elif declared.kind == "mask":
        image = _mask(rows[0])
    elif declared.kind == "boxes" and background is not None:
        image = _boxes(name, answer, declared, spec, background)
    else:
        return None
    file = io.BytesIO()
    enlarged(image).save(file, "PNG")
    return file.getvalue()


def _image(row: Array, declared: DeclaredOutput) -> Image.Image:
    order = [declared.layout.index(axis) for axis in "HWC" if axis in declared.layout]
    black, white = declared.range
    values = (row.astype(np.float64).transpose(order) - black) * (255 / (white - black))
    levels = np.nan_to_num(np.rint(values)).clip(0, 255).astype(np.uint8)
    return Image.fromarray(levels[..., 0] if levels.shape[-1:] == (1,) else levels)


def _mask(row: Array) -> Image.Image:
    flat = row.reshape([size for size in row.shape if size != 1] if row.ndim > 2 else row.shape)
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
