"""Which sizes generated tensors have: rows, and lengths for the other free dimensions."""

from dataclasses import dataclass

from serve.tensors.datatypes import Shape
from serve.tensors.signature import DYNAMIC, ModelSignature, ModelTensor

UNKNOWN = (DYNAMIC, DYNAMIC)  # the shape that an input of unknown rank is given
_COLOURS = (1, 3, 4)  # how many channels pictures have


@dataclass(frozen=True, slots=True)
class Size:
    """`rows` for a free first dimension; the others take `lengths` in turn, by their place.

    By their place, because tokens and their mask are of one length, and a picture's height and
    width may differ.
    """

    rows: int
    lengths: tuple[int, ...] = (1,)

    def of(self, spec: ModelTensor) -> Shape:
        """The shape of an input at this size."""
        return tuple(
            length
            if length != DYNAMIC
            else self.rows
            if axis == 0
            else self.lengths[(axis - 1) % len(self.lengths)]
            for axis, length in enumerate(shape_of(spec))
        )


def shape_of(spec: ModelTensor) -> Shape:
    """The shape, or two free dimensions where not even their number is known."""
    return UNKNOWN if spec.shape is None else spec.shape


def has_rows(specs: tuple[ModelTensor, ...]) -> bool:
    """Whether the first dimension of every tensor is free, so that they could be batched."""
    return bool(specs) and all(spec.shape is None or spec.shape[:1] == (DYNAMIC,) for spec in specs)


def has_free_rows(signature: ModelSignature) -> bool:
    """Whether any input has a free first dimension."""
    return any(shape_of(spec)[:1] == (DYNAMIC,) for spec in signature.inputs)


def has_lengths(signature: ModelSignature) -> bool:
    """Whether any input has another free dimension than the first."""
    return any(DYNAMIC in shape_of(spec)[1:] for spec in signature.inputs)


def is_picture(spec: ModelTensor) -> bool:
    """Whether it looks like pictures: four dimensions, with 1, 3 or 4 channels last or first."""
    shape = shape_of(spec)
    return len(shape) == 4 and (shape[3] in _COLOURS or shape[1] in _COLOURS)
