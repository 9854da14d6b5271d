"""The report of a conversion for people: one page that needs nothing else, and no script.

The verdict comes first, then the gate, then how far each output is off. Everything that comes from
the model or from people is escaped.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any

from serve.pages.frame import page, section
from serve.tensors.signature import DYNAMIC
from serve.workbench.conversion.gate.output_survey import LOG
from serve.workbench.conversion.gate.rules import rule_of, tolerance_of
from serve.workbench.conversion.report import ConversionReport, GateStep, OutputError, StepResult
from serve.workbench.conversion.report_charts import histogram_svg, times_svg
from serve.workbench.conversion.request import Precision

_MOST_OPERATORS = 40
_NOTE = (
    "The error is |converted − source|. The scale of an output is its root mean square. The limit "
    "is the smallest allowed error. It is larger for large values, and where the source itself is "
    "unstable."
)
_NOTE_LOG = f" “{LOG.strip()}” marks logarithms, which show errors of small probabilities."
_NAMES = {"bytes": "size", "ir_version": "IR version", "contents": "contents", "digest": "SHA-256"}
_INFINITE = 1e300  # as the gate writes it


def render_html(report: ConversionReport) -> str:
    """The whole page."""
    name = str(report.source.get("name", "")) or report.request.source
    title = f"Conversion of {name}"
    return page(
        title,
        (
            _verdict(report),
            _tiles(report),
            section("Gate", _steps(report.steps)),
            *(_outputs(report, step) for step in report.steps if step.outputs),
            section("Warnings", _list(report.warnings) if report.warnings else ""),
            section("Source and model", _sides(report)),
            section("Time and memory", _stages(report)),
            section("Command", f"<pre>{escape(report.command)}</pre>"),
            section("Package versions", _facts(report.versions)),
        ),
    )


def _verdict(report: ConversionReport) -> str:
    if report.passed and report.unverified:
        return (
            '<div class="verdict bad"><strong>Not verified.</strong> The request accepts an'
            f" unverified model.<p>{escape(report.unverified)}</p></div>"
        )
    if report.passed:
        batches = "Requests can be batched" if report.is_batched else "Requests are not batched"
        why = (
            ""
            if report.is_batched
            else ", because rows depend on each other or have no free dimension"
        )
        return (
            '<div class="verdict"><strong class="good">Passed.</strong>'
            "<p>The converted model gives the same results as its source."
            f" {batches}{why}.</p></div>"
        )
    refused = next(step for step in report.steps if not step.passed)
    return (
        '<div class="verdict bad"><strong>Refused.</strong> Nothing was published.'
        f"<p>{escape(str(refused.step))}: {escape(refused.summary)} "
        f"<code>{escape(refused.code)}</code></p></div>"
    )


def _tiles(report: ConversionReport) -> str:
    """What people ask first, in a few words each."""
    before, after = report.source.get("bytes"), report.model.get("bytes")
    sizes = " → ".join(_size(each) for each in (before, after) if isinstance(each, int))
    outputs = [each for step in report.steps for each in step.outputs]
    worst = max((each.relative for each in outputs), default=None)
    tiles = {
        "Precision": str(report.request.precision).upper(),
        "Largest error / scale": "" if worst is None else number(worst),
        "Accuracy": _right(report),
        "Size": sizes,
        "Time": f"{sum(stage.seconds for stage in report.stages):.1f} s",
        "Peak memory": _size(report.peak_memory),
    }
    shown = (
        f"<div><dt>{escape(name)}</dt><dd>{escape(text)}</dd></div>"
        for name, text in tiles.items()
        if text
    )
    return f'<dl class="tiles">{"".join(shown)}</dl>'


def _right(report: ConversionReport) -> str:
    """Of the labelled rows, before and after."""
    for step in report.steps:
        metric = step.facts.get("metric")
        if isinstance(metric, Mapping) and metric.get("rows"):
            shares = (metric[f"right {when}"] / metric["rows"] for when in ("before", "after"))
            return " → ".join(dict.fromkeys(map(share, shares)))  # once, where nothing changed
    return ""


def _steps(steps: Sequence[StepResult]) -> str:
    rows = (
        (
            escape(str(step.step)),
            '<span class="good">✓ passed</span>'
            if step.passed
            else f'<span class="bad">✗ refused</span> <code>{escape(step.code)}</code>',
            escape(step.summary),
        )
        for step in steps
    )
    return _table(("Step", "Verdict", "Result"), rows)


# --- how far outputs are off ---------------------------------------------------------------------


def _outputs(report: ConversionReport, step: StepResult) -> str:
    figures = "".join(_figure(each, limit_of(report, each)) for each in step.outputs)
    logs = any(each.name.endswith(LOG) for each in step.outputs)
    note = f"{_NOTE}{_NOTE_LOG if logs else ''}"
    title = "Error of each output"
    title += "" if step.step is GateStep.NUMBERS else f": {step.step}"
    return section(title, f'{figures}<p class="soft">{note}</p>')


def _figure(error: OutputError, limit: float | None) -> str:
    numbers = {
        "largest error": number(error.worst),
        "relative to scale": f"{number(error.relative)} of {number(error.scale)}",
        "relative to limit": factor(error.excess),
        "mean error": number(error.mean),
        "same top-1": "" if error.top1 is None else share(error.top1),
        "elements": f"{error.elements:,}",
    }
    told = "".join(
        f"<div><dt>{name}</dt><dd>{escape(text)}</dd></div>"
        for name, text in numbers.items()
        if text
    )
    return (
        f"<figure><h3><code>{escape(error.name)}</code></h3>"
        f'<dl class="numbers">{told}</dl>{histogram_svg(error, limit)}</figure>'
    )


def limit_of(report: ConversionReport, error: OutputError) -> float | None:
    """How much of its scale an element may be off at least; None where it may not be at all."""
    if not error.scale:
        return None
    said = tolerance_of(report.request, error.name).atol
    if said is not None:
        return said / error.scale
    facts = [step.facts for step in report.steps if step.step is GateStep.DETERMINISM]
    own = next((str(each["arithmetic"]) for each in facts if "arithmetic" in each), "")
    precisions = {report.request.precision, *(one for one in Precision if one == own)}
    return rule_of(*precisions).relative


def number(value: float) -> str:
    """Three digits: `1.23e-06`."""
    return "infinite" if value >= _INFINITE else f"{value:.3g}"


def factor(value: float) -> str:
    """Of what is allowed: `0.74 %`, `81 %`, and `48,300 times` where it is much more."""
    if value < 10:
        return f"{value * 100:.2g} %" if value < 0.01 else f"{value * 100:.0f} %"
    return f"{float(f'{value:.3g}'):,.0f} times" if value < 1e9 else "over 10⁹ times"


def share(value: float) -> str:
    """`99.95 %`; 100 % only for all."""
    text = f"{value * 100:.2f}".rstrip("0").rstrip(".")
    return "99.99 %" if text == "100" and value < 1 else f"{text} %"


# --- facts ---------------------------------------------------------------------------------------


def _sides(report: ConversionReport) -> str:
    """Facts of both, side by side; what only one has is there as well."""
    names = dict.fromkeys((*report.source, *report.model))
    rows = (
        (
            escape(_NAMES.get(name, str(name))),
            _value(name, report.source.get(name, "")),
            _value(name, report.model.get(name, "")),
        )
        for name in names
    )
    return _table(("", "Source", "Model"), rows)


def _stages(report: ConversionReport) -> str:
    total = sum(each.seconds for each in report.stages)
    told = f"<p>{total:.1f} s; peak memory {_size(report.peak_memory)}.</p>"
    return told + times_svg(report.stages, [each.name for each in report.stages])


def _facts(facts: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{escape(str(name))}&nbsp;{escape(str(each))}" for name, each in facts.items()
    )


def _value(name: str, value: Any) -> str:
    """A fact in a cell; tensors by name, type and shape."""
    if name == "bytes" and isinstance(value, int):
        return f'{_size(value)} <span class="soft">({value:,} bytes)</span>'
    if name == "digest":
        return f"<code>{escape(str(value))}</code>"
    if isinstance(value, Mapping):
        return escape(", ".join(_words(value)))
    if isinstance(value, list | tuple):
        return "<br>".join(escape(_plain(each)) for each in value[:_MOST_OPERATORS])
    return escape(_plain(value))


def _words(facts: Mapping[str, Any]) -> Iterator[str]:
    """`compute int8 3`; what is zero is left out."""
    for name, value in list(facts.items())[:_MOST_OPERATORS]:
        told = ", ".join(_words(value)) if isinstance(value, Mapping) else str(value)
        if value:
            yield f"{str(name).replace('_', ' ')} {told}"


def _plain(value: Any) -> str:
    if isinstance(value, Mapping) and {"name", "datatype", "shape"} <= value.keys():
        return f"{value['name']}: {value['datatype']} {_shape(value['shape'])}"
    return str(value)


def _shape(shape: Any) -> str:
    """`[batch, 8, 8, 1]`."""
    if not isinstance(shape, list | tuple):
        return "any shape"
    first = ("batch" if each == DYNAMIC else str(each) for each in shape[:1])
    return f"[{', '.join((*first, *('any' if e == DYNAMIC else str(e) for e in shape[1:])))}]"


def _size(count: int) -> str:
    """`944 MB` with a space that does not break, in steps of a thousand."""
    scaled, unit = float(count), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if scaled < 1000:
            break
        scaled, unit = scaled / 1000, larger
    return f"{scaled:.3g}\N{NO-BREAK SPACE}{unit}"


def _list(words: Iterable[str]) -> str:
    return "<ul>" + "".join(f"<li>{escape(word)}</li>" for word in words) + "</ul>"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Cells are HTML already."""
    head = "".join(f"<th>{escape(each)}</th>" for each in heads)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    shown = f"<thead><tr>{head}</tr></thead>" if any(heads) else ""
    return f'<div class="table"><table>{shown}<tbody>{body}</tbody></table></div>'
