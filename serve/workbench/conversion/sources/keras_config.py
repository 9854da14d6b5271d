"""What a Keras model says of itself in JSON: its layers, and whether code hides among them.

Theory. Keras rebuilds a model from `{"module", "class_name", "config", "registered_name"}`. Code
comes in by four ways: a `Lambda` layer or `__lambda__` (marshalled Python), a class or function of
a module that is not Keras', a function of Keras that is no part of a model (`get_file`), and
configurations that name files (`vocabulary`). `safe_mode` closes most of them while it is already
building; this reads the JSON and builds nothing. It looks everywhere, also in `build_config` and
`compile_config`, because whoever hides something does not put it where it is looked for.

A class of somebody's own in `compile_config` is no fault: a conversion does not compile the model.
"""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from serve.core.errors import ConversionFailed
from serve.workbench.conversion.faults import failed
from serve.workbench.conversion.sources.known import LAYERS

MOST_VALUES = 2_000_000
_CODE = {"Lambda", "__lambda__", "SlicingOpLambda", "TFOpLambda"}
_CODE_TYPES = {"lambda", "function", "raw"}
_PICKLED = {"TorchModuleWrapper"}
_ELSEWHERE = {"TFSMLayer", "JaxLayer", "FlaxLayer"}  # hold code, or the path of another model
_NOT_MODELLING = ("keras.utils", "keras.saving", "keras.config", "keras.backend", "keras.datasets")
_LOADING = {"load_model", "save_model", "model_from_json", "get_file", "load_img", "save_img"}
_COMPILED = ("compile_config", "training_config")
_LOADING |= {"clone_model", "enable_unsafe_deserialization", "deserialize_keras_object"}


@dataclass(frozen=True, slots=True)
class Layer:
    """A kind of layer, and how many of it there are."""

    name: str
    count: int


@dataclass(frozen=True, slots=True)
class KerasModel:
    """What the configuration tells. `inputs` as (name, shape, data type); 0 or more `faults`."""

    name: str
    layers: tuple[Layer, ...]
    inputs: tuple[tuple[str, tuple[int, ...], str], ...]
    faults: tuple[ConversionFailed, ...]


@dataclass(frozen=True, slots=True)
class _Place:
    """An object of the configuration: the nearest name and class, and the key it came by."""

    value: Any
    name: str = ""
    kind: str = ""
    key: str = ""
    is_compiled: bool = False


def read_keras_config(text: bytes | str) -> KerasModel:
    """Read config.json, or the attribute `model_config` of an HDF5 file; `source_corrupt`."""
    try:
        page = json.loads(text)
        if not isinstance(page, dict) or not isinstance(page.get("class_name"), str):
            raise ValueError("it does not describe a model")
    except (ValueError, RecursionError) as error:
        raise failed("source_corrupt", f"its configuration cannot be read: {error}") from error
    layers: Counter[str] = Counter()
    inputs: dict[str, tuple[str, tuple[int, ...], str]] = {}
    faults: dict[tuple[str, str], ConversionFailed] = {}
    for place in _places(page):
        kind = place.value.get("class_name")
        for fault in _faults(place):
            faults.setdefault((fault.code, fault.node), fault)
        if isinstance(kind, str) and _is_layer(place):
            layers[kind] += 1
            if kind == "InputLayer":
                inputs.setdefault(place.name, _input(place))
    config = page.get("config")
    name = config.get("name", "") if isinstance(config, dict) else ""
    counted = tuple(Layer(*each) for each in sorted(layers.items()))
    return KerasModel(str(name), counted, tuple(inputs.values()), tuple(faults.values()))


def _places(page: dict[str, Any]) -> Iterator[_Place]:
    """Every object in it, from the outside in, each once."""
    waiting, seen = [_Place(page)], 0
    while waiting:
        place = waiting.pop()
        seen += 1
        if seen > MOST_VALUES:
            raise failed(
                "source_too_large", f"its configuration has more than {MOST_VALUES} values"
            )
        if isinstance(place.value, list):
            waiting += (
                replace(place, value=each)
                for each in reversed(place.value)
                if isinstance(each, dict | list)
            )
            continue
        kind = place.value.get("class_name")
        place = replace(
            place,
            name=_name_of(place.value) or place.name,
            kind=kind if isinstance(kind, str) else place.kind,
        )
        yield place
        waiting += (
            replace(place, value=value, key=key, is_compiled=place.is_compiled or key in _COMPILED)
            for key, value in reversed(place.value.items())
            if isinstance(value, dict | list)
        )


def _name_of(value: dict[str, Any]) -> str:
    config = value.get("config")
    name = config.get("name") if isinstance(config, dict) else None
    return name[:200] if isinstance(name, str) and "class_name" in value else ""


def _is_layer(place: _Place) -> bool:
    module = place.value.get("module")
    if place.is_compiled or not isinstance(place.value.get("config"), dict):
        return False
    if isinstance(module, str):
        return "layers" in module.split(".")
    return place.key in ("layers", "layer", "forward_layer", "backward_layer", "cell")


def _input(place: _Place) -> tuple[str, tuple[int, ...], str]:
    config = place.value["config"]
    shape = config.get("batch_shape", config.get("batch_input_shape"))
    sizes = shape if isinstance(shape, list) else []
    dtype = config.get("dtype")
    return (
        place.name,
        tuple(size if isinstance(size, int) else -1 for size in sizes),
        dtype if isinstance(dtype, str) else "",
    )


def _faults(place: _Place) -> Iterator[ConversionFailed]:
    value, name = place.value, place.name
    kind, module = value.get("class_name"), value.get("module")
    form = value.get("function_type")  # of an old Lambda layer: how it holds its code
    is_code = isinstance(kind, str) and kind in _CODE
    if is_code or (isinstance(form, str) and form in _CODE_TYPES):
        word = str(kind or "Lambda")
        yield failed(
            "lambda_layer",
            f"{word} '{name}'" + (" in its training configuration" if place.is_compiled else ""),
            operator=word,
            node=name,
            hint="compile the model without it, and save it again" if place.is_compiled else "",
        )
        return
    vocabulary = value.get("vocabulary")
    if isinstance(vocabulary, str):
        yield failed(
            "dangerous_operator",
            f"layer '{name}' reads the file '{vocabulary[:200]}'",
            operator=place.kind,
            node=name,
            hint="give the layer its vocabulary as a list",
        )
    if not isinstance(kind, str):
        return
    if kind in _PICKLED:
        yield failed("pickle_refused", f"{kind} '{name}'", operator=kind, node=name)
    elif (why := _foreign(value, kind, module) or _unknown(place)) and not place.is_compiled:
        yield failed("custom_object", f"{why} ('{name}')", operator=kind, node=name)


def _unknown(place: _Place) -> str:
    """Why a layer of an old file, which tells no modules, is none of Keras'; empty when it is."""
    kind = place.value["class_name"]
    if "module" in place.value or not _is_layer(place) or kind in LAYERS:
        return ""
    return f"'{kind}' is not a layer of Keras 3"


def _foreign(value: dict[str, Any], kind: str, module: Any) -> str:
    """Why a class or function is not one of Keras' own for models; empty when it is."""
    config, registered = value.get("config"), value.get("registered_name")
    called = config if kind == "function" and isinstance(config, str) else kind
    if not isinstance(module, str | None) or not isinstance(registered, str | None):
        return f"the configuration of '{called}' is malformed"
    if registered and ">" in registered:
        return f"'{registered}' is a custom class or function"
    is_nowhere = module is None and "module" in value and not kind.startswith("__")
    if ">" in called or is_nowhere:
        return f"'{called}' is a custom class or function"
    module = module or ""
    if kind.startswith("__") and kind != "__typespec__":
        return ""  # a number, a tensor, a shape: a value, and `__lambda__` has been seen
    if module and module.partition(".")[0] not in ("keras", "builtins"):
        return f"'{module}.{called}' is not part of Keras"
    if kind in _ELSEWHERE:
        return f"'{kind}' needs code or a model that is not in the file"
    if kind == "function" and (called in _LOADING or module.startswith(_NOT_MODELLING)):
        return f"the function '{module}.{called}' cannot be part of a model"
    return ""
