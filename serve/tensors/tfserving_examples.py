"""Classify and regress: examples of named features → a model's tensors, and which outputs answer.

TensorFlow Serving hands such a model serialized `tf.Example`s, which its graph parses. A model that
Triton serves takes tensors; so a feature is the input of its name, and its list of values fills one
row of it. Features that no input asks for are left out, as the parsing in a graph does.
Source: "Classify and Regress API" of TensorFlow Serving's documentation; its `classifier.cc` and
`regressor.cc` for the shapes that answers have.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from serve.core.errors import BadRequest
from serve.tensors.tfserving_faults import shown, type_name
from serve.tensors.tfserving_json import document_of, signature_name, tensor_of
from serve.tensors.tfserving_tensors import (
    BYTES,
    FLOATS,
    Port,
    RawTensor,
    ServingSignature,
    item_size,
    kind_of,
    pack,
    unpack,
)
from serve.wire.tfserving_rest import check_signature


class ClassOutputs(NamedTuple):
    """Which outputs answer a classify request: the scores, and the labels if one has them."""

    scores: Port
    classes: Port | None


def read_examples(
    document: dict[str, Any], signature: ServingSignature
) -> tuple[dict[str, RawTensor], int]:
    """The tensors of a classify or regress request, and of how many examples."""
    examples = examples_of(document)
    return example_inputs(examples, signature), len(examples)


def large_examples(body: bytes, signature: ServingSignature) -> tuple[dict[str, RawTensor], int]:
    """The same of a body that has not been read yet."""
    document = document_of(body)
    check_signature(signature_name(document))
    return read_examples(document, signature)


def examples_of(document: dict[str, Any]) -> list[dict[str, Any]]:
    """The examples of a request, each with the features of the context."""
    if "examples" not in document:
        raise BadRequest(
            f"JSON Value: {shown(document)} When method is classify, key 'examples' is expected "
            "and was not found"
        )
    examples, context = document["examples"], document.get("context", {})
    if not isinstance(examples, list):
        raise BadRequest(
            f"JSON Value: {shown(document)} Expecting 'examples' value to be an list/array"
        )
    if not examples:
        raise BadRequest(f"JSON Value: {shown(document)} 'examples' value is an empty array")
    for example in (context, *examples):
        if not isinstance(example, dict):
            raise BadRequest(f"Example must be JSON object but got JSON {type_name(example)}")
        twice = context.keys() & example.keys() if example is not context else ()
        if twice:
            names = ", ".join(sorted(twice))
            raise BadRequest(f"features of 'context' must not appear in 'examples': {names}")
    return [{**context, **example} for example in examples]


def example_inputs(
    examples: list[dict[str, Any]], signature: ServingSignature
) -> dict[str, RawTensor]:
    """A tensor for each input, with a row for each example."""
    inputs = {}
    for port in signature.inputs:
        if port.is_optional and not any(port.name in example for example in examples):
            continue
        inputs[port.name] = _feature(examples, port)
    return inputs


def class_outputs(signature: ServingSignature) -> ClassOutputs:
    """The outputs that a classifier answers with; `BadRequest` says why it is none."""
    named = signature.output("scores")
    floats = [port for port in signature.outputs if port.datatype in FLOATS]
    if named is None and len(floats) != 1:
        names = ", ".join(port.name for port in signature.outputs)
        raise BadRequest(
            "Expected classification signature outputs to contain at least one of "
            '"classes" or "scores"',
            why=f"the model's outputs are {names}, and the output with the scores is ambiguous",
            try_this=":predict",
        )
    classes = signature.output("classes")
    if classes is not None and classes.datatype != "BYTES":
        classes = None
    return ClassOutputs(named or floats[0], classes)


def check_scores(scores: RawTensor, examples: int) -> None:
    """`BadRequest` unless there is a row of scores for each example."""
    if len(scores.shape) != 2:
        raise BadRequest(
            f"Expected Tensor shape: [batch_size num_classes] but got {_shape(scores)}"
        )
    if scores.shape[0] != examples:
        raise BadRequest(f"Expected scores output batch size of {examples}. Got: {scores.shape[0]}")


def class_rows(classes: RawTensor, scores: RawTensor) -> list[Sequence[bytes]]:
    """The labels of each example, from the output that has them."""
    if classes.shape != scores.shape:
        raise BadRequest(
            f"Tensors class and score should match. Got {_shape(classes)} vs. {_shape(scores)}"
        )
    elements, (rows, count) = unpack(classes), scores.shape
    return [elements[row * count : (row + 1) * count] for row in range(rows)]


def first_row(tensor: RawTensor) -> RawTensor:
    """The tensor of the first example alone."""
    size = math.prod(tensor.shape[1:])
    if tensor.datatype == BYTES:
        raw = pack(unpack(tensor)[:size], BYTES)
    else:
        raw = tensor.raw[: size * item_size(tensor.datatype)]
    return RawTensor(tensor.datatype, (1, *tensor.shape[1:]), raw)


def regress_output(signature: ServingSignature) -> Port:
    """The output that a regression answers with."""
    if len(signature.outputs) != 1:
        raise BadRequest("Expected one output Tensor.", try_this=":predict")
    return signature.outputs[0]


def check_values(values: RawTensor, examples: int) -> None:
    """`BadRequest` unless there is a number for each example."""
    shape = values.shape
    if not (len(shape) == 1 or (len(shape) == 2 and shape[1] == 1)):
        raise BadRequest(
            "Expected output Tensor shape to be either [batch_size] or [batch_size, 1] but got "
            f"{_shape(values)}"
        )
    if shape[0] != examples:
        raise BadRequest(
            f"Input batch size did not match output batch size: {examples} vs. {shape[0]}"
        )
    if values.datatype not in FLOATS:
        name = kind_of(values.datatype).name
        raise BadRequest(f"Expected output Tensor of DT_FLOAT.  Got: DT_{name.upper()}")


def label_table(classes: RawTensor) -> tuple[bytes, ...]:
    """The labels by class, from what Triton's classification extension says of one example.

    Its elements are `score:class` or `score:class:label`, the best class first.
    """
    found = {}
    for element in unpack(classes):
        _, number, *label = element.split(b":", 2)
        found[int(number)] = label[0] if label else b""
    return tuple(found.get(number, b"") for number in range(max(found, default=-1) + 1))


def _feature(examples: list[dict[str, Any]], port: Port) -> RawTensor:
    shape = _row_shape(port)
    rows = [_values(example, port) for example in examples]
    wanted = math.prod(shape) if -1 not in shape else -1
    for row in rows:
        rest = math.prod(size for size in shape if size >= 0) or 1
        if len(row) != wanted and (wanted >= 0 or len(row) % rest):
            raise BadRequest(
                f"Key: {port.name}.  Number of {kind_of(port.datatype).name} values != expected.  "
                f"values size: {len(row)} but output shape: {list(shape)}"
            )
    flat = tensor_of(rows, port)
    fitted = _filled(shape, len(rows[0]))
    return RawTensor(port.datatype, (len(rows), *fitted), flat.raw)


def _row_shape(port: Port) -> tuple[int, ...]:
    """The shape of one example, for a model that takes any number of them."""
    if not port.shape or port.shape[0] != -1:
        raise BadRequest(
            f"input '{port.name}' has the shape {list(port.shape)}, without a batch dimension",
            try_this=":predict",
        )
    if port.shape.count(-1) > 2:
        raise BadRequest(
            f"input '{port.name}' has more than one free dimension", try_this=":predict"
        )
    return port.shape[1:]


def _filled(shape: tuple[int, ...], count: int) -> tuple[int, ...]:
    rest = math.prod(size for size in shape if size >= 0) or 1
    return tuple(count // rest if size < 0 else size for size in shape)


def _values(example: dict[str, Any], port: Port) -> list[Any]:
    """The values of one feature; truth values count as 0 and 1, as in a `tf.Example`."""
    if port.name not in example:
        name = kind_of(port.datatype).name
        raise BadRequest(
            f"Feature: {port.name} (data type: {name}) is required but could not be found."
        )
    value = example[port.name]
    values = value if isinstance(value, list) else [value]
    for item in values:
        if isinstance(item, list) or item is None:
            raise BadRequest(
                f"Feature: {port.name} has element with unexpected JSON type: {type_name(item)}"
            )
    if port.datatype != "BOOL":
        return [int(item) if isinstance(item, bool) else item for item in values]
    return [item == 1 if item in (0, 1) else item for item in values]


def _shape(tensor: RawTensor) -> str:
    return f"[{','.join(map(str, tensor.shape))}]"
