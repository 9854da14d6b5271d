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

THREE = takes(tag="BYTES", signal="INT64", sensor="FP32")
DOCUMENTED: list[tuple[str, ServingSignature, dict[str, Any]]] = [
    (
        '{"instances": ["foo", "bar", "baz"]}',
        takes(x="BYTES"),
        {"x": ((3,), [b"foo", b"bar", b"baz"])},
    ),
    ('{"instances": [[[1, 2]], [[3, 4]]]}', takes(x="INT32"), {"x": ((2, 1, 2), [1, 2, 3, 4])}),
    (
        """{"instances": [
             {"tag": "foo", "signal": [1, 2, 3, 4, 5], "sensor": [[1, 2], [3, 4]]},
             {"tag": "bar", "signal": [3, 4, 1, 2, 5], "sensor": [[4, 5], [6, 8]]}]}""",
        THREE,
        {
            "tag": ((2,), [b"foo", b"bar"]),
            "signal": ((2, 5), [1, 2, 3, 4, 5, 3, 4, 1, 2, 5]),
            "sensor": ((2, 2, 2), [1, 2, 3, 4, 4, 5, 6, 8]),
        },
    ),
    (
        """{"inputs": {"tag": ["foo", "bar"],
                       "signal": [[1, 2, 3, 4, 5], [3, 4, 1, 2, 5]],
                       "sensor": [[[1, 2], [3, 4]], [[4, 5], [6, 8]]]}}""",
        THREE,
        {
            "tag": ((2,), [b"foo", b"bar"]),
            "signal": ((2, 5), [1, 2, 3, 4, 5, 3, 4, 1, 2, 5]),
            "sensor": ((2, 2, 2), [1, 2, 3, 4, 4, 5, 6, 8]),
        },
    ),
    ('{"instances": [1.0, 2.0, 5.0]}', takes(x="FP32"), {"x": ((3,), [1.0, 2.0, 5.0])}),
    ('{"inputs": 5}', takes(x="FP32"), {"x": ((), [5.0])}),
    ('{"inputs": {"x": [[1]]}}', takes(x="FP32"), {"x": ((1, 1), [1.0])}),
    ('{"instances": [{"x": [1]}, {"x": [2]}]}', takes(x="UINT8"), {"x": ((2, 1), [1, 2])}),
    (
        '{"instances": [{"b64": "aW1hZ2UgYnl0ZXM="}, {"b64": "YXdlc29tZSBpbWFnZSBieXRlcw=="}]}',
        takes(image_bytes="BYTES"),
        {"image_bytes": ((2,), [b"image bytes", b"awesome image bytes"])},
    ),
    ('{"inputs": {"b64": "AAE"}}', takes(x="BYTES"), {"x": ((), [b"\0\1"])}),
    (
        '{"instances": [{"image": {"b64": "/w=="}, "caption": "é"}]}',
        takes(image="BYTES", caption="BYTES"),
        {"image": ((1,), [b"\xff"]), "caption": ((1,), ["é".encode()])},
    ),
    ('{"instances": [true, false]}', takes(x="BOOL"), {"x": ((2,), [True, False])}),
    ('{"instances": [[], []]}', takes(x="FP32"), {"x": ((2, 0), [])}),
    ('{"instances": [1e3, -0.5]} and more', takes(x="FP64"), {"x": ((2,), [1000.0, -0.5])}),
    ('{"instances": [0.5, 2]}', takes(x="FP16"), {"x": ((2,), [0.5, 2.0])}),
    ('{"instances": [0.5, 3]}', takes(x="BF16"), {"x": ((2,), [0.5, 3.0])}),
    (
        '{"instances": [18446744073709551615]}',
        takes(x="UINT64"),
        {"x": ((1,), [18446744073709551615])},
    ),
]


def test_a_documented_request_becomes_these_tensors() -> None:
    for text, signature, wanted in DOCUMENTED:
        assert read(text, signature) == wanted, (text, signature)


def test_nan_and_infinities_are_numbers() -> None:
    [(_, values)] = read('{"instances": [NaN, Infinity, -Infinity]}', takes(x="FP32")).values()
    assert math.isnan(values[0]) and values[1:] == [math.inf, -math.inf]


def test_bytes_that_are_no_utf8_pass_through_a_string() -> None:
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
WRONG: list[tuple[str, ServingSignature, str]] = [
    ("", ONE, "JSON Parse error: The document is empty"),
    ("instances = [1, 2]", ONE, "JSON Parse error: "),
    ('{"instances": [1, 2', ONE, "JSON Parse error: "),
    ("[1, 2]", ONE, "Is not object"),
    ("{}", ONE, "Missing 'inputs' or 'instances' key"),
    (
        '{"instances": [1], "inputs": [1]}',
        ONE,
        "expecting only one of 'inputs' or 'instances' keys",
    ),
    ('{"instances": 5}', ONE, "Expecting 'instances' to be an list/array"),
    ('{"instances": []}', ONE, "No values in 'instances' array"),
    (
        '{"instances": ["x", "y"]}',
        ONE,
        "Failed to process element: 0 of 'instances' list. Error: INVALID_ARGUMENT: "
        'JSON Value: "x" Type: String is not of expected type: float',
    ),
    ('{"instances": [1, true]}', ONE, "JSON Value: true Type: True is not of expected type: float"),
    ('{"instances": [null]}', ONE, "JSON Value: null Type: Null is not of expected type: float"),
    ('{"instances": [1.5]}', takes(x="INT32"), "Type: Number is not of expected type: int32"),
    ('{"instances": [300]}', takes(x="INT8"), "JSON Value: 300 Type: Number is not of expected"),
    ('{"instances": [-1]}', takes(x="UINT64"), "is not of expected type: uint64"),
    ('{"instances": [1]}', takes(x="BOOL"), "is not of expected type: bool"),
    ('{"instances": [1]}', takes(x="BYTES"), "is not of expected type: string"),
    ('{"instances": [{"b64": "AA=="}]}', ONE, "Type: Object is not of expected type: float"),
    ('{"instances": [{"b64": "!"}]}', takes(x="BYTES"), "Unable to base64 decode"),
    ('{"inputs": [{"b": 1}]}', takes(x="BYTES"), "not formatted correctly for base64 data"),
    ('{"inputs": ["\\ud800"]}', takes(x="BYTES"), "is not of expected type: string"),
    (
        '{"instances": [[1, 2], [3]]}',
        ONE,
        "Failed to process element: 1 of 'instances' list. Error: INVALID_ARGUMENT: "
        "Expecting tensor size: 2 but got: 1",
    ),
    ('{"instances": [[1, 2], [[1], [2]]]}', ONE, "Expecting shape [2] but got: [2,1]"),
    (
        '{"instances": [[[1, 2], [3]]]}',
        ONE,
        "list at unexpected size: 1 at level: 1 expected size: 2",
    ),
    ('{"inputs": [1, [2]]}', ONE, "Encountered list at unexpected level: 1 expected < 1"),
    (
        '{"inputs": [[2], 1]}',
        ONE,
        "found at incorrect level: 2 in the JSON DOM. Expected at level: 2",
    ),
    ('{"instances": [1, 2]}', TWO, "instances is a plain list, but expecting list of objects"),
    ('{"inputs": [1, 2]}', TWO, "inputs is a plain value/list, but expecting an object"),
    ('{"instances": [{"x": 1, "y": 1}, 3]}', TWO, "Expecting object but got list at item 1"),
    ('{"instances": [1, {"x": 1}]}', ONE, "Expecting value/list but got object at item 1"),
    ('{"instances": [{"x": 1}]}', TWO, "keys must be equal to: x,y"),
    (
        '{"instances": [{"x": 1, "y": 1, "z": 1}]}',
        TWO,
        "Failed to process element: 0 key: z of 'instances' list. Error: INVALID_ARGUMENT: "
        "JSON object: does not have named input: z",
    ),
    (
        '{"instances": [{"x": [1], "y": 1}, {"x": [1, 2], "y": 1}]}',
        TWO,
        "Failed to process element: 1 key: x of 'instances' list.",
    ),
    ('{"inputs": {"x": [1]}}', TWO, "Missing named input: y in 'inputs' object."),
    ('{"inputs": ' + "[" * 40 + "]" * 40 + "}", ONE, "more than 32 dimensions"),
    ('{"instances": ' + "[" * 100_000, ONE, "JSON Parse error: "),
]


def test_what_is_wrong_with_a_request_is_said_in_tensorflow_servings_words() -> None:
    for text, signature, sentence in WRONG:
        error = refusal(BadRequest, read, text, signature)
        assert sentence in str(error), (text, signature)


def test_an_error_shows_the_beginning_of_a_large_document_only() -> None:
    with pytest.raises(BadRequest) as error:
        read('{"instances": "' + "x" * 10_000 + '"}', ONE)
    assert len(str(error.value)) < 400


# --- answers ----------------------------------------------------------------------------------

ANSWERS: list[tuple[dict[str, RawTensor], str, str]] = [
    ({"y": floats(3.5, 4.0, 5.5, shape=(3,))}, "[3.5, 4.0, 5.5]", "[3.5, 4.0, 5.5]"),
    (
        {"y": floats(1, 2, 3, 4, shape=(2, 1, 2))},
        "[[[1.0, 2.0]], [[3.0, 4.0]]]",
        "[[[1.0, 2.0]], [[3.0, 4.0]]]",
    ),
    (
        {"a": floats(1, 2, shape=(2,)), "b": texts(b"x", b"y", shape=(2,))},
        '[{"a": 1.0, "b": "x"}, {"a": 2.0, "b": "y"}]',
        '{"a": [1.0, 2.0], "b": ["x", "y"]}',
    ),
    (
        {"image_bytes": texts(b"image bytes", shape=(1, 1))},
        '[[{"b64": "aW1hZ2UgYnl0ZXM="}]]',
        '[[{"b64": "aW1hZ2UgYnl0ZXM="}]]',
    ),
    (
        {"y": floats(math.nan, math.inf, -math.inf, shape=(3,))},
        "[NaN, Infinity, -Infinity]",
        "[NaN, Infinity, -Infinity]",
    ),
    ({"y": floats(0.1, 1e-7, 9e6, 1 / 3, shape=(4,))}, "[0.1, 1e-07, 9e+06, 0.333333343]", ""),
    (
        {"y": floats(0.1, 1 / 3, shape=(2,), datatype="FP64")},
        "[0.1, 0.33333333333333331]",
        "",
    ),
    ({"y": floats(0.5, 0.1, shape=(2,), datatype="FP16")}, "[0.5, 0.0999755859]", ""),
    ({"y": floats(1.0, -2.5, shape=(2,), datatype="BF16")}, "[1.0, -2.5]", ""),
    (
        {"y": RawTensor("INT64", (2,), array("q", [-(1 << 62), 7]).tobytes())},
        f"[{-(1 << 62)}, 7]",
        "",
    ),
    ({"y": RawTensor("BOOL", (2,), b"\1\0")}, "[true, false]", "[true, false]"),
    ({"y": floats(shape=(2, 0))}, "[[], []]", "[[], []]"),
    ({"y": floats(shape=(0, 2))}, "[]", "[]"),
]


def test_an_answer_is_written_as_tensorflow_serving_writes_it() -> None:
    for outputs, rows, columns in ANSWERS:
        assert predictions_json(outputs).decode() == f'{{"predictions": {rows}}}', (outputs, rows)
        assert outputs_json(outputs).decode() == f'{{"outputs": {columns or rows}}}'


def test_a_scalar_is_a_column_and_no_row() -> None:
    outputs = {"y": floats(2, shape=())}
    assert outputs_json(outputs) == b'{"outputs": 2.0}'
    with pytest.raises(BadRequest, match="Tensor name: y has no shape information"):
        predictions_json(outputs)


def test_rows_of_outputs_that_differ_in_number_are_refused() -> None:
    outputs = {"a": floats(1, 2, shape=(2,)), "b": floats(1, 2, 3, shape=(3,))}
    with pytest.raises(BadRequest, match="b has inconsistent batch size: 3 expecting: 2"):
        predictions_json(outputs)
    assert json.loads(outputs_json(outputs)) == {"outputs": {"a": [1, 2], "b": [1, 2, 3]}}


def test_a_text_passes_byte_by_byte_and_its_special_characters_are_escaped() -> None:
    outputs = {"y": texts(b'"\\\n\xff\xc3\xa9', shape=(1,))}
    assert predictions_json(outputs) == b'{"predictions": ["\\"\\\\\\n\xff\xc3\xa9"]}'


def test_every_float32_reads_back_as_itself() -> None:
    values = array("f", [0.1 * number**3 - 7e3 * number for number in range(-200, 200)])
    outputs = {"y": RawTensor("FP32", (len(values),), values.tobytes())}
    assert array("f", json.loads(predictions_json(outputs))["predictions"]) == values
