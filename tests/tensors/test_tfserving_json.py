"""TensorFlow Serving's JSON: requests into tensors, tensors into answers."""

import json
import math
from array import array
from typing import Any

import pytest
from refusals import refusal

from serve.core.errors import BadRequest
from serve.tensors.tfserving_answers import outputs_json, predictions_json
from serve.tensors.tfserving_json import document_of, predict_inputs
from serve.tensors.tfserving_tensors import Port, RawTensor, ServingSignature, pack, unpack


def takes(**datatypes: str) -> ServingSignature:
    """A signature with these inputs, whose shapes are the model's own affair."""
    return ServingSignature(
        tuple(Port(name, datatype, (-1,)) for name, datatype in datatypes.items()), ()
    )


def read(text: str, signature: ServingSignature) -> dict[str, tuple[tuple[int, ...], list[Any]]]:
    """Shapes and elements of a request."""
    inputs, _ = predict_inputs(document_of(text.encode()), signature)
    return {name: (tensor.shape, list(unpack(tensor))) for name, tensor in inputs.items()}


def floats(*values: float, shape: tuple[int, ...], datatype: str = "FP32") -> RawTensor:
    return RawTensor(datatype, shape, pack(values, datatype))


def texts(*values: bytes, shape: tuple[int, ...]) -> RawTensor:
    return RawTensor("BYTES", shape, pack(values, "BYTES"))


# --- requests: the documentation's own examples -----------------------------------------------

ROWS_OF_THREE = """{"instances": [
    {"tag": "foo", "signal": [1, 2, 3, 4, 5], "sensor": [[1, 2], [3, 4]]},
    {"tag": "bar", "signal": [3, 4, 1, 2, 5], "sensor": [[4, 5], [6, 8]]}]}"""
COLUMNS_OF_THREE = """{"inputs": {
    "tag": ["foo", "bar"],
    "signal": [[1, 2, 3, 4, 5], [3, 4, 1, 2, 5]],
    "sensor": [[[1, 2], [3, 4]], [[4, 5], [6, 8]]]}}"""
IMAGES = '{"instances": [{"b64": "aW1hZ2UgYnl0ZXM="}, {"b64": "YXdlc29tZSBpbWFnZSBieXRlcw=="}]}'
DOCUMENTED: list[tuple[str, str, tuple[int, ...], list[Any]]] = [
    ('{"instances": ["foo", "bar", "baz"]}', "BYTES", (3,), [b"foo", b"bar", b"baz"]),
    ('{"instances": [[[1, 2]], [[3, 4]]]}', "INT32", (2, 1, 2), [1, 2, 3, 4]),
    ('{"instances": [1.0, 2.0, 5.0]}', "FP32", (3,), [1.0, 2.0, 5.0]),
    ('{"inputs": 5}', "FP32", (), [5.0]),
    ('{"inputs": {"x": [[1]]}}', "FP32", (1, 1), [1.0]),
    ('{"instances": [{"x": [1]}, {"x": [2]}]}', "UINT8", (2, 1), [1, 2]),
    (IMAGES, "BYTES", (2,), [b"image bytes", b"awesome image bytes"]),
    ('{"inputs": {"b64": "AAE"}}', "BYTES", (), [b"\0\1"]),
    ('{"instances": [true, false]}', "BOOL", (2,), [True, False]),
    ('{"instances": [[], []]}', "FP32", (2, 0), []),
    ('{"instances": [1e3, -0.5]} and more', "FP64", (2,), [1000.0, -0.5]),
    ('{"instances": [0.5, 2]}', "FP16", (2,), [0.5, 2.0]),
    ('{"instances": [0.5, 3]}', "BF16", (2,), [0.5, 3.0]),
    ('{"instances": [18446744073709551615]}', "UINT64", (1,), [18446744073709551615]),
]


def test_a_documented_request_becomes_these_tensors() -> None:
    for text, datatype, shape, elements in DOCUMENTED:
        assert read(text, takes(x=datatype)) == {"x": (shape, elements)}, text
    for text in (ROWS_OF_THREE, COLUMNS_OF_THREE):
        assert read(text, takes(tag="BYTES", signal="INT64", sensor="FP32")) == {
            "tag": ((2,), [b"foo", b"bar"]),
            "signal": ((2, 5), [1, 2, 3, 4, 5, 3, 4, 1, 2, 5]),
            "sensor": ((2, 2, 2), [1, 2, 3, 4, 4, 5, 6, 8]),
        }, text
    text = '{"instances": [{"image": {"b64": "/w=="}, "caption": "é"}]}'
    assert read(text, takes(image="BYTES", caption="BYTES")) == {
        "image": ((1,), [b"\xff"]),
        "caption": ((1,), ["é".encode()]),
    }


def test_nan_and_infinities_are_numbers_and_a_string_need_not_be_utf8() -> None:
    [(_, values)] = read('{"instances": [NaN, Infinity, -Infinity]}', takes(x="FP32")).values()
    assert math.isnan(values[0]) and values[1:] == [math.inf, -math.inf]
    inputs, _ = predict_inputs(document_of(b'{"instances": ["\xff\xfe"]}'), takes(x="BYTES"))
    assert unpack(inputs["x"]) == [b"\xff\xfe"]


def test_an_optional_input_may_be_left_out_by_all_rows_or_by_none() -> None:
    signature = ServingSignature(
        (Port("x", "FP32", (-1,)), Port("y", "FP32", (-1,), is_optional=True)), ()
    )
    assert set(read('{"instances": [1, 2]}', signature)) == {"x"}
    assert set(read('{"instances": [{"x": 1}]}', signature)) == {"x"}
    assert set(read('{"inputs": {"x": [1], "y": [2]}}', signature)) == {"x", "y"}
    with pytest.raises(BadRequest, match="keys must be equal to: x,y"):
        read('{"instances": [{"x": 1, "y": 2}, {"x": 1}]}', signature)


ONE, TWO = takes(x="FP32"), takes(x="FP32", y="FP32")
ROW = "Failed to process element: {} of 'instances' list. Error: INVALID_ARGUMENT: "
OF_TYPE = "JSON Value: {} Type: {} is not of expected type: {}"
UNNAMED = (
    "Failed to process element: 0 key: z of 'instances' list. Error: INVALID_ARGUMENT: "
    "JSON object: does not have named input: z"
)
WRONG: list[tuple[str, ServingSignature, str]] = [
    ("", ONE, "JSON Parse error: The document is empty"),
    ("instances = [1, 2]", ONE, "JSON Parse error: "),
    ('{"instances": [1, 2', ONE, "JSON Parse error: "),
    ('{"instances": ' + "[" * 100_000, ONE, "JSON Parse error: "),
    ("[1, 2]", ONE, "Is not object"),
    ("{}", ONE, "Missing 'inputs' or 'instances' key"),
    ('{"instances": [1], "inputs": [1]}', ONE, "only one of 'inputs' or 'instances' keys"),
    ('{"instances": 5}', ONE, "Expecting 'instances' to be an list/array"),
    ('{"instances": []}', ONE, "No values in 'instances' array"),
    ('{"instances": ["x"]}', ONE, ROW.format(0) + OF_TYPE.format('"x"', "String", "float")),
    ('{"instances": [1, true]}', ONE, OF_TYPE.format("true", "True", "float")),
    ('{"instances": [null]}', ONE, OF_TYPE.format("null", "Null", "float")),
    ('{"instances": [1.5]}', takes(x="INT32"), "Type: Number is not of expected type: int32"),
    ('{"instances": [300]}', takes(x="INT8"), OF_TYPE.format("300", "Number", "int8")),
    ('{"instances": [-1]}', takes(x="UINT64"), "is not of expected type: uint64"),
    ('{"instances": [1]}', takes(x="BOOL"), "is not of expected type: bool"),
    ('{"instances": [1]}', takes(x="BYTES"), "is not of expected type: string"),
    ('{"instances": [{"b64": "AA=="}]}', ONE, "Type: Object is not of expected type: float"),
    ('{"instances": [{"b64": "!"}]}', takes(x="BYTES"), "Unable to base64 decode"),
    ('{"inputs": [{"b": 1}]}', takes(x="BYTES"), "not formatted correctly for base64 data"),
    ('{"inputs": ["\\ud800"]}', takes(x="BYTES"), "is not of expected type: string"),
    ('{"instances": [[1, 2], [3]]}', ONE, ROW.format(1) + "Expecting tensor size: 2 but got: 1"),
    ('{"instances": [[1, 2], [[1], [2]]]}', ONE, "Expecting shape [2] but got: [2,1]"),
    ('{"instances": [[[1, 2], [3]]]}', ONE, "at unexpected size: 1 at level: 1 expected size: 2"),
    ('{"inputs": [1, [2]]}', ONE, "Encountered list at unexpected level: 1 expected < 1"),
    ('{"inputs": [[2], 1]}', ONE, "incorrect level: 2 in the JSON DOM. Expected at level: 2"),
    ('{"inputs": ' + "[" * 40 + "]" * 40 + "}", ONE, "more than 32 dimensions"),
    ('{"instances": [1, {"x": 1}]}', ONE, "Expecting value/list but got object at item 1"),
    ('{"instances": [1, 2]}', TWO, "instances is a plain list, but expecting list of objects"),
    ('{"inputs": [1, 2]}', TWO, "inputs is a plain value/list, but expecting an object"),
    ('{"instances": [{"x": 1, "y": 1}, 3]}', TWO, "Expecting object but got list at item 1"),
    ('{"instances": [{"x": 1}]}', TWO, "keys must be equal to: x,y"),
    ('{"instances": [{"x": 1, "y": 1, "z": 1}]}', TWO, UNNAMED),
    ('{"instances": [{"x": [1], "y": 1}, {"x": [1, 2], "y": 1}]}', TWO, "element: 1 key: x of"),
    ('{"inputs": {"x": [1]}}', TWO, "Missing named input: y in 'inputs' object."),
]


def test_what_is_wrong_with_a_request_is_said_in_tensorflow_servings_words() -> None:
    for text, signature, sentence in WRONG:
        error = refusal(BadRequest, read, text, signature)
        assert sentence in str(error), (text, signature)
    error = refusal(BadRequest, read, '{"instances": "' + "x" * 10_000 + '"}', ONE)
    assert len(str(error)) < 400, "it shows the beginning of a large document only"


# --- answers ----------------------------------------------------------------------------------

FLOATS = floats(1, 2, 3, 4, shape=(2, 1, 2))
TWO_OUTPUTS = {"a": floats(1, 2, shape=(2,)), "b": texts(b"x", b"y", shape=(2,))}
TWO_ROWS = '[{"a": 1.0, "b": "x"}, {"a": 2.0, "b": "y"}]'
IMAGE = texts(b"image bytes", shape=(1, 1))
INTEGERS = RawTensor("INT64", (2,), array("q", [-(1 << 62), 7]).tobytes())
ANSWERS: list[tuple[dict[str, RawTensor], str, str]] = [
    ({"y": floats(3.5, 4.0, 5.5, shape=(3,))}, "[3.5, 4.0, 5.5]", ""),
    ({"y": FLOATS}, "[[[1.0, 2.0]], [[3.0, 4.0]]]", ""),
    (TWO_OUTPUTS, TWO_ROWS, '{"a": [1.0, 2.0], "b": ["x", "y"]}'),
    ({"image_bytes": IMAGE}, '[[{"b64": "aW1hZ2UgYnl0ZXM="}]]', ""),
    ({"y": floats(math.nan, math.inf, -math.inf, shape=(3,))}, "[NaN, Infinity, -Infinity]", ""),
    ({"y": floats(0.1, 1e-7, 9e6, 1 / 3, shape=(4,))}, "[0.1, 1e-07, 9e+06, 0.333333343]", ""),
    ({"y": floats(0.1, 1 / 3, shape=(2,), datatype="FP64")}, "[0.1, 0.33333333333333331]", ""),
    ({"y": floats(0.5, 0.1, shape=(2,), datatype="FP16")}, "[0.5, 0.0999755859]", ""),
    ({"y": floats(1.0, -2.5, shape=(2,), datatype="BF16")}, "[1.0, -2.5]", ""),
    ({"y": INTEGERS}, f"[{-(1 << 62)}, 7]", ""),
    ({"y": RawTensor("BOOL", (2,), b"\1\0")}, "[true, false]", ""),
    ({"y": floats(shape=(2, 0))}, "[[], []]", ""),
    ({"y": floats(shape=(0, 2))}, "[]", ""),
]


def test_an_answer_is_written_as_tensorflow_serving_writes_it() -> None:
    for outputs, rows, columns in ANSWERS:
        assert predictions_json(outputs).decode() == f'{{"predictions": {rows}}}', (outputs, rows)
        assert outputs_json(outputs).decode() == f'{{"outputs": {columns or rows}}}'


def test_what_has_no_rows_or_rows_that_differ_in_number_is_only_told_as_columns() -> None:
    scalar = {"y": floats(2, shape=())}
    assert outputs_json(scalar) == b'{"outputs": 2.0}'
    with pytest.raises(BadRequest, match="Tensor name: y has no shape information"):
        predictions_json(scalar)
    uneven = {"a": floats(1, 2, shape=(2,)), "b": floats(1, 2, 3, shape=(3,))}
    assert json.loads(outputs_json(uneven)) == {"outputs": {"a": [1, 2], "b": [1, 2, 3]}}
    with pytest.raises(BadRequest, match="b has inconsistent batch size: 3 expecting: 2"):
        predictions_json(uneven)


def test_a_text_passes_byte_by_byte_and_its_special_characters_are_escaped() -> None:
    outputs = {"y": texts(b'"\\\n\xff\xc3\xa9', shape=(1,))}
    assert predictions_json(outputs) == b'{"predictions": ["\\"\\\\\\n\xff\xc3\xa9"]}'


def test_every_float32_reads_back_as_itself() -> None:
    values = array("f", [0.1 * number**3 - 7e3 * number for number in range(-200, 200)])
    outputs = {"y": RawTensor("FP32", (len(values),), values.tobytes())}
    assert array("f", json.loads(predictions_json(outputs))["predictions"]) == values
