"""The data contract of the demo model `digits`: which rows, which pictures, which tensors.

The source is the digits data set that scikit-learn bundles: 1797 pictures of handwritten digits,
8x8, with values 0 to 16. Three rules turn it into everything else:

1. Row `i` is held out when `i % 3 == 2` (599 rows); all other rows train.
2. A row becomes an 8x8 grey picture of uint8: `round(raw * 255 / 16)`.
3. A picture becomes the tensor `x`, shape [8, 8, 1]: `picture.astype(float32) * float32(1 / 255)`.

Rule 3 is the recorded preprocessing (`preprocessing.json`): a PNG of a picture gives the training
tensor bit for bit. No TensorFlow here: scikit-learn and numpy, and Pillow for PNG.

`python examples/digits/data.py samples.npz` writes the rows that train as samples, for
`servegate model skew digits --samples samples.npz`, which checks just that.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

SOURCE = "sklearn.datasets.load_digits"
HELD_OUT_RULE = "row index % 3 == 2"

_RAW_MAXIMUM = 16


def pictures() -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Every row as a picture, uint8 [1797, 8, 8], and the digit it shows, int64 [1797]."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    grey: NDArray[np.uint8] = np.rint(digits.images * 255 / _RAW_MAXIMUM).astype(np.uint8)
    return grey, np.asarray(digits.target, dtype=np.int64)


def held_out_rows() -> NDArray[np.int64]:
    """The indices, among all rows, of the rows that never train: int64 [599]."""
    return np.arange(2, len(pictures()[1]), 3, dtype=np.int64)


def tensors(grey: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Pictures [n, 8, 8] as the model's input `x`: float32 [n, 8, 8, 1], values 0 to 1."""
    return (grey.astype(np.float32) * np.float32(1 / 255))[..., np.newaxis]


def training() -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The rows that train: x float32 [1198, 8, 8, 1] and y int64 [1198]."""
    grey, digits = pictures()
    rows = np.setdiff1d(np.arange(len(digits)), held_out_rows())
    return tensors(grey[rows]), digits[rows]


def held_out() -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The rows that measure: x float32 [599, 8, 8, 1] and y int64 [599]."""
    grey, digits = pictures()
    rows = held_out_rows()
    return tensors(grey[rows]), digits[rows]


def png(picture: NDArray[np.uint8]) -> bytes:
    """One picture [8, 8] as an 8-bit grey PNG without metadata."""
    from PIL import Image

    encoded = io.BytesIO()
    Image.fromarray(picture).save(encoded, format="PNG", optimize=True)
    return encoded.getvalue()


def samples() -> dict[str, NDArray[Any]]:
    """The rows that train, as a skew check reads them: pictures and the tensors made from them."""
    grey, digits = pictures()
    rows = np.setdiff1d(np.arange(len(digits)), held_out_rows())
    return {"raw/x": grey[rows], "tensor/x": training()[0]}


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python examples/digits/data.py samples.npz")
    np.savez_compressed(Path(sys.argv[1]), **samples())
