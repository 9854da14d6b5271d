"""A row as a picture for people: what was given, made anew as a small PNG without metadata.

Arrays of the shape of a picture are one, too: UINT8 as it is, other numbers spread from their least
(black) to their largest (white). The shapes are [h, w], [h, w, 1 or 3] and [1 or 3, h, w].
"""

import io
from collections.abc import Mapping

import numpy as np
from PIL import Image

from serve.core.errors import Invalid
from serve.tensors import given_files as files
from serve.tensors.datatypes import Array
from serve.tensors.input_forms import GivenInput, InputForm
from serve.tensors.preprocessing import FORMATS, MAX_PIXELS
from serve.workbench.evaluation.rows import LARGEST_CELL

LARGEST_SIDE = 512  # pixels
_LEAST = 2
_BROKEN = "the picture of this row cannot be shown"


def is_pictured(cells: Mapping[str, GivenInput]) -> bool:
    """Whether there is a picture of a row."""
    try:
        return png(cells) is not None
    except Invalid:
        return False


def png(cells: Mapping[str, GivenInput]) -> bytes | None:
    """The first input of a row that is a picture, as a PNG file; None where there is none."""
    for given in cells.values():
        if given.form is InputForm.IMAGE:
            return _encoded(_decoded(given.data))
        pixels = _pixels(given)
        if pixels is not None:
            return _encoded(Image.fromarray(pixels))
    return None


def _decoded(data: bytes) -> Image.Image:
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            if image.width * image.height > MAX_PIXELS:
                raise Invalid(_BROKEN, why=f"it has {image.width} x {image.height} pixels")
            image.draft(None, (LARGEST_SIDE, LARGEST_SIDE))
            if image.mode.startswith("I;16"):
                return Image.fromarray((np.asarray(image).astype(np.uint16) >> 8).astype(np.uint8))
            return image.convert("RGBA" if image.has_transparency_data else _mode(image))
    except Invalid:
        raise
    except Exception as error:  # Pillow's decoders raise whatever a broken file brings them to
        raise Invalid(_BROKEN, why=str(error) or type(error).__name__) from error


def _mode(image: Image.Image) -> str:
    return "L" if image.mode in ("1", "L", "I", "F") else "RGB"


def _encoded(image: Image.Image) -> bytes:
    if max(image.size) > LARGEST_SIDE:
        image.thumbnail((LARGEST_SIDE, LARGEST_SIDE))
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def _pixels(given: GivenInput) -> Array | None:
    """uint8 [h, w] or [h, w, 3], for arrays that have the shape of a picture."""
    array = _array(given)
    if array is None or array.dtype.kind not in "uif":
        return None
    if array.ndim == 3 and array.shape[-1] not in (1, 3) and array.shape[0] in (1, 3):
        array = array.transpose(1, 2, 0)
    if array.ndim == 3 and array.shape[-1] == 1:
        array = array[..., 0]
    is_color = array.ndim == 3 and array.shape[-1] == 3
    if not (array.ndim == 2 or is_color) or min(array.shape[:2]) < _LEAST:
        return None
    if array.size > MAX_PIXELS:
        return None
    if array.dtype == np.uint8:
        return np.ascontiguousarray(array)
    values = np.nan_to_num(array.astype(np.float64), posinf=0.0, neginf=0.0)
    least, largest = values.min(), values.max()
    spread = (values - least) * (255 / (largest - least or 1))
    return np.ascontiguousarray(np.rint(spread).astype(np.uint8))


def _array(given: GivenInput) -> Array | None:
    if given.form is InputForm.NPY:
        return files.npy_array(given.data, given.called, LARGEST_CELL)
    if given.form is not InputForm.JSON:
        return None
    try:
        return np.asarray(files.json_document(given.data, given.called), dtype=np.float64)
    except (ValueError, TypeError, OverflowError):
        return None
