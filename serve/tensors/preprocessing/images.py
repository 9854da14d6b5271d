"""Pictures through their steps: decoded, cut to size, and turned into numbers."""

import io

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from serve.core.errors import Invalid
from serve.tensors.datatypes import Array, numpy_dtype
from serve.tensors.preprocessing.steps import MAX_PIXELS, ImageSteps

FORMATS = (
    "PNG",
    "JPEG",
    "WEBP",
    "GIF",
    "BMP",
    "TIFF",
)  # not EPS, for which Pillow runs Ghostscript
MODES = {"grey": "L", "rgb": "RGB", "bgr": "RGB"}
FILTERS = {
    "nearest": Image.Resampling.NEAREST,
    "box": Image.Resampling.BOX,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}


def image_tensor(data: bytes, steps: ImageSteps) -> Array:
    """The tensor of one picture, without a batch dimension. `data` is a file's content."""
    return numbers_of(pixels_of(decoded(data), steps), steps)


def decoded(data: bytes) -> Image.Image:
    """Step 1: the picture in a file, without transparency and with 8 bits per value."""
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            _require_small(image.width, image.height)
            image.load()
            return _on_black(_eight_bits(image))
    except Image.DecompressionBombError as error:
        raise _too_large(str(error)) from error
    except Invalid:
        raise
    except (
        Exception
    ) as error:  # Pillow's decoders raise whatever a broken file makes them stumble on
        raise Invalid(
            "the picture cannot be read",
            why="it is damaged, or not a picture",
            try_this=f"use one of the formats {', '.join(FORMATS)}",
        ) from error


def as_stored(pixels: NDArray[np.uint8]) -> Image.Image:
    """Step 1 for raw pixels [h, w] or [h, w, channels]: as if they came from a PNG of them.

    The channels are grey, grey and alpha, RGB, or RGBA.
    """
    plain = pixels[..., 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels
    _require_small(plain.shape[1], plain.shape[0])
    return _on_black(Image.fromarray(np.ascontiguousarray(plain)))


def pixels_of(image: Image.Image, steps: ImageSteps) -> NDArray[np.uint8]:
    """Steps 2 to 4: uint8 [height, width, channels]."""
    colored = image.convert(MODES[steps.color])
    height, width = _size(colored, steps)
    if colored.size != (width, height):
        colored = colored.resize((width, height), FILTERS[steps.resample])
    pixels = np.asarray(colored, dtype=np.uint8).reshape(height, width, steps.channels)
    if steps.crop is not None:
        pixels = _middle(pixels, steps.crop)
    return pixels[..., ::-1] if steps.color == "bgr" else pixels


def numbers_of(pixels: NDArray[np.uint8], steps: ImageSteps) -> Array:
    """Steps 5 to 7: the tensor."""
    values: Array = pixels if steps.dtype == "UINT8" else _floats(pixels, steps)
    if steps.layout == "CHW":
        values = values.transpose(2, 0, 1)
    return np.ascontiguousarray(values, dtype=numpy_dtype(steps.dtype))


def _floats(pixels: NDArray[np.uint8], steps: ImageSteps) -> NDArray[np.float32]:
    """Steps 5 and 6, in float32."""
    values = pixels.astype(np.float32)
    if steps.divide != 1:
        values = values / np.float32(steps.divide)
    else:
        values = values * (np.float32(steps.scale[0]) / np.float32(steps.scale[1]))
    if any(mean != 0 for mean in steps.mean):
        values = values - np.array(steps.mean, dtype=np.float32)
    if any(std != 1 for std in steps.std):
        values = values / np.array(steps.std, dtype=np.float32)
    return values


def _size(image: Image.Image, steps: ImageSteps) -> tuple[int, int]:
    """The height and width that step 3 leaves."""
    width, height = image.size
    if steps.resize is not None:
        return steps.resize
    if not steps.shortest or min(width, height) == steps.shortest:
        return height, width
    longer = int(steps.shortest * max(width, height) / min(width, height))
    _require_small(longer, steps.shortest)
    return (steps.shortest, longer) if height <= width else (longer, steps.shortest)


def _middle(pixels: NDArray[np.uint8], crop: tuple[int, int]) -> NDArray[np.uint8]:
    """Step 4."""
    (height, width), (wanted_height, wanted_width) = pixels.shape[:2], crop
    if height < wanted_height or width < wanted_width:
        raise Invalid(
            f"the picture has {height} x {width} pixels, which is too small for a crop of "
            f"{wanted_height} x {wanted_width}",
            why="the recorded preprocessing does not pad",
            try_this="use a larger picture, or 'resize' before 'crop' in preprocessing.json",
        )
    top = int(round((height - wanted_height) / 2.0))  # noqa: RUF046 — as torchvision has it
    left = int(round((width - wanted_width) / 2.0))  # noqa: RUF046
    return pixels[top : top + wanted_height, left : left + wanted_width]


def _eight_bits(image: Image.Image) -> Image.Image:
    """The picture with 8 bits per value, as Pillow has it already but for 16-bit grey."""
    if image.mode.startswith("I;16"):
        return Image.fromarray((np.asarray(image).astype(np.uint16) >> 8).astype(np.uint8))
    if image.mode in ("I", "F"):
        raise Invalid(
            "the picture has 32 bits per value",
            why="its value for white is unknown",
            try_this="use 8 or 16 bits per value",
        )
    return image


def _on_black(image: Image.Image) -> Image.Image:
    """The picture without transparency."""
    if not image.has_transparency_data:
        return image
    layer = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", layer.size, (0, 0, 0, 255)), layer)


def _require_small(width: int, height: int) -> None:
    if width * height > MAX_PIXELS:
        raise _too_large(f"it has {width} x {height} pixels")


def _too_large(why: str) -> Invalid:
    limit = MAX_PIXELS // 1_000_000
    return Invalid(
        f"the picture has more than {limit} megapixels", why=why, try_this="use a smaller picture"
    )
