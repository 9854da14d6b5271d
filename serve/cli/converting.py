"""A conversion on the command line: it runs, tells its stages, and shows how right it is."""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from serve.cli.output import table
from serve.cli.stages import OnEvent, stages
from serve.cli.talk import Events, Talk
from serve.core.errors import GateRefused

if TYPE_CHECKING:
    from serve.conversion.events import OnEvent
    from serve.conversion.limits import Limits
    from serve.conversion.report import OutputError, Report
    from serve.conversion.request import Request

STOPPED = "stopped; nothing is left behind"
_BLOCKS = " ▁▂▃▄▅▆▇█"


class Converting:
    """Conversions in a folder of their own, which is gone with them."""

    def __init__(self, talk: Talk, limits: "Limits") -> None:
        self.talk = talk
        self._limits = limits

    def __repr__(self) -> str:
        return f"<Converting within {self._limits}>"

    def convert(
        self, request: "Request", name: str, out: Path, *, version: int = 1, shown_out: str = ""
    ) -> "Report":
        """Convert, and write OUT/NAME. After a refusal the report is told before it is raised."""
        from serve.conversion.entry import check_free, write_entry
        from serve.conversion.running import convert

        check_free(out / name, version)
        with tempfile.TemporaryDirectory(prefix="servegate-convert-") as folder:
            work = Path(folder) / "work"
            report = self._run(
                work, lambda tell: convert(request, work, limits=self._limits, on_event=tell)
            )
            write_entry(work, report, name=name, out=out, version=version, shown_out=shown_out)
            return report

    def verify(self, request: "Request", model: Path) -> "Report":
        """Hold the model against its source, and write nothing."""
        from serve.conversion.running import verify

        with tempfile.TemporaryDirectory(prefix="servegate-verify-") as folder:
            work = Path(folder) / "work"
            return self._run(
                work, lambda tell: verify(request, model, work, limits=self._limits, on_event=tell)
            )

    def _run(self, work: Path, start: "Callable[[OnEvent], Awaitable[Report]]") -> "Report":
        from serve.conversion.running import read_report

        async def run(tell: OnEvent) -> "Report":
            return await start(tell)

        try:
            with stages(self.talk) as tell:
                return asyncio.run(run(tell))
        except GateRefused as error:
            report = read_report(work)
            show(self.talk, report)
            raise _advised(error, report) from error


def show(talk: Talk, report: "Report", *, is_data: bool = True) -> None:
    """The steps of the gate, and how far each output is off: an event, or tables on stdout.

    Where they are not the command's data, a sentence on stderr stands for the tables.
    """
    steps = "; ".join(f"{step.step}: {step.summary}" for step in report.steps)
    talk.tell("report", "" if is_data else steps, report=report.to_json())
    if is_data and not isinstance(talk, Events):
        _steps(report)
        _outputs(report)


def _advised(error: GateRefused, report: "Report") -> GateRefused:
    """The refusal; where a file was held to FP32 that computes in less, with that as the advice."""
    computes = report.model.get("contents", {}).get("compute", {})
    kind = next((one for one in ("int8", "fp16") if computes.get(one)), "")
    if error.code != "numbers_differ" or not kind or report.request.precision != "fp32":
        return error
    hint = f"--precision {kind}, in which that file computes"
    return GateRefused(error.code, error.what, why=error.why, try_this=hint)


def _steps(report: "Report") -> None:
    table(
        ("STEP", "VERDICT", "WHAT WAS SEEN"),
        [
            (str(step.step), "passed" if step.passed else f"refused: {step.code}", step.summary)
            for step in report.steps
        ],
    )


def _outputs(report: "Report") -> None:
    from serve.conversion.rendering import number, share

    several = sum(bool(step.outputs) for step in report.steps) > 1
    rows = [
        (
            f"{each.name} ({step.step})" if several else each.name,
            number(each.worst),
            number(each.relative),
            share(each.excess),
            "" if each.top1 is None else share(each.top1),
            blocks(each),
        )
        for step in report.steps
        for each in step.outputs
    ]
    if rows:
        print()
        heads = ("WORST ERROR", "OF ITS SCALE", "OF ALLOWED", "SAME TOP-1", "ERROR / SCALE")
        table(("OUTPUT", *heads), rows)


def blocks(error: "OutputError") -> str:
    """A histogram in one line: `1e-9 █▅▁ 1e-6`, from the smallest to the largest error."""
    from serve.conversion.rendering import edge

    counts = error.histogram
    places = [place for place, count in enumerate(counts) if count]
    if not places:
        return ""
    first, last = places[0], places[-1]
    low = edge(error, first - 1) if first else "0"
    return f"{low} {_bars(counts[first : last + 1])} {edge(error, last)}"


def _bars(counts: Sequence[int]) -> str:
    most = max(counts)
    steps = len(_BLOCKS) - 1
    return "".join(_BLOCKS[-(-count * steps // most)] for count in counts)
