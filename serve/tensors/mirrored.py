"""How far the responses to a call and to its copy agree, and the inputs of such a call."""

from collections.abc import Mapping, Sequence
from typing import Any

from serve.core.calls import Headers
from serve.core.errors import Invalid
from serve.tensors.archive import write_archive
from serve.tensors.codec import (
    HEAD_LENGTH_HEADER,
    InferReply,
    read_grpc_reply,
    read_grpc_request,
    read_http_reply,
    read_http_request,
)
from serve.tensors.datatypes import Array
from serve.tensors.metadata import TensorSpec
from serve.tensors.output_comparison import agreement, joined_text, rows_of
from serve.tensors.output_kinds import DeclaredOutput, fitting, kinds_of

MOST_INPUTS = 8 << 20  # bytes of an archive; of texts, all elements are as long as the longest
_HEAD_LENGTH = HEAD_LENGTH_HEADER.lower().encode()
Counts = Mapping[str, tuple[int, int]]
"""By output: rows that agree, and rows that differ."""


def compare_responses(
    protocol: str,
    served: tuple[bytes, Headers],
    copied: tuple[bytes, Headers],
    declared: Mapping[str, Any],
    labelled: Sequence[str],
    is_batched: bool,
) -> Counts:
    """The rows of each output, compared by the kind that `outputs.json` declares for it.

    `served` and `copied` are bodies and headers. An output that is not declared is compared as
    numbers or as text. What only one side has, or what has another shape there, differs.
    `MalformedReply` for a response that cannot be read.
    """
    left, right = _read(protocol, *served), _read(protocol, *copied)
    specs = {}
    for name, array in left.outputs.items():
        shape = (-1, *array.shape[1:]) if is_batched else array.shape
        specs[name] = TensorSpec(name, left.datatypes[name], shape)
    kinds = kinds_of(declared, labelled, specs)
    kinds = fitting(fitting(kinds, left.outputs, specs), right.outputs, specs)
    parts = {part for one in kinds.values() for part in (one.scores, one.classes)}
    a, b = left.outputs, right.outputs
    return {
        name: _count(name, a, b, kinds.get(name), specs.get(name))
        for name in {**a, **b}
        if name not in parts
    }


def _read(protocol: str, body: bytes, headers: Headers) -> InferReply:
    if protocol == "grpc":
        return read_grpc_reply(body)
    length = next((int(value) for name, value in headers if name == _HEAD_LENGTH), None)
    return read_http_reply(body, length)


def _count(
    name: str,
    a: Mapping[str, Array],
    b: Mapping[str, Array],
    declared: DeclaredOutput | None,
    spec: TensorSpec | None,
) -> tuple[int, int]:
    if name not in a or name not in b:
        return 0, max(len(rows_of((a if name in a else b)[name], spec)), 1)
    is_text = a[name].dtype.kind in "OSU"
    kind = declared or DeclaredOutput("text" if is_text else "number")
    rows = len(rows_of(a[name], spec))
    try:
        if kind.kind in ("text", "stream"):  # how similar they are is not asked, and takes long
            sides = (rows_of(a[name], spec), rows_of(b[name], spec))
            pairs = zip(*sides, strict=True)
            differing = sum(joined_text(x, kind) != joined_text(y, kind) for x, y in pairs)
        else:
            differing = len(agreement(name, a, b, kind, spec).differing)
    except (Invalid, ValueError, TypeError):  # of another shape, or text and numbers
        return 0, max(rows, 1)
    return rows - differing, differing


def inputs_archive(protocol: str, head: bytes, body: bytes) -> bytes:
    """The inputs of a request as an NPZ file.

    `head` are the header lines of an HTTP request; of gRPC, `body` is a `ModelInferRequest`.
    `Invalid` or `MalformedReply` for what cannot be read.
    """
    if protocol == "grpc":
        return write_archive(read_grpc_request(body).outputs, most=MOST_INPUTS)
    fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n") if b": " in line)
    if b"content-encoding" in fields:
        raise Invalid("the infer request cannot be read", why="it is compressed")
    length = int(fields.get(_HEAD_LENGTH, len(body)))
    return write_archive(read_http_request(body, length).outputs, most=MOST_INPUTS)
