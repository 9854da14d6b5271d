"""The steps as values: what `preprocessing.json` says of one input, already checked."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from serve.tensors.datatypes import BYTES, Shape

MAX_PIXELS = 50_000_000
UNKNOWN = -1  # a length that depends on what is given


@dataclass(frozen=True, slots=True)
class ImageSteps:
    """How a picture becomes one input. `resize` and `crop` are (height, width).

    `shortest` is the shortest side after resizing, 0 where `resize` says all or nothing is resized.
    Of `scale` and `divide` one does nothing. Fields as in the file.
    """

    color: str
    layout: str
    dtype: str
    resize: tuple[int, int] | None = None
    resample: str = ""
    scale: tuple[float, float] = (1.0, 1.0)
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    shortest: int = 0
    crop: tuple[int, int] | None = None
    divide: float = 1.0

    @property
    def channels(self) -> int:
        """How many numbers a pixel has."""
        return 1 if self.color == "grey" else 3

    @property
    def shape(self) -> Shape:
        """The tensor's shape without a batch dimension."""
        height, width = self.crop or self.resize or (UNKNOWN, UNKNOWN)
        if self.layout == "CHW":
            return (self.channels, height, width)
        return (height, width, self.channels)

    def to_json(self) -> dict[str, Any]:
        """The entry of `preprocessing.json`, without what does nothing."""
        row: dict[str, Any] = {"kind": "image", "color": self.color}
        if self.resize is not None or self.shortest:
            exact = None if self.resize is None else list(self.resize)
            row |= {"resize": exact or {"shortest": self.shortest}, "resample": self.resample}
        row |= {"crop": list(self.crop)} if self.crop is not None else {}
        row |= {"scale": list(self.scale)} if self.scale[0] != self.scale[1] else {}
        row |= {"divide": self.divide} if self.divide != 1 else {}
        row |= {"mean": list(self.mean)} if set(self.mean) != {0} else {}
        row |= {"std": list(self.std)} if set(self.std) != {1} else {}
        return row | {"layout": self.layout, "dtype": self.dtype}


@dataclass(frozen=True, slots=True)
class TextSteps:
    """How a text becomes one input. `becomes` is the file's `as`; `length` 0 is the text's own."""

    becomes: str
    dtype: str = BYTES
    normalize: str = ""
    lower: bool = False
    strip: bool = False
    length: int = 0
    pad: int = 0

    @property
    def shape(self) -> Shape:
        """The tensor's shape without a batch dimension; an element of BYTES has none."""
        return () if self.becomes == "bytes" else (self.length or UNKNOWN,)

    def to_json(self) -> dict[str, Any]:
        """The entry of `preprocessing.json`, without what does nothing."""
        row: dict[str, Any] = {"kind": "text", "as": self.becomes}
        row |= {"normalize": self.normalize} if self.normalize else {}
        row |= {"lower": True} if self.lower else {}
        row |= {"strip": True} if self.strip else {}
        row |= {"length": self.length} if self.length else {}
        row |= {"pad": self.pad} if self.pad else {}
        return row | {"dtype": self.dtype}


Steps = ImageSteps | TextSteps


@dataclass(frozen=True, slots=True)
class Preprocessing:
    """The steps of each input that has some."""

    inputs: Mapping[str, Steps]
