"""What the program really has, as facts by kind and name.

| kind | name | value |
|---|---|---|
| variable | `SERVEGATE_CONTROL` | the setting, or empty |
| command | `load run` | the flags that have to be there |
| flag | `proxy --workers` | whether it takes a value |
| port | `control admin_port` | its number, and the setting of its address |
| path | `control admin_port /livez` | the status of a start without replicas |
| metric | `servegate_calls_total` | its labels |
| triton metric | `nv_inference_count` | its labels |
| triton flag | `--model-control-mode` | whether it takes a value |
| keda | `pool` | how a trigger's metadata changes the question |
| asks | `list endpointslices` | the API group |
| word | `pool label` | what discovery and `core/pods.py` go by |
| extra | `postgres` | of `pyproject.toml` |
| page | `docs/runbooks.md#replica-is-down` | its heading |
| entry | `servegate secret` | a Secret's entry, as docs/kubernetes.md makes it |

Ports, paths and questions are seen on the running program (`observed.py`), and
Triton's flags in its own `--help`.
"""

import asyncio
import dataclasses
import re
import subprocess
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import obstore.store
import typer
import yaml
from k8s.facts import observed
from k8s.facts.manifests import Manifests, dig, each, mapping
from k8s.facts.observed import Facts
from k8s.facts.workloads import pods_of
from obstore.exceptions import GenericError, UnknownConfigurationKeyError

import serve
from serve.app import tls
from serve.app.control import ControlPlane
from serve.app.metrics import families
from serve.app.worker import ProxyWorker
from serve.cli.credentials import VARIABLE
from serve.cli.main import app
from serve.core import errors, pods
from serve.settings import PREFIX, Settings
from serve.triton import metrics as triton_metrics
from serve.triton.installation import Installation, MachineFacts
from serve.trust import CACERT, CLIENT_CERT, CLIENT_KEY
from serve.wire.status import http_status

ROOT = Path(__file__).resolve().parents[3]
# Flags of Tritons after the one that is installed here, with the release that brought them.
NEWER_FLAGS = {"--allow-client-shm": ("boolean", "26.04")}
Kinds = Mapping[str, Mapping[str, Any]]
_TRITON = re.compile(r"(nvcr\.io/nvidia/tritonserver):([\w.-]+)")
_PIPELINE = ROOT / "examples" / "kubeflow" / "components.py"  # it builds plans in the pool's image
_SECRETS = ROOT / "k8s" / "examples" / "secrets.yaml"
_PROBES = ("startupProbe", "livenessProbe", "readinessProbe")


@dataclass(frozen=True, slots=True)
class Program:
    facts: Kinds

    def find(self, kind: str, name: str) -> Any:
        return self.facts.get(kind, {}).get(name)

    def names(self, kind: str, start: str = "") -> tuple[str, ...]:
        return tuple(name for name in self.facts.get(kind, {}) if name.startswith(start))


def read_program(folder: Path, renderings: Collection[Manifests]) -> Program:
    """The program's facts; what can only be asked for by name is asked for all that they name."""
    names, paths, metadata = _asked(renderings)
    known = tuple(commands())
    flags = [name for kind, name, _ in known if kind == "flag"]
    kinds: dict[str, dict[str, Any]] = {}
    for kind, name, value in chain(
        variables(names),
        known,
        metrics(folder),
        triton(),
        words(),
        error_codes(),
        pages((ROOT / "docs").glob("*.md")),
        observed.discovery(),
        observed.keda(metadata),
        observed.planes(folder, flags, paths),
        _tags(),
        _entries(),
    ):
        kinds.setdefault(kind, {})[name] = value
    return Program(kinds)


def commands() -> Facts:
    for path, command in _walk(typer.main.get_command(app), ()):
        name = " ".join(path)
        options: list[Any] = [one for one in command.params if one.param_type_name == "option"]
        required = frozenset(one.opts[0] for one in options if one.required)
        if not getattr(command, "commands", None):
            yield "command", name, required
        for option in options:
            for flag in (*option.opts, *option.secondary_opts):
                yield "flag", f"{name} {flag}", "no value" if option.is_flag else "a value"
            variables = option.envvar or ()
            for variable in [variables] if isinstance(variables, str) else variables:
                yield "variable", variable, ""


def variables(asked: Collection[str]) -> Facts:
    """Every setting's variable, those of commands, and of those asked what the storage reads."""
    for row in dataclasses.fields(Settings):
        yield "variable", PREFIX + row.name.upper(), row.name
    for name in (VARIABLE, CACERT, CLIENT_CERT, CLIENT_KEY):
        yield "variable", name, ""
    for name in asked:
        if name.startswith("AWS_") and _is_read_by_storage(name):
            yield "variable", name, ""


def metrics(folder: Path) -> Facts:
    """Every metric with its labels, as the metrics port and the admin port show them."""
    given = Settings(state=str(folder), triton=("one=127.0.0.1:1:2:3",), model_repo="")

    async def control() -> ControlPlane:
        return ControlPlane(given)  # gRPC asks for a loop, and other tests have ended theirs

    seen = (
        *ProxyWorker(given, 0, secret="-").registry.collect(),
        *asyncio.run(control()).registry.collect(),
        *families({}),
        *tls.families(),
    )
    for family in seen:
        labels = frozenset(getattr(family, "_labelnames", ()))
        if family.type == "counter":
            yield "metric", f"{family.name}_total", labels
        elif family.type == "histogram":
            for end, more in (("_bucket", {"le"}), ("_sum", set()), ("_count", set())):
                yield "metric", family.name + end, labels | more
        else:
            yield "metric", family.name, labels | {"source"}


def triton() -> Facts:
    """The flags of the Triton that is installed here, and the metrics that are read of it."""
    found = Installation.find(MachineFacts.here())
    told = subprocess.run(
        [str(found.binary), "--help"],
        env=found.environment({}),
        capture_output=True,
        text=True,
        timeout=60,
    )
    for flag, kind in re.findall(
        r"^\s*(--[a-z0-9-]+)(?: <([^>]+)>)?", told.stdout + told.stderr, re.MULTILINE
    ):
        yield "triton flag", flag, kind or "no value"
    for flag, (kind, _) in NEWER_FLAGS.items():
        yield "triton flag", flag, kind
    of_model = dict.fromkeys(triton_metrics._OF_MODEL, frozenset({"model", "version"}))
    of_gpu = dict.fromkeys(triton_metrics._OF_GPU, frozenset({"gpu_uuid"}))
    for name, labels in {**of_model, **of_gpu, triton_metrics._OF_MACHINE: frozenset()}.items():
        yield "triton metric", name, labels


def words() -> Facts:
    """What pods of ours have in common, and the extras of the package."""
    for key, value in pods.labels("-").items():
        yield "word", key, value
    pod, container = pods.pod(), pods.container_security()
    yield "word", "pod security", pod["securityContext"]
    yield "word", "container security", container
    yield "word", "user", pods.USER
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    for name in project["optional-dependencies"]:
        yield "extra", name, "an extra"
    yield "word", "entry point", next(iter(project["scripts"]))


def error_codes() -> Facts:
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, errors.ServegateError):
            yield "error", kind.code, str(http_status(kind.__new__(kind)))


def pages(files: Iterable[Path]) -> Facts:
    """The headings of documents, and the entries of Secrets that they say how to make."""
    for file in files:
        text = file.read_text("utf-8")
        name = str(file.relative_to(ROOT))
        for heading in re.findall(r"^#+ +(.+)$", text, re.MULTILINE):
            anchor = re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-")
            yield "page", f"{name}#{anchor}", heading
        joined = text.replace("\\\n", " ")
        for secret, rest in re.findall(r"create secret generic ([a-z-]+)(.*)", joined):
            for entry in re.findall(r"--from-(?:literal|file)=([\w.-]+)=", rest):
                yield "entry", f"{secret} {entry}", "made by the documents"


def _walk(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, command
    for name, child in getattr(command, "commands", {}).items():
        yield from _walk(child, (*path, name))


def _is_read_by_storage(name: str) -> bool:
    config: Any = {name: "eu-central-1"}
    try:
        obstore.store.S3Store("bucket", config=config)
    except UnknownConfigurationKeyError:
        return False
    except GenericError:
        pass  # it knows the key, and wants another one as well
    return True


def _tags() -> Facts:
    """The version of the package is the tag of our images; Triton's is that of the pipeline."""
    for name in ("servegate", "servegate-load", "servegate-converter"):
        yield "word", f"tag of {name}", serve.__version__
    name, tag = _TRITON.findall(_PIPELINE.read_text("utf-8"))[0]
    yield "word", "triton image", name
    yield "word", "tag of tritonserver", tag


def _entries() -> Facts:
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
        for container in (held for pod in pods_of(one) for held in pod.containers):
            names.update(container.variables)
            asked = (dig(container.body, f"{probe}.httpGet.path") for probe in _PROBES)
            paths.update(str(path) for path in asked if path)
        for scaled in one.of("ScaledObject"):
            for trigger in each(scaled, "spec.triggers"):
                metadata.update(mapping(trigger.get("metadata")))
    return names, paths, metadata
