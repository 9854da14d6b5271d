"""What people see: alerts, dashboards, and the pages that alerts lead to.

Expressions are read for their names alone: which metrics, chosen and grouped by which labels, and
which errors. What they compute is tried elsewhere, by Prometheus' own `promtool`.
"""

import re
from collections.abc import Iterator
from typing import Any

from k8s.facts.manifests import dig, each, label_of, mapping
from k8s.facts.world import World, rule

# Labels that Prometheus and its operator add to everything that they read.
ADDED = frozenset({"job", "instance", "namespace", "pod", "container", "service", "endpoint"})
_METRIC = re.compile(r"(?<![\w:])(?:servegate|nv|DCGM)_\w+(?![\w:])")
_RECORDED = re.compile(r"(?<![\w:])\w+:\w+:\w+(?![\w:])")
_CHOSEN = re.compile(r"([a-zA-Z_:][\w:]*)\s*\{([^}]*)\}")
_LABEL = re.compile(r"([a-zA-Z_]\w*)\s*(?:=~|!~|!=|=)(?=\s*\\?\")")
_GROUPED = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_VALUES = re.compile(r"label_values\(\s*([^,()]+?)(?:\{[^}]*\})?\s*,\s*(\w+)\s*\)")
_TOLD = re.compile(r"\$labels\.(\w+)|\{\{\s*(\w+)\s*\}\}")
_ERRORS = re.compile(r"\berror=~\"([^\"]+)\"")
_PAGE = re.compile(r"^(docs/[\w/-]+\.md)#([\w-]+)$")
# Errors of management calls that have Triton's statuses from 500 on, and are the caller's.
_MISTAKES = {"wrong_json", "fixed_setting", "model_control_off"}
_MISTAKES |= {"not_in_repository", "unreadable_configuration"}
_POD_LABEL = "__meta_kubernetes_pod_label_"


def expressions(world: World) -> Iterator[tuple[str, str]]:
    """Every expression of Prometheus' language, and where it stands."""
    for one in world.manifests.of("PrometheusRule"):
        for some in each(one, "spec.groups rules"):
            called = some.get("alert", some.get("record"))
            yield f"{label_of(one)} {called}", str(some.get("expr", ""))
    for where, part in _boards(world):
        for key in ("expr", "query", "definition"):
            if isinstance(held := part.get(key), str) and held != "prometheus":
                yield f"{where}.{key}", held
    for one in world.manifests.of("PrometheusAdapter"):
        for some in each(one, "rules.external"):
            for key in ("metricsQuery", "seriesQuery"):
                text = str(some.get(key, "")).replace("<<.LabelMatchers>>", "")
                yield f"{label_of(one)} {key}", text


@rule
def metrics_are_told(world: World) -> Iterator[str]:
    """An expression asks for metrics that there are, by labels that they have."""
    recorded = _recorded(world)
    for where, text in expressions(world):
        asked = (*_METRIC.findall(text), *_RECORDED.findall(text))
        known = {name: _labels(world, name, recorded) for name in asked}
        for name in (name for name, labels in known.items() if labels is None):
            yield f"{where} asks for {name}, which nobody tells"
        for name, chosen in _CHOSEN.findall(text):
            own = ADDED | (known.get(name) or frozenset())
            for label in set(_LABEL.findall(chosen)) - own if name in known else ():
                yield f"{where} chooses {name} by {label}"
        every = ADDED.union(*(labels or () for labels in known.values()))
        for label in _grouped(text) - every if asked else ():
            yield f"{where} groups by {label}"
        for name, label in _VALUES.findall(text):
            if _labels(world, name.strip(), recorded) is None:
                yield f"{where} lists values of {name}, which nobody tells"
            if label not in ADDED | (known.get(name.strip()) or frozenset()):
                yield f"{where} lists {label} of {name}, which it does not have"
        yield from _errors(world, where, text)
        if not (bare := _bare(text)) and not _VALUES.search(text):
            yield f"{where} asks for no metric: '{text}'"
        for name in bare - known.keys():
            if _OTHERS.fullmatch(name) is None:
                yield f"{where} asks for {name}, which nobody tells"


@rule
def alerts_lead_to_pages(world: World) -> Iterator[str]:
    """An alert leads to the heading of a page that is about it, and tells labels that it has."""
    recorded = _recorded(world)
    for one in world.manifests.of("PrometheusRule"):
        rules = [some for some in each(one, "spec.groups rules") if "record" not in some]
        own = [str(some.get("alert")) for some in rules]
        yield from (f"{label_of(one)} has {name} twice" for name in own if own.count(name) > 1)
        for some, alert in zip(rules, own, strict=True):
            where, text = f"{label_of(one)} {alert}", str(some.get("expr"))
            page = _PAGE.search(str(dig(some, "annotations.runbook_url") or ""))
            heading = page and world.program.find("page", f"{page[1]}#{page[2]}")
            if not heading or heading.strip("`") != alert:
                yield f"{where} leads to no heading of its own: {page and page[0]}"
            left = ADDED | _grouped(text)
            for name in _RECORDED.findall(text):
                left |= recorded.get(name, frozenset())
            for name, said in mapping(some.get("annotations")).items():
                for label in _told(said) - left:
                    yield f"{where} tells {label} in its {name}, by which it is not grouped"


@rule
def legends_tell_labels(world: World) -> Iterator[str]:
    """A legend of a dashboard tells labels that its expression is grouped by, or that it has."""
    for where, target in _boards(world):
        text = str(target.get("expr", ""))
        labels = ADDED | _grouped(text) | {"le"}
        for name in _METRIC.findall(text):
            labels |= _labels(world, name, {}) or frozenset()
        for label in _told(target.get("legendFormat", "")) - labels:
            yield f"{where} tells {label}, which is not in '{text}'"


@rule
def pools_are_a_label(world: World) -> Iterator[str]:
    """What a monitor makes of the label of the pods' pool is the label `pool` of the program."""
    key = re.sub(r"\W", "_", str(world.program.find("word", "pool label")))
    for monitor in world.manifests.of("PodMonitor"):
        for one in each(monitor, "spec.podMetricsEndpoints relabelings"):
            made = (one.get("sourceLabels"), one.get("targetLabel"))
            if made != ([_POD_LABEL + key], "pool"):
                yield f"{label_of(monitor)} makes {made[1]} of {made[0]}, and pods have {key}"


def _told(text: object) -> set[str]:
    return {one or other for one, other in _TOLD.findall(str(text))}


def _bare(text: str) -> set[str]:
    """The metrics of an expression: the names that are left when all else is taken away."""
    if text.startswith("label_values"):
        return set()
    rest = _FUNCTION.sub(" ", _NO_METRIC.sub(" ", text))
    return set(re.findall(r"[a-zA-Z_:][\w:]*", rest))


def _errors(world: World, where: str, text: str) -> Iterator[str]:
    """An expression that lists errors lists all that are not the caller's fault, and no others."""
    for listed in _ERRORS.findall(text) if "error" in text else ():
        codes = {one for one in listed.split("|") if one.islower()}
        ours = {
            name
            for name, status in world.program.facts.get("error", {}).items()
            if name not in _MISTAKES and (status == "429" or status.startswith("5"))
        }
        if codes != ours:
            yield f"{where} counts the errors {codes}, and ours are {ours}"


def _labels(world: World, name: str, recorded: dict[str, frozenset[str]]) -> frozenset[str] | None:
    if name in recorded:
        return recorded[name]
    if (found := world.program.find("metric", name)) is not None:
        return frozenset(found)
    if (found := world.program.find("triton metric", name)) is not None:
        return frozenset(found) | {"pool"}  # by relabelling, see `pools_are_a_label`
    return None


def _recorded(world: World) -> dict[str, frozenset[str]]:
    """What rules record, with the labels that are left of it."""
    return {
        str(some.get("record")): _grouped(str(some.get("expr")))
        for one in world.manifests.of("PrometheusRule")
        for some in each(one, "spec.groups rules")
        if "record" in some
    }


def _grouped(text: str) -> frozenset[str]:
    names = (one.strip() for some in _GROUPED.findall(text) for one in some.split(","))
    return frozenset(names) - {""}


def _boards(world: World) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every mapping inside a dashboard, and where it stands."""
    for one in world.manifests.of("ConfigMap"):
        for key, board in mapping(one.get("data")).items():
            if key.endswith(".json"):
                yield from _mappings(board, f"{label_of(one)} {key}")


def _mappings(value: Any, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(value, dict):
        yield path, value
        for key, held in value.items():
            yield from _mappings(held, f"{path}.{key}")
    elif isinstance(value, list):
        for index, held in enumerate(value):
            yield from _mappings(held, f"{path}[{index}]")


# What others tell, and what is no metric in an expression.
_OTHERS = re.compile(r"up|ALERTS|(?:kube|container)_\w+")
_FUNCTION = re.compile(r"[a-zA-Z_]\w*\s*(?=\()")
_NO_METRIC = re.compile(
    r"\"[^\"]*\"|\{[^}]*\}|\[[^\]]*\]|\$\w+"
    r"|\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)"
    r"|\b(?:and|or|unless|bool|offset)\b|(?<![\w:])[0-9][\w.-]*"
)
