"""TensorFlow's side of a conversion: sources in their forms, and what is made of them."""

import importlib
import logging
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from refusals import refusal

from serve.core.errors import ConversionFailed
from serve.tensors.signature import ModelTensor
from serve.workbench.conversion.request import ConversionRequest
from serve.workbench.conversion.sources.dangers import DANGEROUS, PYTHON, RANDOM
from serve.workbench.conversion.sources.known import KNOWN, LAYERS
from serve.workbench.conversion.sources.operators import REWRITTEN

from ..zoo import ROWS

pytestmark = pytest.mark.tensorflow


@pytest.fixture(scope="module")
def translating() -> ModuleType:
    """The package under test; it imports TensorFlow, so not before these tests are run."""
    return importlib.import_module("serve.workbench.conversion.translation")


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    yield ROWS["tf-module"].build(tmp_path_factory.mktemp("network"))


def test_a_source_model_tells_its_signature_and_answers(
    translating: ModuleType, network: Path
) -> None:
    source = translating.SourceModel(network, "serving_default")
    assert source.signature.inputs == (ModelTensor("pixels", "FP32", (-1, 16, 16, 3)),)
    assert [spec.name for spec in source.signature.outputs] == ["features", "logits"]
    answer = source({"pixels": np.ones((2, 16, 16, 3), np.float32)})
    assert {name: array.shape for name, array in answer.items()} == {
        "features": (2, 4),
        "logits": (2, 2),
    }


def test_a_signature_that_is_not_there_is_a_fault(translating: ModuleType, network: Path) -> None:
    fault = refusal(ConversionFailed, translating.SourceModel, network, "third")
    assert fault.code == "unknown_signature"


def test_the_prepared_copy_leaves_the_source_as_it_is(
    translating: ModuleType, network: Path, tmp_path: Path
) -> None:
    before = digests(network)
    prepared = translating.prepare(network, tmp_path)
    assert digests(network) == before
    assert sorted(each.name for each in prepared.iterdir()) == sorted(
        each.name for each in network.iterdir()
    )


def digests(folder: Path) -> Mapping[str, str]:
    files = (each for each in folder.rglob("*") if each.is_file())
    return {str(each): sha256(each.read_bytes()).hexdigest() for each in files}


@pytest.mark.slow
def test_no_pass_of_the_optimiser_has_to_be_repeated_with_copies(
    translating: ModuleType, tmp_path: Path
) -> None:
    source = ROWS["transformer"].build(tmp_path)
    notes: list[str] = []
    translating.translate(
        translating.prepare(source, tmp_path),
        "serving_default",
        ConversionRequest(str(source)),
        lambda kind, **facts: notes.append(facts.get("text", kind)),
    )
    assert notes == []


def test_the_known_operators_and_layers_are_those_of_tensorflow(translating: ModuleType) -> None:
    import keras
    from tensorflow.python.framework import op_def_registry

    known = translating.known_operators()
    assert {"Erfc", "Conv2D", "MatMul"} <= known and "Svd" not in known
    real = {name for name in known if op_def_registry.get(name) is not None}
    assert real - REWRITTEN - RANDOM == KNOWN - REWRITTEN - RANDOM
    assert not KNOWN & (DANGEROUS | PYTHON)
    for module in (keras.layers, keras.src.layers):
        assert {name for name, each in vars(module).items() if isinstance(each, type)} <= LAYERS


def test_an_error_in_the_log_is_a_fault_with_operator_and_node(translating: ModuleType) -> None:
    from serve.workbench.conversion.translation.translation import heard

    with heard() as talk:
        logging.getLogger("tf2onnx.tfonnx").error(
            "Tensorflow op [%s: %s] is not supported", "PartitionedCall/net/svd", "Svd"
        )
    fault = talk.fault()
    assert fault is not None
    assert (fault.code, fault.operator, fault.node) == ("unsupported_operator", "Svd", "net/svd")


def test_only_images_have_channels_to_put_first(translating: ModuleType, network: Path) -> None:
    signature = translating.SourceModel(network, "serving_default").signature
    turned = translating.channels_first(signature, ["pixels"])
    assert turned.inputs == (ModelTensor("pixels", "FP32", (-1, 3, 16, 16)),)
    fault = refusal(ConversionFailed, translating.channels_first, signature, ["other"])
    assert fault.code == "unsupported_input"


def test_a_lookup_table_is_in_the_order_of_its_keys(translating: ModuleType) -> None:
    order = importlib.import_module(f"{translating.__name__}.order")
    keys, values = order.by_keys(np.array([b"plum", b"apple"], object), np.array([3, 1]))
    assert (keys.tolist(), values.tolist()) == ([b"apple", b"plum"], [1, 3])
