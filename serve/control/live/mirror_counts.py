"""What came of the copies that a mirror sends to a candidate, since the data plane started."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from serve.wire.prometheus import samples

_COPIES, _DROPS = "servegate_mirrored_calls_total", "servegate_mirror_drops_total"
_SECONDS, _COUNT = (f"servegate_mirrored_call_seconds_{part}" for part in ("sum", "count"))
_COMPARISONS, _ROWS = "servegate_mirror_comparisons_total", "servegate_mirror_rows_total"


@dataclass(frozen=True, slots=True)
class OutputAgreementCounts:
    """Rows of one output; `differing` is the share that differs, None without any row."""

    agrees: int
    differs: int

    @property
    def differing(self) -> float | None:
        """From 0 to 1."""
        total = self.agrees + self.differs
        return self.differs / total if total else None


@dataclass(frozen=True, slots=True)
class MirrorCounts:
    """The copies of a model's calls to `version`, counted since the data plane started.

    `copies` are by status or error code, `dropped` by reason, `comparisons` by outcome. `seconds`
    is the mean time of a copy, None without any.
    """

    version: int
    copies: Mapping[str, int] = field(default_factory=dict)
    seconds: float | None = None
    dropped: Mapping[str, int] = field(default_factory=dict)
    comparisons: Mapping[str, int] = field(default_factory=dict)
    outputs: Mapping[str, OutputAgreementCounts] = field(default_factory=dict)


def read_mirror_counts(text: str, model: str, version: int) -> MirrorCounts:
    """Out of the text of the metrics port; `ValueError` where it is none."""
    copies, dropped, comparisons = dict[str, int](), dict[str, int](), dict[str, int]()
    rows: dict[str, dict[str, int]] = {}
    times = {_SECONDS: 0.0, _COUNT: 0.0}
    by_label = {
        _COPIES: (copies, "code"),
        _DROPS: (dropped, "reason"),
        _COMPARISONS: (comparisons, "outcome"),
    }
    for name, labels, value in samples(text, (*by_label, *times, _ROWS)):
        if (labels["model"], labels["version"]) != (model, str(version)):
            continue
        if name in times:
            times[name] += value
        elif name == _ROWS:
            of_output = rows.setdefault(labels["output"], {"agrees": 0, "differs": 0})
            of_output[labels["verdict"]] += int(value)
        else:
            found, label = by_label[name]
            found[labels[label]] = found.get(labels[label], 0) + int(value)
    return MirrorCounts(
        version,
        dict(sorted(copies.items())),
        times[_SECONDS] / times[_COUNT] if times[_COUNT] else None,
        dict(sorted(dropped.items())),
        dict(sorted(comparisons.items())),
        {name: OutputAgreementCounts(**counts) for name, counts in sorted(rows.items())},
    )
