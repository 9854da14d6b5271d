"""What the models of the `kserve` package object to in resources: run in `.venv-kserve`.

Usage: kserve_resources.py < RESOURCES (a JSON list). A JSON list of sentences goes to stdout. Every
field has to be one that the package knows for its resource, with a value of its kind; what is
Kubernetes' own is read with the models of the package `kubernetes`.
"""

import json
import re
import sys
from collections.abc import Iterator
from typing import Any

import kserve
import kserve.models
import kubernetes.client.models

KINDS = {
    "InferenceService": "V1beta1InferenceService",
    "ServingRuntime": "V1alpha1ServingRuntime",
}
PLAIN: dict[str, Any] = {"str": str, "int": (int, str), "bool": bool, "float": (int, float)}


def problems(value: Any, kind: str, path: str) -> Iterator[str]:
    """What is wrong with a value that should be of this kind, as the packages write it."""
    of_list = re.fullmatch(r"list\[(.+)\]", kind)
    of_map = re.fullmatch(r"dict\((\w+), ?(.+)\)", kind)
    if of_list:
        if not isinstance(value, list):
            yield f"{path} is no list"
            return
        for index, one in enumerate(value):
            yield from problems(one, of_list[1], f"{path}[{index}]")
    elif of_map:
        if not isinstance(value, dict):
            yield f"{path} is no mapping"
            return
        for key, one in value.items():
            yield from problems(one, of_map[2], f"{path}.{key}")
    elif kind in PLAIN:
        if not isinstance(value, PLAIN[kind]):
            yield f"{path} is {value!r}, and no {kind}"
    elif (model := _model(kind)) is not None:
        yield from _fields(value, model, path)


def _fields(value: Any, model: Any, path: str) -> Iterator[str]:
    names = {shown: own for own, shown in model.attribute_map.items()}
    if not isinstance(value, dict):
        yield f"{path} is {value!r}, and no {model.__name__}"
        return
    for shown, one in value.items():
        if shown not in names:
            yield f"{path}.{shown} is no field of {model.__name__}"
        else:
            yield from problems(one, model.openapi_types[names[shown]], f"{path}.{shown}")


def _model(kind: str) -> Any:
    for package in (kserve.models, kserve, kubernetes.client.models):
        if (found := getattr(package, kind, None)) is not None and hasattr(found, "attribute_map"):
            return found
    return None  # such as an amount or a port by name, which may be text or a number


found = [
    sentence
    for one in json.load(sys.stdin)
    for sentence in problems(one, KINDS[one["kind"]], one["metadata"]["name"])
]
print(json.dumps(found))
