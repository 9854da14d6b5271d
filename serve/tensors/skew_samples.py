"""The samples of a skew check: what a training script read, and what it fed its model.

    np.savez_compressed("samples.npz", **{"raw/x": pictures, "tensor/x": tensors})

For each input NAME, `tensor/NAME` holds one tensor in each row, and `raw/NAME` what it was made
from: uint8 pictures [n, h, w] or [n, h, w, channels] (grey, grey and alpha, RGB, or RGBA), encoded
pictures as an `S` array [n], or texts as a `U` or `S` array [n]. An `S` array loses zero bytes at
the end of its elements. Pixels count as if they came from a PNG of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from PIL import Image

from serve.core.errors import Invalid
from serve.tensors.archive import read_archive
from serve.tensors.datatypes import Array
from serve.tensors.preprocessing.images import as_stored, decoded
from serve.tensors.preprocessing.steps import ImageSteps, Steps

MOST_BYTES = 256 << 20  # of all arrays together
MOST_ROWS = 10_000
_RAW, _TENSOR = "raw/", "tensor/"
_TRY = "use np.savez(FILE, **{'raw/NAME': pictures, 'tensor/NAME': tensors})"

Raw = Image.Image | bytes


@dataclass(frozen=True, slots=True, eq=False)
class TrainingSamples:
    """What one input was fed in training: `raw` and `tensors` have a row for each sample."""

    name: str
    raw: Array
    tensors: Array

    def __len__(self) -> int:
        """How many samples there are."""
        return len(self.tensors)

    def opened(self, row: int, steps: Steps) -> Raw:
        """One sample before its steps: a decoded picture, or a text's bytes."""
        if not isinstance(steps, ImageSteps):
            return bytes(self.raw[row])
        with self.told(row):
            return decoded(self.raw[row]) if self._is_encoded else as_stored(self.raw[row])

    def told(self, row: int) -> "_Told":
        """A context in which errors say which sample they are about."""
        return _Told(f"{_RAW}{self.name}, row {row}")

    def require_fit(self, steps: Steps) -> None:
        """`Invalid` when the raw samples are nothing that such steps begin with."""
        if self._is_encoded and self.raw.ndim == 1:
            return
        is_pixels = self.raw.dtype == "uint8" and self.raw.ndim in (3, 4)
        channels = self.raw.shape[3] if self.raw.ndim == 4 else 1
        if isinstance(steps, ImageSteps) and is_pixels and 1 <= channels <= 4:
            return
        wanted = (
            "uint8 pictures [n, h, w] or [n, h, w, channels], or an S array [n] of encoded ones"
            if isinstance(steps, ImageSteps)
            else "an array [n] of texts"
        )
        kind = "texts" if self._is_encoded else str(self.raw.dtype)
        raise Invalid(
            f"{_RAW}{self.name} is an array of {kind} of shape {list(self.raw.shape)}",
            why=f"its preprocessing needs {wanted}",
        )

    @property
    def _is_encoded(self) -> bool:
        return self.raw.dtype.kind == "O"


@dataclass(frozen=True, slots=True)
class _Told:
    """Puts before an error which sample it is about."""

    where: str

    def __enter__(self) -> None:
        """Nothing to do before."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Raise it with its place."""
        if isinstance(error, Invalid):
            raise Invalid(
                f"{self.where}: {error.what}", why=error.why, try_this=error.try_this
            ) from error


def read_samples(data: bytes) -> Mapping[str, TrainingSamples]:
    """The samples in an NPZ file, by input; `Invalid` for anything else. Nothing is unpickled."""
    arrays = read_archive(data, most=MOST_BYTES)
    for key in arrays:
        if not key.startswith((_RAW, _TENSOR)):
            raise Invalid(f"array '{key[:100]}' is not a sample", try_this=_TRY)
    names = [key.removeprefix(_TENSOR) for key in arrays if key.startswith(_TENSOR)]
    lone = [key for key in arrays if key.startswith(_RAW) and key.removeprefix(_RAW) not in names]
    lone += [_TENSOR + name for name in names if _RAW + name not in arrays]
    if lone or not names:
        why = f"'{lone[0][:100]}' has no counterpart" if lone else "it is empty"
        raise Invalid("the file contains no samples", why=why, try_this=_TRY)
    return {name: _paired(name, arrays[_RAW + name], arrays[_TENSOR + name]) for name in names}


def _paired(name: str, raw: Array, tensors: Array) -> TrainingSamples:
    if not raw.ndim or not tensors.ndim or len(raw) != len(tensors):
        raise Invalid(
            f"the samples of '{name[:100]}' do not match",
            why=f"{_RAW} has shape {list(raw.shape)}, {_TENSOR} has {list(tensors.shape)}",
            try_this="use one row per sample in both",
        )
    if not 0 < len(tensors) <= MOST_ROWS or not raw.size:
        raise Invalid(
            f"there are {len(tensors)} samples of '{name[:100]}'",
            try_this=f"use 1 to {MOST_ROWS}",
        )
    return TrainingSamples(name, raw, tensors)
