"""What hides in the configuration of a Keras model, and what is only unusual."""

import base64
import json
import marshal
from typing import Any

import pytest
from refusals import refusal

from serve.core.errors import ConversionFailed
from serve.workbench.conversion.sources.keras_config import Layer, read_keras_config

from .archives import DENSE, layer, model

CODE = base64.b64encode(marshal.dumps(compile("1", "", "eval"))).decode()
LAMBDA = {"class_name": "__lambda__", "config": {"value": [CODE, None, None]}}


def function(module: str, name: str) -> dict[str, str]:
    page = {"module": module, "class_name": "function", "config": name}
    return page | {"registered_name": name}


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
def test_code_is_found_wherever_it_hides(hidden: Any) -> None:
    for page in (
        model(hidden),
        model(layer("TimeDistributed", "t", layer=hidden)),
        model(layer("Bidirectional", "b", layer=DENSE, backward_layer=hidden)),
        model(model(model(hidden))),
        model(DENSE, build_config={"shapes": hidden}),
        model(DENSE, compile_config={"loss": hidden}),
        model(DENSE | {"build_config": {"x": hidden}}),
    ):
        assert "lambda_layer" in codes(page), page


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
    page = json.dumps(model(layer("StringLookup", "words", vocabulary="/etc/passwd")))
    (fault,) = read_keras_config(page).faults
    told = (fault.code, fault.operator, fault.node)
    assert told == ("dangerous_operator", "StringLookup", "words")
    assert codes(model(layer("StringLookup", "words", vocabulary=["a", "b"]))) == set()


def test_a_loss_of_somebodys_own_and_values_that_keras_writes_as_objects_do_no_harm() -> None:
    assert codes(model(DENSE, compile_config={"loss": function("builtins", "mine>f")})) == set()
    value = {"class_name": "__numpy__", "config": {"value": [1.0], "dtype": "float32"}}
    assert codes(model(layer("Dense", "d", bias_initializer=value))) == set()
    assert codes(model(layer("Dense", "d", "keras.src.layers.core.dense"))) == set()


def test_what_describes_no_model_is_corrupt() -> None:
    bombs = ("[" * 100_000, '{"a":' * 50_000, "9" * 10_000)
    for text in ("", "{", "[]", "null", '{"class_name": 3}', *bombs):
        assert refusal(ConversionFailed, read_keras_config, text).code == "source_corrupt"


def test_any_value_may_stand_anywhere() -> None:
    for value in (None, 3, [], {}, "x", True, 1e400):
        for key in ("module", "class_name", "config", "registered_name", "name", "function_type"):
            read_keras_config(json.dumps(model(DENSE | {key: value})))
        read_keras_config(json.dumps(model(layer("Lookup", "x", vocabulary=value, b=value))))
