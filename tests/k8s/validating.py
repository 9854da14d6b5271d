"""Validate objects against the schemas of several versions of Kubernetes.

It is run by the Python of .venv-k8s, once for all objects, and imports nothing of ours:

    .venv-k8s/bin/python tests/k8s/validating.py < asked.json > told.json

asked: {"versions": ["1.31", …], "objects": […]}
told: for each object, for each version: "" (it is valid), what is wrong with it, or null (the
version has no such kind)

The kinds of Kubeflow's Trainer are the same in every version: their models are a package of Python.
"""

import functools
import json
import sys
from collections.abc import Iterator
from typing import Any

from kubeflow_trainer_api import models
from kubernetes_validate import utils

TRAINER = "trainer.kubeflow.org/v1alpha1"

# it reads all definitions of a version, 1 MB, for each object anew
utils.schema_contents = functools.cache(utils.schema_contents)
utils.all_versions = functools.cache(utils.all_versions)


def verdict(each: dict[str, Any], version: str) -> str | None:
    if each["apiVersion"] == TRAINER:
        return _trained(each)
    try:
        used = utils.validate(each, version, strict=True)
    except utils.SchemaNotFoundError:
        return None
    except utils.ValidationError as error:
        path = ".".join(map(str, error.path))
        return f"{path}: {error.message}"
    # it takes an older version where it lacks one
    return "" if used == version else f"kubernetes-validate knows no {version}, but {used}"


def _trained(each: dict[str, Any]) -> str | None:
    """What the model of a kind drops is no field of it."""
    model = getattr(models, f"TrainerV1alpha1{each['kind']}", None)
    if model is None:
        return None
    try:
        return ", ".join(dropped(each, model.from_dict(each).to_dict(), ""))
    except ValueError as error:
        return str(error)


def dropped(given: Any, kept: Any, path: str) -> Iterator[str]:
    if isinstance(given, dict) and isinstance(kept, dict):
        for name in given:
            yield from dropped(given[name], kept.get(name), f"{path}.{name}")
    elif isinstance(given, list) and isinstance(kept, list) and len(given) == len(kept):
        for index, value in enumerate(given):
            yield from dropped(value, kept[index], f"{path}[{index}]")
    elif given != kept:
        yield f"{path} is not known"


def main() -> None:
    asked = json.load(sys.stdin)
    told = [
        {version: verdict(each, version) for version in asked["versions"]}
        for each in asked["objects"]
    ]
    json.dump(told, sys.stdout)


if __name__ == "__main__":
    main()
