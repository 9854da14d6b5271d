"""What hides in the configuration of a Keras model, and what is only unusual."""

import base64
import json
import marshal
from typing import Any

import pytest

from serve.core.errors import ConversionFailed
from serve.workbench.conversion.sources.keras_config import Layer, read_keras_config

from .archives import DENSE, layer, model

CODE = base64.b64encode(marshal.dumps(compile("1", "", "eval"))).decode()
LAMBDA = {"class_name": "__lambda__", "config": {"value": [CODE, None, None]}}


def function(module: str, name: str) -> dict[str, str]:
    return {
        "module": module,
        "class_name": "function",
        "config": name,
        "registered_name": name,
    }


def codes(page: Any) -> set[str]:
    return {fault.code for fault in read_keras_config(json.dumps(page)).faults}


def test_layers_and_inputs_are_told_and_nothing_is_wrong() -> None:
    found = read_keras_config(json.dumps(model(DENSE, layer("Dense", "d2", units=2))))
    assert found.layers == (Layer("Dense", 2), Layer("InputLayer", 1))
    assert found.inputs == (("x", (-1, 4), "float32"),)
    assert found.faults == ()


@pytest.mark.parametrize(
    "hidden",
    [
        layer("Lambda", "l", function=LAMBDA),
        layer("Lambda", "l", None),
        {"class_name": "Lambda", "config": {"function": [CODE], "function_type": "lambda"}},
        {"class_name": "Custom>Lambda", "config": {"function_type": "lambda", "name": "l"}},
        layer("Dense", "d", activation=LAMBDA),
        layer("Dense", "d", kernel_initializer={"deep": [[{"deeper": LAMBDA}]]}),
    ],
)
@pytest.mark.parametrize(
    "wrap",
    [
        lambda inner: model(inner),
        lambda inner: model(layer("TimeDistributed", "t", layer=inner)),
        lambda inner: model(layer("Bidirectional", "b", layer=DENSE, backward_layer=inner)),
        lambda inner: model(model(model(inner))),
        lambda inner: model(DENSE, build_config={"shapes": inner}),
        lambda inner: model(DENSE, compile_config={"loss": inner}),
        lambda inner: model(DENSE | {"build_config": {"x": inner}}),
    ],
)
def test_code_is_found_wherever_it_hides(hidden: Any, wrap: Any) -> None:
    assert "lambda_layer" in codes(wrap(hidden))


@pytest.mark.parametrize(
    "foreign",
    [
        layer("Mine", "m", "my_package.layers"),
        layer("Mine", "m", None),
        layer("Mine", "m") | {"registered_name": "my_package>Mine"},
        layer("Evil", "m", "os"),
        layer("Evil", "m", "keras_evil"),
        function("builtins", "p>f"),
        function("os", "system"),
        layer("TFSMLayer", "m", filepath="/else/where"),
        layer("Dense", "d", activation=function("keras.utils", "get_file")),
        {"module": ["keras"], "class_name": "Dense", "config": {}},
        {"class_name": "Mine", "config": {"name": "old"}},
    ],
)
def test_classes_and_functions_from_elsewhere_are_refused(foreign: Any) -> None:
    assert codes(model(foreign)) == {"custom_object"}


def test_a_pickled_module_is_refused() -> None:
    assert codes(model(layer("TorchModuleWrapper", "t", module="gASV"))) == {"pickle_refused"}


def test_a_vocabulary_that_is_a_path_would_read_a_file() -> None:
    (fault,) = read_keras_config(
        json.dumps(model(layer("StringLookup", "words", vocabulary="/etc/passwd")))
    ).faults
    assert (fault.code, fault.operator, fault.node) == (
        "dangerous_operator",
        "StringLookup",
        "words",
    )
    assert codes(model(layer("StringLookup", "words", vocabulary=["a", "b"]))) == set()


def test_a_loss_of_somebodys_own_is_not_needed() -> None:
    assert codes(model(DENSE, compile_config={"loss": function("builtins", "mine>f")})) == set()


def test_values_that_keras_writes_as_objects_are_no_classes() -> None:
    value = {"class_name": "__numpy__", "config": {"value": [1.0], "dtype": "float32"}}
    assert codes(model(layer("Dense", "d", bias_initializer=value))) == set()
    assert codes(model(layer("Dense", "d", "keras.src.layers.core.dense"))) == set()


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '{"class_name": 3}', "[" * 100_000, '{"a":' * 50_000, "9" * 10_000],
)
def test_what_describes_no_model_is_corrupt(text: str) -> None:
    with pytest.raises(ConversionFailed) as told:
        read_keras_config(text)
    assert told.value.code == "source_corrupt"


def test_any_value_may_stand_anywhere() -> None:
    for value in (None, 3, [], {}, "x", True, 1e400):
        for key in ("module", "class_name", "config", "registered_name", "name", "function_type"):
            read_keras_config(json.dumps(model(DENSE | {key: value})))
        read_keras_config(json.dumps(model(layer("Lookup", "x", vocabulary=value, b=value))))
