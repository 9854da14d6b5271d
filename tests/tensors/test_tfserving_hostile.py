"""Whatever stands in a request to the façade: it becomes tensors, or a sentence about it."""

import contextlib
import json
import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from serve.core.errors import BadRequest, ServegateError
from serve.tensors.tfserving_answers import outputs_json, predictions_json
from serve.tensors.tfserving_examples import example_inputs, examples_of
from serve.tensors.tfserving_infer import infer_body, read_outputs
from serve.tensors.tfserving_json import document_of, predict_inputs
from serve.tensors.tfserving_proto import tensor_of
from serve.tensors.tfserving_tensors import (
    KINDS,
    Port,
    RawTensor,
    ServingSignature,
    item_size,
    pack,
    signature_of,
    unpack,
)
from serve.wire.tfserving_messages import messages

SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.just({"b64": "AA=="})
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["x", "y", "z", "b64"]), inner, max_size=3)
    ),
    max_leaves=12,
)
DOCUMENTS = st.dictionaries(
    st.sampled_from(["instances", "inputs", "examples", "context", "signature_name"]), VALUES
)
DATATYPES = st.sampled_from(sorted(KINDS))
SIGNATURES = st.lists(DATATYPES, min_size=1, max_size=2).map(
    lambda kinds: ServingSignature(
        tuple(Port(name, kind, (-1, 2)) for name, kind in zip("xy", kinds, strict=False)), ()
    )
)


def check(tensors: dict[str, RawTensor]) -> None:
    """Each tensor has as many elements as its shape says."""
    for tensor in tensors.values():
        assert len(unpack(tensor)) == math.prod(tensor.shape)


@given(DOCUMENTS, SIGNATURES)
def test_any_document_becomes_tensors_or_is_refused(
    document: Any, signature: ServingSignature
) -> None:
    asked = document_of(json.dumps(document).encode())
    with contextlib.suppress(BadRequest):
        check(predict_inputs(asked, signature).inputs)
    with contextlib.suppress(BadRequest):
        check(example_inputs(examples_of(asked), signature))


@given(st.binary(max_size=200))
def test_any_bytes_are_a_document_or_are_refused(data: bytes) -> None:
    with contextlib.suppress(BadRequest):
        assert isinstance(document_of(data), dict)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_tensor_proto_or_are_refused(data: bytes) -> None:
    with contextlib.suppress(BadRequest, ValueError):
        check({"x": tensor_of(messages().read("Tensor", data), "x", 1 << 16)})


@given(st.binary(max_size=200), st.one_of(st.none(), st.integers(0, 300)))
def test_any_answer_of_triton_can_be_read_or_is_broken(data: bytes, head: int | None) -> None:
    with contextlib.suppress(ServegateError):
        read_outputs(data, head)


@given(
    DATATYPES,
    st.lists(st.integers(0, 3), min_size=1, max_size=3),
    st.binary(min_size=300, max_size=300),
)
def test_any_tensor_goes_through_a_message_and_becomes_json(
    datatype: str, shape: list[int], data: bytes
) -> None:
    count, size = math.prod(shape), item_size(datatype)
    raw = data[: count * size] if size else pack([data[:7]] * count, datatype)
    tensor = RawTensor(datatype, tuple(shape), raw)
    body = infer_body({"y": tensor})
    head = json.loads(body.head)
    start = json.dumps({"outputs": head["inputs"]}).encode()
    outputs = read_outputs(start + b"".join(body.tensors), len(start))
    assert outputs == {"y": tensor}
    for write, key in ((outputs_json, "outputs"), (predictions_json, "predictions")):
        assert len(json.loads(write(outputs).decode("utf-8", "replace"))[key]) == shape[0]


def test_a_configuration_tells_what_the_model_takes_and_gives() -> None:
    config = {
        "name": "m",
        "max_batch_size": 4,
        "input": [
            {"name": "a", "data_type": "TYPE_STRING", "dims": ["1"]},
            {"name": "b", "data_type": "TYPE_BF16", "dims": [-1, 3], "optional": True},
        ],
        "output": [{"name": "c", "data_type": "TYPE_FP32", "dims": [2], "label_filename": "l"}],
    }
    signature = signature_of(config)
    assert signature.inputs == (
        Port("a", "BYTES", (-1, 1)),
        Port("b", "BF16", (-1, -1, 3), is_optional=True),
    )
    assert signature.outputs == (Port("c", "FP32", (-1, 2), has_labels=True),)
    assert signature.is_batched and signature.required == signature.inputs[:1]
    assert signature_of({**config, "max_batch_size": 0}).inputs[0].shape == (1,)
