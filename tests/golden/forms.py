"""What programs read of Servegate, without the words for people: one text for each golden file.

    api.txt        the OpenAPI document of the admin API, without titles, descriptions and names
    metrics.txt    name, type and labels of every metric
    options.txt    every command with its arguments and options
    stored.json    what is kept: in the database, in manifests and in reports

Run this file to write them anew; each difference then belongs into the CHANGELOG.
"""

import asyncio
import collections.abc
import dataclasses
import enum
import inspect
import itertools
import json
import tempfile
import types
import typing
from pathlib import Path
from typing import Any

import click
import typer

from serve.admin.api.application import create
from serve.admin.api.features import FeatureWeb
from serve.app import tls
from serve.app.control import ControlPlane
from serve.app.metrics import families
from serve.app.worker import ProxyWorker
from serve.cli.main import app
from serve.control.added_cases import Added
from serve.control.batching.reconfiguration import Reconfiguration
from serve.control.deliveries.agents import Page
from serve.control.scaling.pools import PoolSettings
from serve.control.scaling.told import PoolNumbers
from serve.control.tries.records import Try
from serve.control.versions import PublishedVersion
from serve.core.flavours import Flavour
from serve.settings import Settings
from serve.tensors.preprocessing.steps import ImageSteps, TextSteps
from serve.tensors.signature import ModelSignature
from serve.tensors.skew import SkewReport
from serve.workbench.conversion import feature as conversion
from serve.workbench.conversion.gate.metric import Metric as Judgement
from serve.workbench.conversion.plans.arguments import Options
from serve.workbench.conversion.plans.facts import PlanFacts
from serve.workbench.conversion.queue.job import Job
from serve.workbench.conversion.report import ConversionReport
from serve.workbench.conversion.request import ConversionRequest
from serve.workbench.evaluation import feature as evaluation
from serve.workbench.evaluation.dataset import Dataset
from serve.workbench.evaluation.evaluation import Evaluation
from serve.workbench.loadtest import feature as loadtest

FOLDER = Path(__file__).parent
STORED = {
    "added golden case": Added,
    "batching configuration": Reconfiguration,
    "conversion": Job,
    "conversion report": ConversionReport,
    "conversion request": ConversionRequest,
    "dataset": Dataset,
    "delivery to agents": Page,
    "evaluation": Evaluation,
    "flavour": Flavour,
    "judgement by labels": Judgement,
    "pool": PoolSettings,
    "preprocessing of images": ImageSteps,
    "preprocessing of texts": TextSteps,
    "scaling hint": PoolNumbers,
    "signature": ModelSignature,
    "skew report": SkewReport,
    "TensorRT options": Options,
    "TensorRT plan": PlanFacts,
    "try": Try,
    "version": PublishedVersion,
}
_WORDS = {"title", "description", "summary", "operationId", "tags", "examples", "example"}


def texts() -> dict[str, str]:
    """Each golden file by its name."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(state=folder, triton=("one=127.0.0.1:1:2:3",), model_repo="")
        metrics = asyncio.run(_metrics(settings))
    return {
        "api.txt": _api(),
        "metrics.txt": metrics,
        "options.txt": _options(),
        "stored.json": _json({name: _stored(kind) for name, kind in STORED.items()}),
    }


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, sort_keys=True, default=str) + "\n"


def all_web() -> tuple[FeatureWeb, ...]:
    """The web parts of all features of the workbench, without the services that they work on."""
    none = typing.cast(Any, None)
    return conversion.web(), evaluation.web(none, none), loadtest.web()


def _api() -> str:
    control = types.SimpleNamespace(leads=None, features=all_web())
    document = create(typing.cast(Any, control), hosts=()).openapi()
    schemas = document["components"]["schemas"]

    def plain(value: Any, inside: tuple[str, ...] = (), *, is_names: bool = False) -> Any:
        if isinstance(value, list):
            return [plain(one, inside) for one in value]
        if not isinstance(value, dict):
            return value
        if "$ref" in value:
            name = value["$ref"].rpartition("/")[2]
            return "recursive" if name in inside else plain(schemas[name], (*inside, name))
        return {
            key: plain(one, inside, is_names=key == "properties")
            for key, one in value.items()
            if is_names or key not in _WORDS
        }

    lines, errors = [], set()
    for path, operations in plain(document["paths"]).items():
        for method, operation in operations.items():
            for status in [one for one in operation["responses"] if one >= "400"]:
                errors.add(_line(operation["responses"].pop(status)))
            lines.append(f"{method.upper()} {path} {_line(operation)}")
    lines += [f"error {one}" for one in errors]
    return "\n".join(sorted(lines)) + "\n"


def _line(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


async def _metrics(settings: Settings) -> str:
    registries = (ProxyWorker(settings, 0, secret="-").registry, ControlPlane(settings).registry)
    lines, known = set(), dict[str, tuple[str, ...]]()
    for registry in registries:
        for collector in registry._collector_to_names:
            if name := getattr(collector, "_name", ""):
                known[name] = collector._labelnames
    collected = itertools.chain(
        *(one.collect() for one in registries), families({}), tls.families()
    )
    for family in collected:
        labels = known.get(family.name) or getattr(family, "_labelnames", ())
        lines.add(f"{family.name} {family.type} {' '.join(labels)}".rstrip())
    return "\n".join(sorted(lines)) + "\n"


def _options() -> str:
    lines: list[str] = []

    def walk(command: click.Command, path: str) -> None:
        lines.append(path)
        for one in sorted(command.params, key=lambda one: one.name or ""):
            names = " ".join((*one.opts, *one.secondary_opts))
            several = " several" * (one.nargs != 1 or getattr(one, "multiple", False))
            needed = " required" * one.required
            value = "" if getattr(one, "is_flag", False) else " VALUE"
            lines.append(f"    {names}{value}{several}{needed}")
        for name, child in sorted(getattr(command, "commands", {}).items()):
            walk(child, f"{path} {name}")

    walk(typer.main.get_command(app), "servegate")
    return "\n".join(lines) + "\n"


def _stored(kind: type) -> Any:
    value = sample(kind)
    for method in ("to_body", "to_json", "body"):
        if hasattr(value, method):
            return getattr(value, method)()
    raise AssertionError(f"{kind} has no stored form")


def sample(kind: Any) -> Any:
    """A value of this type in which every optional part is there."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return sample(arguments[0])
    if origin is typing.Literal:
        return arguments[0]
    if origin is tuple:
        return tuple(sample(one) for one in arguments if one is not Ellipsis)
    if origin is frozenset:
        return frozenset({sample(arguments[0])})
    if origin in (list, collections.abc.Sequence):
        return [sample(arguments[0])]
    if origin in (dict, collections.abc.Mapping):
        return {sample(arguments[0]): sample(arguments[1])}
    if kind is typing.Any or not inspect.isclass(kind):
        return "any"
    if issubclass(kind, enum.Enum):
        return next(iter(kind))
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        names = [one.name for one in dataclasses.fields(kind) if one.init]
        return kind(**{name: sample(hints[name]) for name in names})
    if hasattr(kind, "_fields"):
        hints = typing.get_type_hints(kind)
        return kind(*(sample(hints[name]) for name in kind._fields))
    simple: dict[type, Any] = {bool: True, str: "a", int: 1, float: 1.0, bytes: b"a"}
    return simple.get(kind, "any")


if __name__ == "__main__":
    for file, text in texts().items():
        (FOLDER / file).write_text(text)
