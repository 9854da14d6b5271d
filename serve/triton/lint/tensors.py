"""Rules about inputs and outputs that the configuration alone can break."""

from collections import Counter
from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

from tritonclient.grpc import model_config_pb2

from serve.tensors.signature import DYNAMIC
from serve.triton.lint.subject import Findings, LintFinding, LintSubject


def roles(subject: LintSubject) -> Iterator[tuple[str, Any]]:
    """`input` and `output` with each configured tensor."""
    for role in ("input", "output"):
        for entry in getattr(subject.message, role):
            yield role, entry


def datatype_word(value: int) -> str:
    """A data type as the configuration writes it, such as TYPE_FP32."""
    return str(model_config_pb2.DataType.Name(value))


def datatype_of(value: int) -> str:
    """A data type as the wire and signatures write it: TYPE_STRING is BYTES."""
    word = datatype_word(value).removeprefix("TYPE_")
    return "BYTES" if word == "STRING" else word


def config_word(datatype: str) -> str:
    """The configuration's word for a signature's data type."""
    return "TYPE_STRING" if datatype == "BYTES" else f"TYPE_{datatype}"


def shape_of(entry: Any, largest: int) -> list[int]:
    """The shape that the model file gets or gives: the batch dimension, then reshape or dims."""
    dims = entry.reshape.shape if entry.HasField("reshape") else entry.dims
    return [DYNAMIC, *dims] if largest > 0 else list(dims)


def is_shape(dims: Sequence[int]) -> bool:
    """Whether Triton takes these dimensions: at least one, each 1 or more, or -1."""
    return bool(dims) and all(size >= 1 or size == DYNAMIC for size in dims)


def shown(sizes: Any) -> str:
    """Dimensions as config.pbtxt writes them."""
    return f"[ {', '.join(map(str, sizes))} ]" if sizes else "[ ]"


def tensor_unnamed(subject: LintSubject) -> Findings:
    """An input or output has no name.

    Triton: `model input must specify 'name'`.
    """
    for role, entry in roles(subject):
        if not entry.name:
            yield LintFinding(
                f"{role}.name", "it is empty", "use the tensor's name in the model file"
            )


def tensor_twice(subject: LintSubject) -> Findings:
    """An input or output is listed twice.

    Triton loads the model. The backend determines which entry is used.
    """
    names = Counter((role, entry.name) for role, entry in roles(subject) if entry.name)
    for (role, name), count in names.items():
        if count > 1:
            yield LintFinding(f"{role} '{name}'", f"it is listed {count} times", "keep one of them")


def datatype_missing(subject: LintSubject) -> Findings:
    """A tensor has no data type.

    Triton: `model input 'x' must specify 'data_type'`.
    """
    for role, entry in roles(subject):
        if entry.data_type == model_config_pb2.TYPE_INVALID:
            yield LintFinding(
                f"{role} '{entry.name}'.data_type", "it is missing", "set TYPE_FP32, …"
            )


def dims_invalid(subject: LintSubject) -> Findings:
    """`dims` is missing, or contains 0 or a number below -1.

    Triton: `must specify 'dims'`, or `dimension must be integer >= 1, or -1`.
    """
    for role, entry in roles(subject):
        if not is_shape(entry.dims):
            yield LintFinding(
                f"{role} '{entry.name}'.dims",
                f"{shown(entry.dims)} is not a valid shape",
                "use sizes from 1, or -1 for any; for a scalar, [ 1 ] with reshape { shape: [ ] }",
            )


def reshape_size(subject: LintSubject) -> Findings:
    """The shapes in `reshape` and `dims` describe different numbers of elements.

    Triton: `model input 'x' has different size for dims and reshape`.
    """
    for role, entry in roles(subject):
        if not entry.HasField("reshape") or not entry.dims:
            continue
        given, wanted = list(entry.dims), list(entry.reshape.shape)
        free = given.count(DYNAMIC) != wanted.count(DYNAMIC)
        if free or prod(x for x in given if x > 0) != prod(x for x in wanted if x > 0):
            yield LintFinding(
                f"{role} '{entry.name}'.reshape",
                f"{shown(given)} and {shown(wanted)} do not have the same number of elements",
                "use a shape with the same number of elements and of -1",
            )


def reshape_empty(subject: LintSubject) -> Findings:
    """`reshape` turns a tensor of a model without batching into a scalar.

    Triton: `cannot have empty reshape for non-batching model as scalar tensors are not supported`.
    """
    for role, entry in roles(subject) if subject.message.max_batch_size == 0 else ():
        if entry.HasField("reshape") and not entry.reshape.shape:
            yield LintFinding(
                f"{role} '{entry.name}'.reshape",
                "a model without batching cannot have scalars",
                "use dims: [ 1 ] without reshape",
            )


def format_rank(subject: LintSubject) -> Findings:
    """FORMAT_NHWC or FORMAT_NCHW is set on an input without three dimensions.

    Triton: `model input NHWC/NCHW require 3 dims`.
    """
    for entry in subject.message.input:
        if entry.format and entry.dims and len(entry.dims) != 3:
            yield LintFinding(
                f"input '{entry.name}'.format",
                f"pictures have three dimensions, but dims is {shown(entry.dims)}",
                "remove format; few backends use it",
            )
