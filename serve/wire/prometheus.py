"""Prometheus' text format, of which only the series that are asked for are read.

Such a text may be long, with a series for each model, version and bucket of time, and it is read
every second while something else is measured. So lines of other names are passed over unread, and
names stay as they are written: `# TYPE` lines mean nothing here. Source: the format 0.0.4 of
https://prometheus.io/docs/instrumenting/exposition_formats/.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

_QUOTED = r'"[^"\\]*(?:\\.[^"\\]*)*"'
_LINE = re.compile(
    rf"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{{((?:[^\"}}]*{_QUOTED})*[^\"}}]*)\}})?"
    r"[ \t]+([^ \t]+)(?:[ \t]+-?\d+)?[ \t\r]*"
)
_LABEL = re.compile(rf"[ \t]*([a-zA-Z_][a-zA-Z0-9_]*)[ \t]*=[ \t]*({_QUOTED})[ \t]*(,|\Z)")
_ESCAPED = re.compile(r"\\(.)")
_PLAIN = {"n": "\n"}
_NONE: Mapping[str, str] = MappingProxyType({})


class MetricSample(NamedTuple):
    """One line: a number, and of what it is."""

    name: str
    labels: Mapping[str, str]
    value: float


def samples(
    text: str, names: Collection[str], *, having: Mapping[str, str] = _NONE
) -> Iterator[MetricSample]:
    """The samples of these names that have all labels of `having`.

    `ValueError` where the text is none of this format, or a line of these names cannot be read.
    """
    lines = text.split("\n")  # splitlines() also splits at what a label may hold
    _require_metrics(lines)
    starts, wanted = tuple(names), frozenset(names)
    parts = [f'{name}="{_escape(value)}"' for name, value in having.items()]
    for line in lines:
        if not line.startswith(starts) or not all(part in line for part in parts):
            continue
        name, labels, value = _read(line)
        if name in wanted and having.items() <= labels.items():
            yield MetricSample(name, labels, value)


def split(line: str) -> tuple[str, float]:
    """A line's series, its name and labels as they are written, and its number; `ValueError`.

    What a program of ours writes is not looked at any closer.
    """
    series, _, number = line.rpartition(" ")
    if series.endswith("}") or (series and not any(space in series for space in " \t")):
        return series, float(number)
    found = _LINE.fullmatch(line)
    if found is None:
        raise ValueError(f"not a line of metrics: {line[:200]!r}")
    name, labels, number = found.groups()
    return f"{name}{{{labels}}}" if labels else name, float(number)


def at_source(series: str, source: str) -> str:
    """A series with the label `source`: this one, or `ITS@SOURCE` where it names one itself."""
    head, found, own = series[:-2].rpartition('source="')
    if series.endswith('"}') and found and head[-1:] in ("{", ",") and '"' not in own:
        return f'{head}{found}{own}@{source}"}}'  # it is the last label, as we write them
    if series.endswith('"}') and 'source="' not in series:
        return f'{series[:-1]},source="{source}"}}'
    name, labels, _ = _read(f"{series} 0")
    own = labels.get("source", "")
    every = {**labels, "source": f"{own}@{source}" if own else source}
    written = ",".join(f'{key}="{_escape(text)}"' for key, text in every.items())
    return f"{name}{{{written}}}"


def _require_metrics(lines: list[str]) -> None:
    first = next((line for line in lines if line.strip()), "#")
    if not first.startswith("#") and not _LINE.fullmatch(first):
        raise ValueError(f"not a metrics text: {first[:80]!r}")


def _read(line: str) -> tuple[str, dict[str, str], float]:
    found = _LINE.fullmatch(line)
    if found is None:
        raise ValueError(f"not a line of metrics: {line[:200]!r}")
    name, labels, value = found.groups()
    return name, _labels(labels) if labels else {}, float(value)


def _labels(text: str) -> dict[str, str]:
    labels: dict[str, str] = {}
    at = 0
    while at < len(text) and (found := _LABEL.match(text, at)):
        name, quoted, _ = found.groups()
        value = quoted[1:-1]
        labels[name] = _ESCAPED.sub(_unescape, value) if "\\" in value else value
        at = found.end()
    if text[at:].strip():
        raise ValueError(f"not valid labels: {text[:200]!r}")
    return labels


def _unescape(found: "re.Match[str]") -> str:
    return _PLAIN.get(found[1], found[1])


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
