"""Generated configurations: what an ONNX file says, in the words of config.pbtxt."""

from typing import Any

import pytest
from refusals import refusal

from serve.core.errors import Invalid
from serve.core.versions import VersionFile
from serve.tensors.signature import ModelSignature, ModelTensor
from serve.triton.config import parse
from serve.triton.config_generation import generate
from serve.triton.lint import LintSubject, lint

from .conftest import BareTritonFactory, load
from .onnx_models import Model, identity, node, onnx_file, tensor

FREE = (ModelTensor("x", "FP32", (-1, 3)), ModelTensor("y", "INT64", (-1, -1, 2)))
FIXED = (ModelTensor("x", "BYTES", (2, 3)), ModelTensor("y", "FP16", (-1, 3)))
SCALARS = (ModelTensor("x", "FP32", ()), ModelTensor("y", "FP32", ()))
ROWS = (ModelTensor("x", "BF16", (-1,)), ModelTensor("y", "BOOL", (-1,)))


def signature(given: ModelTensor, taken: ModelTensor, kind: str = "onnx") -> ModelSignature:
    return ModelSignature(kind, (given,), (taken,))


def config_of(signature: ModelSignature, **more: Any) -> Any:
    """The message that is generated, in which lint finds nothing."""
    configuration = parse(generate("m", signature, **more))
    files = (VersionFile("1/model.onnx", 1, ""),)
    assert lint(LintSubject("m", configuration, files, signature)) == (), signature
    return configuration.message


def test_a_free_first_dimension_everywhere_is_the_batch() -> None:
    for pair, largest, dims in (
        (FREE, 8, [[3], [-1, 2]]),
        (FIXED, 0, [[2, 3], [-1, 3]]),
        (SCALARS, 0, [[1], [1]]),
        (ROWS, 8, [[1], [1]]),
    ):
        message = config_of(signature(*pair))
        assert message.max_batch_size == largest, pair
        assert message.HasField("dynamic_batching") == (largest > 0), pair
        assert [list(entry.dims) for entry in (*message.input, *message.output)] == dims
        assert not message.instance_group, pair


def test_the_largest_batch_can_be_asked_for() -> None:
    for asked, batches in ((0, False), (1, False), (32, True)):
        message = config_of(signature(*FREE), max_batch_size=asked)
        assert (message.max_batch_size, message.HasField("dynamic_batching")) == (asked, batches)


def test_what_the_file_does_not_say_is_told() -> None:
    for found, asked, words in (
        (signature(*FIXED), 4, "first dimension of 'x' is not free"),
        (signature(*FREE), -1, "negative"),
        (signature(*FREE, "plan"), None, "only ONNX files"),
        (signature(FREE[0], ModelTensor("y", "sequence", None)), None, "data type"),
        (signature(FREE[0], ModelTensor("y", "FP32", None)), None, "its shape"),
    ):
        assert words in str(refusal(Invalid, generate, "m", found, max_batch_size=asked))


def test_a_warm_up_sends_zeros_as_one_row_and_as_the_largest_batch() -> None:
    given = ModelTensor("x", "FP32", (-1, -1, 3)), ModelTensor("ids", "INT64", (-1,))
    found = ModelSignature("onnx", given, (ModelTensor("y", "FP32", (-1, 2)),))
    sizes = {"x": (4, 5, 3), "ids": (4,)}
    samples = config_of(found, max_batch_size=16, warm_up=sizes).model_warmup
    assert [sample.batch_size for sample in samples] == [1, 16]
    for sample in samples:
        assert {name: list(value.dims) for name, value in sample.inputs.items()} == {
            "x": [5, 3],
            "ids": [1],
        }
        assert all(value.zero_data for value in sample.inputs.values())


def test_a_model_without_batches_is_warmed_up_with_the_sizes_that_it_takes() -> None:
    found = signature(ModelTensor("x", "FP32", (-1, 3)), ModelTensor("y", "FP32", (-1,)))
    (sample,) = config_of(found, max_batch_size=0, warm_up={"x": (4, 3)}).model_warmup
    assert (sample.batch_size, list(sample.inputs["x"].dims)) == (1, [4, 3])


@pytest.mark.slow
@pytest.mark.triton
def test_what_is_generated_loads_in_triton_and_is_ready_after_its_warm_up(
    bare_triton_factory: BareTritonFactory,
) -> None:
    server = bare_triton_factory()
    widened = onnx_file(
        [tensor("x", "FP32", "batch", "n")],
        [tensor("y", "FP64", "batch", "n")],
        node("Cast", "x", "y", to=11),
    )
    for name, given, model, size in (
        ("rows", ModelTensor("x", "FP32", (-1, -1)), identity("FP32", "batch", "n"), (4, 3)),
        ("texts", ModelTensor("x", "BYTES", (-1, 2)), identity("STRING", "batch", 2), (4, 2)),
        ("flags", ModelTensor("x", "BOOL", (-1,)), identity("BOOL", "batch"), (4,)),
        ("fixed", ModelTensor("x", "INT64", (2, 3)), identity("INT64", 2, 3), (2, 3)),
        ("scalar", SCALARS[0], identity("FP32"), None),
        ("numbers", ROWS[0], identity("BF16", "batch"), None),
        ("widened", ModelTensor("x", "FP32", (-1, -1)), widened, None),
    ):
        taken = ModelTensor("y", "FP64" if name == "widened" else given.datatype, given.shape)
        text = generate(name, signature(given, taken), warm_up={"x": size} if size else None)
        assert ("model_warmup" in text) == bool(size), name
        Model({1: model}, text).write(server.repository / name)
        load(server, name)
