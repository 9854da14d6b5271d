"""A conversion on the command line: it runs, tells its stages, and shows how right it is."""

import asyncio
import signal
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from serve.cli.output import say, table
from serve.cli.stages import OnEvent, stages
from serve.cli.talk import CommandTalk, JsonEvents
from serve.core.errors import GateRefused

if TYPE_CHECKING:
    from serve.workbench.conversion.limits import ConversionLimits
    from serve.workbench.conversion.report import ConversionReport, OutputError, StepResult
    from serve.workbench.conversion.request import ConversionRequest

STOPPED = "stopped; nothing was written"
_BLOCKS = " ▁▂▃▄▅▆▇█"


@contextmanager
def workplace(purpose: str) -> Iterator[Path]:
    """A folder of its own, gone at the end; SIGTERM ends the work as Ctrl-C does meanwhile."""
    from serve.workbench.conversion.temporary import temporary

    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with temporary(Path(tempfile.gettempdir()), f"servegate-{purpose}-") as folder:
            yield folder
    finally:
        signal.signal(signal.SIGTERM, before)


class Converting:
    """Conversions in a folder of their own, which is gone with them."""

    def __init__(self, talk: CommandTalk, limits: "ConversionLimits") -> None:
        self.talk = talk
        self._limits = limits

    def __repr__(self) -> str:
        return f"<Converting within {self._limits}>"

    def convert(
        self,
        request: "ConversionRequest",
        name: str,
        out: Path,
        *,
        version: int = 1,
        shown_out: str = "",
        loads: bool = True,
    ) -> "ConversionReport":
        """Convert, and write OUT/NAME. After a refusal the report is told before it is raised.

        `loads`: a Triton of this machine, if there is one, loads it before it is written.
        """
        from serve.workbench.conversion.entry import check_free, write_entry
        from serve.workbench.conversion.events import STAGES
        from serve.workbench.conversion.runner import convert
        from serve.workbench.conversion.triton_load import load as load_entry

        check_free(out / name, version)
        with workplace("convert") as folder:
            work, state, memory = folder / "work", folder / "triton", self._limits.memory
            tried: list[StepResult] = []
            with self._stages(work) as tell:

                def load(repository: Path) -> "StepResult":
                    tell({"type": "stage", "stage": "serving", "text": STAGES["serving"]})
                    tried.append(load_entry(repository, name, version, state=state, memory=memory))
                    return tried[0]

                report = asyncio.run(convert(request, work, limits=self._limits, on_event=tell))
                write_entry(
                    work,
                    report,
                    name=name,
                    out=out,
                    version=version,
                    shown_out=shown_out,
                    load=load if loads else None,
                )
            return replace(report, steps=(*report.steps, *tried))

    def verify(self, request: "ConversionRequest", model: Path) -> "ConversionReport":
        """Hold the model against its source, and write nothing."""
        from serve.workbench.conversion.runner import verify

        with workplace("verify") as folder:
            work = folder / "work"
            with self._stages(work) as tell:
                return asyncio.run(verify(request, model, work, limits=self._limits, on_event=tell))

    @contextmanager
    def _stages(self, work: Path) -> "Iterator[OnEvent]":
        """Tells the stages; after a refusal the report is told before that is raised."""
        from serve.workbench.conversion.runner import read_report

        try:
            with stages(self.talk) as tell:
                yield tell
        except GateRefused as error:
            report = read_report(work)
            show(self.talk, report)
            raise _advised(error, report) from error


def show(talk: CommandTalk, report: "ConversionReport", *, is_data: bool = True) -> None:
    """The steps of the gate, and how far each output is off: an event, or tables on stdout.

    Where they are not the command's data, lines on stderr stand for the tables.
    """
    from serve.workbench.conversion.events import visible

    steps = "\n".join(visible(f"  {step.step}: {step.summary}") for step in report.steps)
    talk.tell("report", "" if is_data else steps, report=report.to_json())
    if is_data and not isinstance(talk, JsonEvents):
        _steps(report)
        _outputs(report)
        for warning in report.warnings:
            say(visible(f"warning: {warning}"))


def _advised(error: GateRefused, report: "ConversionReport") -> GateRefused:
    """The refusal; where a file was held to FP32 that computes in less, with that as the advice."""
    computes = report.model.get("contents", {}).get("compute", {})
    kind = next((one for one in ("int8", "fp16") if computes.get(one)), "")
    if error.code != "numbers_differ" or not kind or report.request.precision != "fp32":
        return error
    hint = f"--precision {kind}, because the file computes in {kind}"
    return GateRefused(error.code, error.what, why=error.why, try_this=hint)


def _steps(report: "ConversionReport") -> None:
    table(
        ("STEP", "VERDICT", "DETAILS"),
        [
            (str(step.step), "passed" if step.passed else f"refused: {step.code}", step.summary)
            for step in report.steps
        ],
    )


def _outputs(report: "ConversionReport") -> None:
    from serve.workbench.conversion.report_page import factor, number, share

    several = sum(bool(step.outputs) for step in report.steps) > 1
    rows = [
        (
            f"{each.name} ({step.step})" if several else each.name,
            number(each.worst),
            number(each.relative),
            factor(each.excess),
            "" if each.top1 is None else share(each.top1),
            blocks(each),
        )
        for step in report.steps
        for each in step.outputs
    ]
    if rows:
        print()
        heads = ("LARGEST ERROR", "ERROR / SCALE", "ERROR / TOLERANCE", "SAME TOP-1", "HISTOGRAM")
        table(("OUTPUT", *heads), rows)


def blocks(error: "OutputError") -> str:
    """A histogram in one line: `1e-9 █▅▁ 1e-6`, from the smallest to the largest error."""
    counts = error.histogram
    places = [place for place, count in enumerate(counts) if count]
    if not places:
        return ""
    first, last = places[0], places[-1]
    low = f"1e{error.edges[first - 1]}" if first else "0"
    high = f"1e{error.edges[last]}" if last < len(error.edges) else "more"
    return f"{low} {_bars(counts[first : last + 1])} {high}"


def _bars(counts: Sequence[int]) -> str:
    most = max(counts)
    steps = len(_BLOCKS) - 1
    return "".join(_BLOCKS[-(-count * steps // most)] for count in counts)
