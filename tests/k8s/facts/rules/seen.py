"""What people see: alerts, dashboards, and the pages that alerts lead to.

Expressions are read for their names alone: which metrics, chosen and grouped by which labels, and
which errors. What they compute is tried elsewhere, by Prometheus' own `promtool`.
"""

import re
from collections.abc import Iterator
from typing import Any

from k8s.facts.manifests import dig, items, mapping, name_of
from k8s.facts.world import World

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
MISTAKES = frozenset(
    {
        *("wrong_json", "fixed_setting", "model_control_off"),
        *("not_in_repository", "unreadable_configuration"),
    }
)
"""Errors of management calls that have Triton's statuses from 500 on, and are the caller's."""
_POD_LABEL = "__meta_kubernetes_pod_label_"
_PLACES = ("expr", "query", "definition")


def expressions(world: World) -> Iterator[tuple[str, str]]:
    """Every expression of Prometheus' language, and where it stands."""
    for one in world.manifests.of("PrometheusRule"):
        for rule in _rules(one):
            called = rule.get("alert", rule.get("record"))
            yield f"PrometheusRule/{name_of(one)} {called}", str(rule.get("expr", ""))
    for one in world.manifests.of("ConfigMap"):
        for key, board in mapping(one.get("data")).items():
            if key.endswith(".json"):
                for path, query in _queries(board, key):
                    yield f"ConfigMap/{name_of(one)} {path}", query
    for one in world.manifests.of("PrometheusAdapter"):
        for rule in items(dig(one, "rules.external")):
            for key in ("metricsQuery", "seriesQuery"):
                text = str(rule.get(key, "")).replace("<<.LabelMatchers>>", "")
                yield f"PrometheusAdapter/{name_of(one)} {key}", text


def metrics_are_told(world: World) -> Iterator[str]:
    """An expression asks for metrics that there are, by labels that they have."""
    recorded = _recorded(world)
    for where, text in expressions(world):
        asked = (*_METRIC.findall(text), *_RECORDED.findall(text))
        known = {name: _labels(world, name, recorded) for name in asked}
        yield from (
            f"{where} asks for {n}, which nobody tells"
            for n, labels in known.items()
            if labels is None
        )
        every = ADDED.union(*(labels or () for labels in known.values()))
        for name, chosen in _CHOSEN.findall(text):
            own = ADDED | (known.get(name) or frozenset())
            if name not in known:
                continue
            yield from (
                f"{where} chooses {name} by {one}"
                for one in _LABEL.findall(chosen)
                if one not in own
            )
        yield from (
            f"{where} groups by {one}" for one in _grouped(text) if asked and one not in every
        )
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


def alerts_lead_to_pages(world: World) -> Iterator[str]:
    """An alert leads to the heading of a page that is about it, and tells labels that it has."""
    recorded = _recorded(world)
    for one in world.manifests.of("PrometheusRule"):
        own = [str(rule["alert"]) for rule in _rules(one) if "alert" in rule]
        yield from (f"PrometheusRule/{name_of(one)} has {n} twice" for n in own if own.count(n) > 1)
        for rule in _rules(one):
            if "record" in rule:
                continue
            alert = str(rule.get("alert"))
            where = f"PrometheusRule/{name_of(one)} {alert}"
            page = _PAGE.search(str(dig(rule, "annotations.runbook_url") or ""))
            heading = page and world.program.find("page", f"{page[1]}#{page[2]}")
            if not heading or heading.strip("`") != alert:
                yield f"{where} leads to no heading of its own: {page and page[0]}"
            text = str(rule.get("expr"))
            left = ADDED | _grouped(text)
            for name in _RECORDED.findall(text):
                left |= recorded.get(name, frozenset())
            for name, text in mapping(rule.get("annotations")).items():
                for found in _TOLD.findall(str(text)):
                    if (label := found[0] or found[1]) not in left:
                        yield f"{where} tells {label} in its {name}, by which it is not grouped"


def legends_tell_labels(world: World) -> Iterator[str]:
    """A legend of a dashboard tells labels that its expression is grouped by, or that it has."""
    for one in world.manifests.of("ConfigMap"):
        for key, board in mapping(one.get("data")).items():
            for target in _targets(board) if key.endswith(".json") else ():
                text = str(target.get("expr", ""))
                labels = ADDED | _grouped(text) | {"le"}
                for name in _METRIC.findall(text):
                    labels |= _labels(world, name, {}) or frozenset()
                for found in _TOLD.findall(str(target.get("legendFormat", ""))):
                    if (label := found[0] or found[1]) not in labels:
                        yield f"ConfigMap/{name_of(one)} tells {label}, which is not in '{text}'"


def pools_are_a_label(world: World) -> Iterator[str]:
    """What a monitor makes of the label of the pods' pool is the label `pool` of the program."""
    key = re.sub(r"\W", "_", str(world.program.find("word", "pool label")))
    for monitor in world.manifests.of("PodMonitor"):
        where = f"PodMonitor/{name_of(monitor)}"
        for end in items(dig(monitor, "spec.podMetricsEndpoints")):
            for one in items(end.get("relabelings")):
                if one.get("sourceLabels") != [_POD_LABEL + key]:
                    yield f"{where} takes {one.get('sourceLabels')}, and pods have {key}"
                if one.get("targetLabel") != "pool":
                    yield f"{where} calls the pool {one.get('targetLabel')}"


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
            if name not in MISTAKES and (status == "429" or status.startswith("5"))
        }
        yield from (
            f"{where} counts the error {one}, which is none of ours" for one in codes - ours
        )
        yield from (f"{where} does not count the error {one}" for one in sorted(ours - codes))


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
        str(rule.get("record")): _grouped(str(rule.get("expr")))
        for one in world.manifests.of("PrometheusRule")
        for rule in _rules(one)
        if "record" in rule
    }


def _grouped(text: str) -> frozenset[str]:
    return frozenset(one.strip() for some in _GROUPED.findall(text) for one in some.split(",")) - {
        ""
    }


def _rules(one: Any) -> list[dict[str, Any]]:
    return [rule for group in items(dig(one, "spec.groups")) for rule in items(group.get("rules"))]


def _queries(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, held in value.items():
            if key in _PLACES and isinstance(held, str) and held != "prometheus":
                yield f"{path}.{key}", held
            else:
                yield from _queries(held, f"{path}.{key}")
    elif isinstance(value, list):
        for index, held in enumerate(value):
            yield from _queries(held, f"{path}[{index}]")


def _targets(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        if "expr" in value:
            yield value
        for held in value.values():
            yield from _targets(held)
    elif isinstance(value, list):
        for held in value:
            yield from _targets(held)


# What others tell, and what is no metric in an expression.
_OTHERS = re.compile(r"up|ALERTS|(?:kube|container)_\w+")
_FUNCTION = re.compile(r"[a-zA-Z_]\w*\s*(?=\()")
_NO_METRIC = re.compile(
    r"\"[^\"]*\"|\{[^}]*\}|\[[^\]]*\]|\$\w+"
    r"|\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)"
    r"|\b(?:and|or|unless|bool|offset)\b|(?<![\w:])[0-9][\w.-]*"
)
RULES = (metrics_are_told, alerts_lead_to_pages, legends_tell_labels, pools_are_a_label)
