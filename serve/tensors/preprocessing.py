"""The recorded preprocessing: how a picture becomes a tensor, the same for everyone who sends one.

`preprocessing.json` beside a model names, for each input that is a picture, every step. They run in
this order, each on what the step before left:

1. decode: PNG, JPEG, WebP, GIF, BMP or TIFF; the first frame; at most 50 megapixels. Transparent
   parts are laid on black. Of 16 bits per value the high 8 count. An orientation tag is ignored,
   as training pipelines do.
2. `color`: grey (ITU-R 601 luma), rgb or bgr, 8 bits per channel.
3. `resize` to [height, width] with the filter `resample`; a picture that has this size already is
   not touched. Without `resize` a picture keeps its size.
4. `scale` [a, b]: float32 pixels times float32(a) / float32(b).
5. `mean` and `std`, one number or one per channel in the order of `color`: (x - mean) / std. A mean
   of 0 and a std of 1 change nothing, and are not computed.
6. `layout` HWC or CHW, then `dtype`.

`kind`, `color`, `layout` and `dtype` must be there; what else is missing does nothing.
"""

import io
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from serve.core.errors import Invalid
from serve.tensors.datatypes import Array, numpy_dtype

MAX_PIXELS = 50_000_000
FORMATS = (
    "PNG",
    "JPEG",
    "WEBP",
    "GIF",
    "BMP",
    "TIFF",
)  # not EPS, for which Pillow runs Ghostscript
_MODES = {"grey": "L", "rgb": "RGB", "bgr": "RGB"}
_FILTERS = {
    "nearest": Image.Resampling.NEAREST,
    "box": Image.Resampling.BOX,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}
_LAYOUTS = ("HWC", "CHW")
_DTYPES = ("FP32", "FP16", "BF16", "FP64", "UINT8")
_KEYS = frozenset(
    {"kind", "color", "resize", "resample", "scale", "mean", "std", "layout", "dtype"}
)


@dataclass(frozen=True, slots=True)
class ImageSteps:
    """How a picture becomes one input. `resize` is (height, width); fields as in the file."""

    color: str
    layout: str
    dtype: str
    resize: tuple[int, int] | None = None
    resample: str = ""
    scale: tuple[float, float] = (1.0, 1.0)
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)

    @property
    def channels(self) -> int:
        """How many numbers a pixel has."""
        return 1 if self.color == "grey" else 3


@dataclass(frozen=True, slots=True)
class Preprocessing:
    """The steps of each input that has some."""

    inputs: Mapping[str, ImageSteps]


def parse(document: Mapping[str, Any]) -> Preprocessing:
    """Read the document of `preprocessing.json`; an unknown key or a wrong value is `Invalid`."""
    unknown = sorted(set(document) - {"inputs"})
    if unknown:
        raise _wrong(f"unknown key '{unknown[0]}'", "only 'inputs' is known here")
    inputs = document.get("inputs")
    if not isinstance(inputs, Mapping):
        raise _wrong("'inputs' is missing", "it maps each input's name to its steps")
    return Preprocessing(
        MappingProxyType({str(name): _steps(f"inputs.{name}", row) for name, row in inputs.items()})
    )


def image_tensor(data: bytes, steps: ImageSteps) -> Array:
    """The tensor of one picture, without a batch dimension. `data` is a file's content."""
    pixels = _pixels(data, steps)
    values: Array = pixels if steps.dtype == "UINT8" else _numbers(pixels, steps)
    if steps.layout == "CHW":
        values = values.transpose(2, 0, 1)
    return np.ascontiguousarray(values, dtype=numpy_dtype(steps.dtype))


def _numbers(pixels: NDArray[np.uint8], steps: ImageSteps) -> NDArray[np.float32]:
    """Steps 4 and 5, in float32."""
    factor = np.float32(steps.scale[0]) / np.float32(steps.scale[1])
    values = pixels.astype(np.float32) * factor
    if any(mean != 0 for mean in steps.mean):
        values = values - np.array(steps.mean, dtype=np.float32)
    if any(std != 1 for std in steps.std):
        values = values / np.array(steps.std, dtype=np.float32)
    return values


def _pixels(data: bytes, steps: ImageSteps) -> NDArray[np.uint8]:
    """Steps 1 to 3: uint8 [height, width, channels]."""
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            _check_size(image.width, image.height)
            colored = _on_black(_eight_bits(image)).convert(_MODES[steps.color])
    except Image.DecompressionBombError as error:
        raise _too_large(str(error)) from error
    except Invalid:
        raise
    except (
        Exception
    ) as error:  # Pillow's decoders raise whatever a broken file makes them stumble on
        raise Invalid(
            "the picture cannot be read",
            why=str(error) or type(error).__name__,
            try_this=f"one of the formats {', '.join(FORMATS)}",
        ) from error
    if steps.resize is not None:
        size = (steps.resize[1], steps.resize[0])
        if colored.size != size:
            colored = colored.resize(size, _FILTERS[steps.resample])
    pixels = np.asarray(colored, dtype=np.uint8).reshape(
        colored.height, colored.width, steps.channels
    )
    return pixels[..., ::-1] if steps.color == "bgr" else pixels


def _eight_bits(image: Image.Image) -> Image.Image:
    """The picture with 8 bits per value, as Pillow has it already but for 16-bit grey."""
    if image.mode.startswith("I;16"):
        return Image.fromarray((np.asarray(image).astype(np.uint16) >> 8).astype(np.uint8))
    if image.mode in ("I", "F"):
        raise Invalid(
            "the picture has 32 bits per value",
            why="nothing says which of them is white",
            try_this="8 or 16 bits per value",
        )
    return image


def _on_black(image: Image.Image) -> Image.Image:
    """The picture without transparency."""
    if not image.has_transparency_data:
        return image
    layer = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", layer.size, (0, 0, 0, 255)), layer)


def _check_size(width: int, height: int) -> None:
    if width * height > MAX_PIXELS:
        raise _too_large(f"it has {width} x {height} pixels")


def _too_large(why: str) -> Invalid:
    limit = MAX_PIXELS // 1_000_000
    return Invalid(
        f"the picture has more than {limit} megapixels", why=why, try_this="a smaller picture"
    )


# --- reading the document ------------------------------------------------------------------------


def _steps(where: str, row: Any) -> ImageSteps:
    """One entry of `inputs`."""
    if not isinstance(row, Mapping):
        raise _wrong(f"'{where}' is {row!r}", "an object with the steps is needed")
    unknown = sorted(str(key) for key in set(row) - _KEYS)
    if unknown:
        raise _wrong(f"unknown key '{where}.{unknown[0]}'", f"known are {', '.join(sorted(_KEYS))}")
    _word(where, row, "kind", ("image",))
    color = _word(where, row, "color", tuple(_MODES))
    channels = 1 if color == "grey" else 3
    resize = _size(where, row)
    steps = ImageSteps(
        color=color,
        layout=_word(where, row, "layout", _LAYOUTS),
        dtype=_word(where, row, "dtype", _DTYPES),
        resize=resize,
        resample=_word(where, row, "resample", tuple(_FILTERS)) if resize else "",
        scale=_scale(where, row),
        mean=_per_channel(where, row, "mean", channels, (0.0,)),
        std=_per_channel(where, row, "std", channels, (1.0,)),
    )
    if any(std <= 0 for std in steps.std):
        raise _wrong(f"'{where}.std' is {list(steps.std)}", "what is divided by must be above 0")
    plain = (steps.scale[0] == steps.scale[1], set(steps.mean) == {0}, set(steps.std) == {1})
    if steps.dtype == "UINT8" and not all(plain):
        raise _wrong(
            f"'{where}.dtype' is UINT8", "that holds pixels as they are: no scale, mean or std"
        )
    return steps


def _word(where: str, row: Mapping[str, Any], key: str, allowed: tuple[str, ...]) -> str:
    value = row.get(key)
    if not isinstance(value, str) or value not in allowed:
        said = f"is {value!r}" if key in row else "is missing"
        raise _wrong(f"'{where}.{key}' {said}", f"allowed: {', '.join(allowed)}")
    return value


def _size(where: str, row: Mapping[str, Any]) -> tuple[int, int] | None:
    value = row.get("resize")
    if value is None:
        return None
    if (
        not isinstance(value, list | tuple)
        or len(value) != 2
        or not all(type(length) is int and length > 0 for length in value)
        or value[0] * value[1] > MAX_PIXELS
    ):
        raise _wrong(f"'{where}.resize' is {value!r}", "[height, width] in pixels is needed")
    return value[0], value[1]


def _scale(where: str, row: Mapping[str, Any]) -> tuple[float, float]:
    scale = _floats(where, row, "scale", (1.0, 1.0))
    if len(scale) != 2 or scale[1] == 0:
        raise _wrong(f"'{where}.scale' is {row['scale']!r}", "[a, b] is needed, b not 0")
    a, b = scale
    if not _is_number(a / b):
        raise _wrong(f"'{where}.scale' is {row['scale']!r}", "a / b must be a float32")
    return a, b


def _per_channel(
    where: str, row: Mapping[str, Any], key: str, channels: int, default: tuple[float, ...]
) -> tuple[float, ...]:
    values = _floats(where, row, key, default)
    if len(values) not in (1, channels):
        raise _wrong(
            f"'{where}.{key}' has {len(values)} numbers",
            f"1 or {channels} fit color {row['color']}",
        )
    return values


def _floats(
    where: str, row: Mapping[str, Any], key: str, default: tuple[float, ...]
) -> tuple[float, ...]:
    if key not in row:
        return default
    value = row[key]
    if not isinstance(value, list | tuple) or not all(_is_number(each) for each in value):
        raise _wrong(f"'{where}.{key}' is {value!r}", "a list of numbers is needed")
    return tuple(float(each) for each in value)


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    limits = np.finfo(np.float32)
    return value == 0 or float(limits.tiny) <= abs(value) <= float(limits.max)


def _wrong(what: str, why: str) -> Invalid:
    return Invalid(
        f"the recorded preprocessing is wrong: {what}",
        why=why,
        try_this="correct the model's preprocessing.json",
    )
