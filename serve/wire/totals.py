"""Totals over processes that come and go: sums that never fall, for `rate()`.

Prometheus takes a counter that falls for one that began again at zero, and counts its whole value
as new. A plain sum over sources falls whenever one of them restarts, or does not answer in time,
while the others still have all of theirs: the graph would show a burst of calls that never were.
So the sum of a counter or histogram is

    what lives that are over had counted, when last seen
    + what each source has counted in its present life, when last seen

A life is told by whoever reads: for a worker its process id and start time, for a gateway the start
time of its first process. What was counted between the last look and the end of a life is lost. A
gauge is a fact of now: it is kept apart by the label `source`, and left out while its source does
not answer. So is whatever names a source itself: `worker-0` of `10.0.0.7` is `worker-0@10.0.0.7`.

Texts are long and read every second, so a series stays as it is written, name and labels in one:
all sources are the same program, which writes the same labels in the same order.
"""

from collections.abc import Collection, Hashable
from dataclasses import dataclass

from serve.wire.prometheus import at_source, split

Numbers = dict[str, dict[str, float]]  # by family, and by series as it is written


@dataclass(frozen=True, slots=True)
class SourceReading:
    """What one source said, in Prometheus' text format, and in which of its lives."""

    text: str
    life: Hashable = None


@dataclass(frozen=True, slots=True)
class _Told:
    """One reading, taken apart: HELP and TYPE by family, what is summed, and what is kept apart."""

    life: Hashable
    heads: dict[str, str]
    counts: Numbers
    apart: Numbers


class Totals:
    """The sums over all sources, from the first reading on."""

    def __init__(self) -> None:
        self._heads: dict[str, str] = {}
        self._over: Numbers = {}
        self._present: dict[str, _Told] = {}

    def __repr__(self) -> str:
        return f"<Totals of {sorted(self._present)}>"

    def take(self, source: str, reading: SourceReading, *, from_now: bool = False) -> None:
        """Take in what a source says; `ValueError` where that is no such text, and nothing changes.

        `from_now`: what a source that was never heard of has counted by now is not added.
        """
        told, before = _read(source, reading), self._present.get(source)
        for family, head in told.heads.items():
            self._heads.setdefault(family, head)
        if before is None and from_now:
            _add(self._over, told.counts, -1.0)
        elif before is not None and before.life != told.life:
            _add(self._over, before.counts)
        self._present[source] = told

    def forget(self, source: str) -> None:
        """It is gone for good: the sums keep what it has counted, and nothing else is kept."""
        if (told := self._present.pop(source, None)) is not None:
            _add(self._over, told.counts)

    def text(self, answering: Collection[str], *, without: Collection[str] = ()) -> str:
        """All sums, and what is kept apart of those that answer; `without` these families."""
        sums: Numbers = {family: {} for family in self._heads}
        _add(sums, self._over)
        for source, told in self._present.items():
            _add(sums, told.counts)
            if source in answering:
                _add(sums, told.apart)
        lines = []
        for family, head in self._heads.items():
            if family not in without:
                lines += [head] if head else []
                lines += [f"{series} {value!r}" for series, value in sums[family].items()]
        return "\n".join([*lines, ""])


def _read(source: str, reading: SourceReading) -> _Told:
    heads: dict[str, str] = {}
    counts: Numbers = {}
    apart: Numbers = {}
    family, is_gauge, about = "", False, ""
    for line in reading.text.split("\n"):  # splitlines() also splits at what a label may hold
        if line.startswith("# HELP "):
            about = line + "\n"
        elif line.startswith("# TYPE "):
            _, _, family, kind = line.split(" ", 3)
            heads[family] = (about if about.startswith(f"# HELP {family} ") else "") + line
            is_gauge = kind.strip() == "gauge"
        elif line and not line.startswith("#") and not line.isspace():
            series, value = split(line)
            if not family or not series.startswith(family):
                family, is_gauge = series.partition("{")[0].strip(), False
                heads.setdefault(family, "")
            if is_gauge or '{source="' in series or ',source="' in series:
                apart.setdefault(family, {})[at_source(series, source)] = value
            else:
                numbers = counts.setdefault(family, {})
                numbers[series] = numbers.get(series, 0.0) + value
    return _Told(reading.life, heads, counts, apart)


def _add(sums: Numbers, more: Numbers, times: float = 1.0) -> None:
    for family, numbers in more.items():
        kept = sums.setdefault(family, {})
        for series, value in numbers.items():
            kept[series] = kept.get(series, 0.0) + times * value
