"""Pods as their containers will see them: words, variables, ports, probes, mounts.

A variable's value comes from where Kubernetes takes it: the container, a ConfigMap or a Secret.
What a Secret holds is not in any manifest; such a value is a stand-in that the program takes.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from k8s.facts.manifests import Manifests, Object, dig, items, label_of, mapping, name_of

SERVEGATE, CONVERTER, TRITON = "servegate", "servegate-converter", "tritonserver"
_WITH_PODS = ("Deployment", "Job", "ServingRuntime")
_OF_JOB = "batch.kubernetes.io/job-name"  # Kubernetes adds it
_OF_KSERVE = "serving.kserve.io/inferenceservice"  # KServe adds it
_STAND_INS = {
    "SERVEGATE_SECRET": "a-secret-of-two-and-thirty-signs",
    "SERVEGATE_DATABASE": "postgresql://servegate@postgresql/servegate",
}


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable; `source` says where a value comes from that is not written beside it."""

    name: str
    value: str
    source: str = ""


@dataclass(frozen=True, slots=True)
class Container:
    """One container. `words` are those behind the program's own name."""

    pod: "Pod"
    body: Mapping[str, Any]
    image: str  # without registry and tag
    words: tuple[str, ...]
    variables: Mapping[str, Variable]
    missing: tuple[str, ...]  # what its variables refer to and is not there

    def __str__(self) -> str:
        return f"{self.pod.where} container {self.name}"

    @property
    def name(self) -> str:
        return str(self.body.get("name", ""))

    @property
    def command(self) -> str:
        """`proxy`, `load run`: the words before the first that is a flag or an argument."""
        return " ".join(takewhile(re.compile(r"[^-/$][^/$]*").fullmatch, self.words))

    @property
    def flags(self) -> tuple[tuple[str, str], ...]:
        """In their order; the value of a flag is behind its `=`, or the word behind it."""
        found = []
        for word, behind in zip(self.words, (*self.words[1:], "-"), strict=False):
            flag, equals, value = word.partition("=")
            if word.startswith("-") and word != "--":
                found.append((flag, value if equals or behind.startswith("-") else behind))
        return tuple(found)

    def flag(self, name: str) -> str | None:
        return dict(self.flags).get(name)

    @property
    def ports(self) -> dict[str, int]:
        return {
            str(one.get("name")): one["containerPort"]
            for one in items(self.body.get("ports"))
            if isinstance(one.get("containerPort"), int)
        }

    @property
    def mounts(self) -> tuple[dict[str, Any], ...]:
        return tuple(items(self.body.get("volumeMounts")))

    def volume_of(self, path: str) -> dict[str, Any] | None:
        """The volume on which a path is, and where it is mounted; None where there is none."""
        best: dict[str, Any] | None = None
        for mount in self.mounts:
            where = str(mount.get("mountPath", "?")).rstrip("/")
            is_inside = f"{path}/".startswith(f"{where}/")
            if is_inside and (best is None or len(where) > len(best["mountPath"])):
                best = {"mountPath": where, **self.pod.volume(str(mount.get("name")))}
        return best

    def expanded(self, text: str) -> str:
        """A text with `$(NAME)` replaced, as Kubernetes does."""
        for name, variable in self.variables.items() if "$(" in text else ():
            text = text.replace(f"$({name})", variable.value)
        return text


@dataclass(frozen=True, slots=True)
class Pod:
    where: str
    kind: str
    namespace: str
    labels: Mapping[str, str]
    spec: Mapping[str, Any]
    containers: list[Container] = field(default_factory=list)

    def volume(self, name: str) -> dict[str, Any]:
        found = (one for one in items(self.spec.get("volumes")) if one.get("name") == name)
        return next(found, {})

    def listens_on(self, port: object) -> int | None:
        """The number of a port that one of the containers names, by name or number."""
        for container in self.containers:
            for name, number in container.ports.items():
                if port in (name, number):
                    return number
            heard = (container.flag("--listen") or "").rpartition(":")[2]
            if heard.isdigit() and port == int(heard):
                return int(heard)
        return None

    def matches(self, selector: Mapping[str, Any]) -> bool:
        """Whether a label selector, or the plain one of a Service, selects them."""
        plain = mapping(selector.get("matchLabels")) if _is_long(selector) else selector
        wanted = all(self.labels.get(key) == value for key, value in plain.items())
        further = items(selector.get("matchExpressions")) if _is_long(selector) else ()
        return wanted and all(_fits(self.labels, one) for one in further)


def pods_of(manifests: Manifests) -> tuple[Pod, ...]:
    unknown = ("StatefulSet", "DaemonSet", "ReplicaSet", "CronJob", "Pod")
    assert not list(manifests.of(*unknown)), "the rules do not look into pods of this kind"
    return tuple(_pod(manifests, one) for one in manifests.of(*_WITH_PODS))


def _pod(manifests: Manifests, one: Object) -> Pod:
    kind = str(one.get("kind"))
    template = mapping(dig(one, "spec.template"))
    labels, spec = mapping(dig(template, "metadata.labels")), mapping(template.get("spec"))
    if kind == "ServingRuntime":
        labels, spec = _of_kserve(manifests, one)
    own = {_OF_JOB: name_of(one)} if kind == "Job" else {}
    namespace = str(dig(one, "metadata.namespace") or "")
    pod = Pod(label_of(one), kind, namespace, {**labels, **own}, spec)
    for body in (*items(spec.get("initContainers")), *items(spec.get("containers"))):
        pod.containers.append(_container(manifests, pod, body))
    return pod


def _of_kserve(manifests: Manifests, runtime: Object) -> tuple[dict[str, Any], dict[str, Any]]:
    """Labels and specification of the pods that KServe makes of a runtime and who uses it."""
    labels, spec = mapping(dig(runtime, "spec.labels")), mapping(runtime.get("spec"))
    for one in manifests.of("InferenceService"):
        predictor = mapping(dig(one, "spec.predictor"))
        if dig(predictor, "model.runtime") == name_of(runtime):
            labels = {**labels, _OF_KSERVE: name_of(one)}
            spec = {**spec, **predictor}
    return labels, spec


def _container(manifests: Manifests, pod: Pod, body: dict[str, Any]) -> Container:
    image = str(body.get("image", "")).partition("@")[0].rpartition("/")[2].partition(":")[0]
    words = [str(one) for key in ("command", "args") for one in body.get(key) or ()]
    for own in (SERVEGATE, TRITON):
        if own in words:
            words = words[words.index(own) + 1 :]
    missing: list[str] = []
    variables = {one.name: one for one in _variables(manifests, body, missing)}
    return Container(pod, body, image, tuple(words), variables, tuple(missing))


def _variables(
    manifests: Manifests, body: dict[str, Any], missing: list[str]
) -> Iterator[Variable]:
    for source in items(body.get("envFrom")):
        if name := dig(source, "configMapRef.name"):
            found = manifests.named("ConfigMap", str(name))
            if found is None:
                missing.append(f"ConfigMap/{name}")
            for key, value in mapping((found or {}).get("data")).items():
                yield Variable(str(key), str(value))
    for one in items(body.get("env")):
        name = str(one.get("name", ""))
        if "value" in one:
            yield Variable(name, str(one["value"]))
        elif secret := dig(one, "valueFrom.secretKeyRef"):
            entry = f"Secret/{secret.get('name')} {secret.get('key')}"
            yield Variable(name, _STAND_INS.get(name, "secret"), entry)
        elif of_map := dig(one, "valueFrom.configMapKeyRef"):
            found = manifests.named("ConfigMap", str(of_map.get("name")))
            value = mapping((found or {}).get("data")).get(of_map.get("key"))
            if value is None:
                missing.append(f"ConfigMap/{of_map.get('name')} {of_map.get('key')}")
            yield Variable(name, str(value or ""))
        elif path := dig(one, "valueFrom.fieldRef.fieldPath"):
            yield Variable(name, "pod-0", f"field {path}")
        else:
            yield Variable(name, "")


def _is_long(selector: Mapping[str, Any]) -> bool:
    return not selector or bool(selector.keys() & {"matchLabels", "matchExpressions"})


def _fits(labels: Mapping[str, str], one: Mapping[str, Any]) -> bool:
    held, values = labels.get(str(one.get("key"))), one.get("values") or []
    match one.get("operator"):
        case "In":
            return held in values
        case "NotIn":
            return held not in values
        case "Exists":
            return held is not None
        case "DoesNotExist":
            return held is None
    return False
