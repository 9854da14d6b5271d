"""Runs a conversion: a child process under limits does it, and this side relays what it says.

    request ──▶ work/scratch/task.json ──▶ `python -m serve.workbench.conversion.job` ──▶ events
                                                 │
        work/model.onnx, work/contract/…, work/conversion.json ◀──┘

When the gate refuses there is work/conversion.json alone; after every other failure there is
nothing. The child finds no secret in its environment and no GPU, writes its own files only below
`work/scratch`, which is removed at its end, and dies with this process.
"""

import asyncio
import json
import shutil
import sys
from pathlib import Path

from serve.core.errors import GateRefused, Invalid
from serve.core.versions import CONTRACT
from serve.processes import Program
from serve.workbench.conversion.child_watch import follow
from serve.workbench.conversion.events import OnEvent
from serve.workbench.conversion.faults import failed
from serve.workbench.conversion.limits import ConversionLimits, default_limits, surroundings
from serve.workbench.conversion.report import FILE, MODEL, ConversionReport
from serve.workbench.conversion.request import ConversionRequest

__all__ = ["ConversionLimits", "convert", "default_limits", "read_report", "verify"]

SCRATCH, TASK = "scratch", "task.json"
_RESULTS = (MODEL, FILE)


async def convert(
    request: ConversionRequest,
    work: Path,
    *,
    limits: ConversionLimits,
    on_event: OnEvent,
    base: Path | None = None,
) -> ConversionReport:
    """Convert, and hold the result against the source.

    Paths of the request are relative to `base`, the current folder unless it is given. `work` is
    made where it is not there; what an earlier conversion left in it is removed. Raises
    `ConversionFailed`, or `GateRefused` with the report in `work/conversion.json`. A cancellation
    kills the child and removes `work`. Call it in the main thread, whose death the child notices.
    """
    return await _run(request, work, "", limits, on_event, base)


async def verify(
    request: ConversionRequest,
    model: Path,
    work: Path,
    *,
    limits: ConversionLimits,
    on_event: OnEvent,
    base: Path | None = None,
) -> ConversionReport:
    """Hold an ONNX file that is there already against the source: the gate, and nothing else.

    As `convert`, and no model is written.
    """
    return await _run(request, work, str(model), limits, on_event, base)


def read_report(work: Path) -> ConversionReport:
    """The report of the conversion that ran in this folder; `Invalid` when there is none."""
    try:
        return ConversionReport.from_json(json.loads((work / FILE).read_bytes()))
    except (OSError, ValueError) as error:
        raise Invalid("the conversion has no report", why=str(error)) from error


async def _run(
    request: ConversionRequest,
    work: Path,
    model: str,
    limits: ConversionLimits,
    on_event: OnEvent,
    base: Path | None,
) -> ConversionReport:
    scratch = _prepare(request, work, model, limits, base)
    try:
        await follow(_program(scratch), limits=limits, on_event=on_event)
        return _result(work)
    except asyncio.CancelledError:
        shutil.rmtree(work, ignore_errors=True)
        raise
    except GateRefused as error:
        _clear(work, but=FILE)
        if not (work / FILE).is_file():  # it was not the gate that said so
            raise failed(
                "converter_crashed", f"it reported {error.code} without a conversion report"
            ) from error
        raise
    except BaseException:
        _clear(work)
        raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _prepare(
    request: ConversionRequest, work: Path, model: str, limits: ConversionLimits, base: Path | None
) -> Path:
    """The scratch folder, with the task in it; `Invalid` for a name that no report could tell."""
    try:
        json.dumps(request.to_json(), ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        near = error.object[max(0, error.start - 20) : error.end]
        raise Invalid("a name in the request is not valid UTF-8", why=ascii(near)) from error
    work.mkdir(parents=True, exist_ok=True)
    _clear(work)
    scratch = work.resolve() / SCRATCH
    scratch.mkdir(mode=0o700)
    task = {
        "request": request.to_json(),
        "base": str((base or Path.cwd()).resolve()),
        "model": model,
        "work": str(work.resolve()),
        "memory": limits.memory,
    }
    (scratch / TASK).write_text(json.dumps(task))
    return scratch


def _program(scratch: Path) -> Program:
    return Program(
        name="servegate-converter",
        argv=(sys.executable, "-P", "-m", "serve.workbench.conversion.job", str(scratch / TASK)),
        env=surroundings(scratch),
        cwd=scratch,
        grace=0.0,
    )


def _result(work: Path) -> ConversionReport:
    try:
        report = read_report(work)
    except Invalid as error:
        raise failed("converter_crashed", error.why) from error
    if not report.passed:
        raise failed("converter_crashed", "its report says that the conversion did not pass")
    return report


def _clear(work: Path, *, but: str = "") -> None:
    """Remove what a conversion leaves in its folder."""
    for name in _RESULTS:
        if name != but:
            (work / name).unlink(missing_ok=True)
    for name in (CONTRACT, SCRATCH):
        shutil.rmtree(work / name, ignore_errors=True)
