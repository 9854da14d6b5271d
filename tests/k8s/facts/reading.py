"""The program, read: all of `program.py`, `running.py` and `asking.py`, and what pages say."""

import json
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import yaml
from k8s.facts import asking, program, running
from k8s.facts.manifests import Manifests, Object, dig, items, mapping
from k8s.facts.program import ROOT, Program, gathered
from k8s.facts.workloads import pods_of

import serve

_TRITON = re.compile(r"(nvcr\.io/nvidia/tritonserver):([\w.-]+)")
_PIPELINE = ROOT / "examples" / "kubeflow" / "components.py"  # it builds plans in the pool's image
_SECRETS = ROOT / "k8s" / "examples" / "secrets.yaml"
_PROBES = ("startupProbe", "livenessProbe", "readinessProbe")


def read_program(folder: Path, renderings: Collection[Manifests]) -> Program:
    """The program's facts; what can only be asked for by name is asked for all that they name."""
    names, paths, metadata = _asked(renderings)
    commands = tuple(program.commands())
    flags = [name for kind, name, _ in commands if kind == "flag"]
    return gathered(
        program.variables(names),
        commands,
        program.metrics(folder),
        program.triton(),
        program.words(),
        program.error_codes(),
        program.pages((ROOT / "docs").glob("*.md")),
        asking.discovery(),
        asking.keda(metadata),
        running.seen(folder, flags, paths),
        _tags(),
        _entries(),
    )


def unfolded(one: Object) -> Object:
    """A dashboard in a ConfigMap is JSON in a text: its values are values as well."""
    data = mapping(one.get("data"))
    if one.get("kind") != "ConfigMap" or not any(key.endswith(".json") for key in data):
        return one
    read = {key: json.loads(text) if key.endswith(".json") else text for key, text in data.items()}
    return {**one, "data": read}


def _tags() -> Iterator[tuple[str, str, Any]]:
    """The version of the package is the tag of our images; Triton's is that of the pipeline."""
    for name in ("servegate", "servegate-load", "servegate-converter"):
        yield "word", f"tag of {name}", serve.__version__
    name, tag = _TRITON.findall(_PIPELINE.read_text("utf-8"))[0]
    yield "word", "triton image", name
    yield "word", "tag of tritonserver", tag


def _entries() -> Iterator[tuple[str, str, Any]]:
    """The entries of Secrets, as the template and the heads of manifests have them."""
    for one in yaml.safe_load_all(_SECRETS.read_text("utf-8")):
        for entry in mapping(one.get("stringData")):
            yield "entry", f"{one['metadata']['name']} {entry}", "of the template"
    for file in sorted((ROOT / "k8s").rglob("*.yaml")):
        said = " ".join(re.findall(r"^# *(.*)", file.read_text("utf-8"), re.MULTILINE))
        for secret, entry in re.findall(r"Secret `([\w-]+)` with the entry `([\w.-]+)`", said):
            yield "entry", f"{secret} {entry}", file.name
        for entry, secret in re.findall(r"entry `([\w.-]+)` of the Secret `([\w-]+)`", said):
            yield "entry", f"{secret} {entry}", file.name


def _asked(renderings: Collection[Manifests]) -> tuple[set[str], set[str], set[str]]:
    """Every variable, path and entry of a trigger's metadata that manifests name."""
    names: set[str] = {entry.partition(" ")[2] for _, entry, _ in _entries()}
    paths = {"/metrics"}
    metadata: set[str] = {"key"}
    for one in renderings:
        for container in (each for pod in pods_of(one) for each in pod.containers):
            names.update(container.variables)
            asked = (dig(container.body, f"{probe}.httpGet.path") for probe in _PROBES)
            paths.update(str(path) for path in asked if path)
        for scaled in one.of("ScaledObject"):
            for trigger in items(dig(scaled, "spec.triggers")):
                metadata.update(mapping(trigger.get("metadata")))
    return names, paths, metadata
