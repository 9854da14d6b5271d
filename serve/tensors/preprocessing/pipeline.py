"""The one way from raw bytes to a tensor, whatever the kind of its steps."""

from serve.tensors.datatypes import Array
from serve.tensors.preprocessing.images import image_tensor
from serve.tensors.preprocessing.steps import ImageSteps, Steps
from serve.tensors.preprocessing.texts import text_tensor


def tensor_of(data: bytes, steps: Steps) -> Array:
    """The tensor of one picture or text, without a batch dimension.

    `data` is a file's content. `Invalid` for what is no such picture or text.
    """
    if isinstance(steps, ImageSteps):
        return image_tensor(data, steps)
    return text_tensor(data, steps)
