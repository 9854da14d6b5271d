"""A tensor as the picture that the model sees: its preprocessing undone, to 8 bits.

Without recorded preprocessing, what has the shape of a picture is one: UINT8 as it is, floats
spread from their least (black) to their largest (white).
"""

import io

import numpy as np
from PIL import Image

from serve.tensors.datatypes import Array
from serve.tensors.preprocessing import ImageSteps

_SMALL = 256  # pixels of the longer side, up to which a picture is enlarged
_LARGEST = 1024  # pixels of a side that are shown
_LEAST = 2  # pixels of a side


def is_picture(array: Array, steps: ImageSteps | None) -> bool:
    """Whether there is a picture of the first row of a tensor."""
    return _pixels(array, steps) is not None


def png(array: Array, steps: ImageSteps | None) -> bytes | None:
    """The first row as a PNG file, None for what is no picture; enlarged if small."""
    image = picture(array, steps)
    if image is None:
        return None
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
