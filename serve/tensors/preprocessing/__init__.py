"""The recorded preprocessing: how a picture or a text becomes a tensor, the same for everyone.

`preprocessing.json` beside a model names, for each input that is given raw, every step: data, never
code. A picture (`"kind": "image"`) goes through these steps, each on what the step before left:

1. decode: PNG, JPEG, WebP, GIF, BMP or TIFF; the first frame; at most 50 megapixels. Transparent
   parts are laid on black. Of 16 bits per value the high 8 count. An orientation tag is ignored,
   as training pipelines do.
2. `color`: grey (ITU-R 601 luma), rgb or bgr, 8 bits per channel.
3. `resize` to [height, width], or {"shortest": n} for a shortest side of n pixels, with the filter
   `resample`. The longer side is then int(n * longer / shorter), as in torchvision. A picture that
   has the size already is not touched. Without `resize` a picture keeps its size.
4. `crop` [height, width] out of the middle; what is cut off above is
   int(round((before - height) / 2.0)), as in torchvision. A smaller picture is refused.
5. `scale` [a, b]: float32 pixels times float32(a) / float32(b). Or `divide` d: float32 pixels
   divided by float32(d), which rounds in another way.
6. `mean` and `std`, one number or one per channel in the order of `color`: (x - mean) / std. A mean
   of 0 and a std of 1 change nothing, and are not computed.
7. `layout` HWC or CHW, then `dtype`.

`kind`, `color`, `layout` and `dtype` must be there; what else is missing does nothing.

A text (`"kind": "text"`) goes through these:

1. decode, by `encoding`: utf-8.
2. `normalize`: NFC or NFKC of Unicode.
3. `lower`: to lower case, every character as Unicode says.
4. `strip`: without white space at both ends.
5. `as`: `bytes`, one element of BYTES; `codepoints`, a number for each character; or `utf8`, a
   number for each byte of its UTF-8.
6. `length`: numbers beyond it are cut off, and `pad` (0) stands where the text has ended. Without
   `length` there are as many numbers as the text has.
7. `dtype`: INT32 or INT64; for utf8 also UINT8; for bytes BYTES, which need not be said.

`kind` and `as` must be there, and `dtype` for numbers.
"""

from serve.tensors.preprocessing.compatibility import check
from serve.tensors.preprocessing.document import parse
from serve.tensors.preprocessing.images import FORMATS, image_tensor
from serve.tensors.preprocessing.pipeline import tensor_of
from serve.tensors.preprocessing.steps import (
    MAX_PIXELS,
    ImageSteps,
    Preprocessing,
    Steps,
    TextSteps,
)
from serve.tensors.preprocessing.texts import text_tensor

__all__ = [
    "FORMATS",
    "MAX_PIXELS",
    "ImageSteps",
    "Preprocessing",
    "Steps",
    "TextSteps",
    "check",
    "image_tensor",
    "parse",
    "tensor_of",
    "text_tensor",
]
