"""The work behind `servegate convert trt`: an entry, what TensorRT says of it, and its flavours.

source ─▶ entry ─▶ preflight ─▶ profiles ─┬─ built here, or brought back in a kit ─▶ flavour
                                         └─ a kit, and the line that builds it where the GPU is
"""

import filecmp
import os
import tempfile
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from serve.cli.stages import OnEvent, stages
from serve.cli.talk import CommandTalk
from serve.core.errors import ConversionFailed, Invalid

if TYPE_CHECKING:
    from serve.workbench.conversion.limits import ConversionLimits
    from serve.workbench.conversion.plans.arguments import Options
    from serve.workbench.conversion.plans.entries import ModelEntry
    from serve.workbench.conversion.plans.kits import Built
    from serve.workbench.conversion.request import Precision


class PrintedCommand(StrEnum):
    """What `--print` prints instead of building."""

    JOB = "job"
    DOCKER = "docker"
    TRTEXEC = "trtexec"


class FlavourForm(StrEnum):
    """The flavours that can be added."""

    PLAN = "plan"
    ACCELERATED = "onnx+trt"


class Level(StrEnum):
    """On which other GPUs the plan is to run."""

    NONE = "none"
    AMPERE = "ampere+"
    SAME = "same-capability"


_IMAGE = "nvcr.io/nvidia/tritonserver:YY.MM-py3"
_LEVELS = {Level.NONE: "none", Level.AMPERE: "ampere+", Level.SAME: "sameComputeCapability"}


@dataclass(frozen=True, slots=True)
class FlavourOptions:
    """What the command line asks for, beside the source."""

    forms: tuple[FlavourForm, ...]
    profiles: tuple[str, ...]
    version_compatible: bool
    level: Level
    tf32: bool
    workspace: int  # bytes
    timing_cache: Path | None
    image: str
    shown: PrintedCommand | None
    kit: Path | None
    built: Path | None
    claim: str
    product: str


@dataclass(frozen=True, slots=True)
class FlavourOrder:
    """What is known before anything is built."""

    entry: "ModelEntry"
    asked: FlavourOptions
    options: "Options"
    precision: "Precision"


async def run(
    folder: Path, asked: FlavourOptions, teller: CommandTalk, limits: "ConversionLimits"
) -> dict[str, Any]:
    """Do it for an entry; what was added for programs, or under `text` what is to be printed."""
    from serve.workbench.conversion.plans.entries import read_entry
    from serve.workbench.conversion.plans.preparation import preflight

    with (
        tempfile.TemporaryDirectory(prefix="servegate-plan-") as scratch,
        stages(teller) as on_event,
    ):
        work = Path(scratch)
        entry = await read_entry(folder)
        precision = await preflight(entry.onnx, work / "trt", limits=limits, on_event=on_event)
        order = FlavourOrder(entry, asked, _options(entry, asked), precision)
        if asked.shown is not None:
            return {"text": _shown(order, teller)}
        added = [_add_accelerated(order)] if FlavourForm.ACCELERATED in asked.forms else []
        if FlavourForm.PLAN in asked.forms:
            built = await _built(order, work / "plan", limits, on_event, teller)
            added.append(_add_plan(order, built))
            if why := built.facts.unchecked:
                teller.tell("note", f"warning: {why}")
    for one in added:
        teller.tell("note", f"added flavour {one} to {entry.folder}")
    return {"entry": str(entry.folder), "version": entry.version, "flavours": added}


def _add_accelerated(order: FlavourOrder) -> str:
    from serve.workbench.conversion.plans.accelerator import accelerated
    from serve.workbench.conversion.plans.added_flavours import add_flavours

    options = order.options
    flavour = accelerated(
        order.entry.base, options.profiles, order.precision, workspace=options.workspace
    )
    add_flavours(order.entry.folder, [flavour])
    return flavour.name


def _add_plan(order: FlavourOrder, built: "Built") -> str:
    from serve.workbench.conversion.plans.added_flavours import add_plan

    return add_plan(order.entry.folder, order.entry.version, built.file, built.facts).name


async def _built(
    order: FlavourOrder,
    work: Path,
    limits: "ConversionLimits",
    on_event: OnEvent,
    teller: CommandTalk,
) -> "Built":
    """A plan that has answered the golden cases; the fault of a plan that has not."""
    from serve.workbench.conversion.plans.kits import read_kit
    from serve.workbench.conversion.plans.preparation import WantedPlan, build_here, can_build_here

    entry, asked = order.entry, order.asked
    _require_cases(entry)
    if asked.built is not None:
        return read_kit(asked.built, onnx=entry.onnx, cases=entry.cases)
    if not can_build_here():
        raise _elsewhere(order, teller)
    wanted = WantedPlan(entry.onnx, order.options, order.precision, entry.contract, asked.image)
    return await build_here(wanted, work, limits=limits, on_event=on_event)


def _options(entry: "ModelEntry", asked: FlavourOptions) -> "Options":
    from serve.workbench.conversion.plans.arguments import Options
    from serve.workbench.conversion.plans.facts import Hardware
    from serve.workbench.conversion.plans.profiles import parse_profile, profiles

    given = map(parse_profile, asked.profiles)
    return Options(
        profiles(entry.signature, entry.max_batch_size, given),
        tf32=asked.tf32,
        version_compatible=asked.version_compatible,
        hardware=Hardware(_LEVELS[asked.level]),
        workspace=asked.workspace,
        timing_cache=str(asked.timing_cache or ""),
    )


def _shown(order: FlavourOrder, teller: CommandTalk) -> str:
    """The text that was asked for; for docker and a Job there is a kit now."""
    from serve.workbench.conversion.plans.arguments import as_line, docker, major_of, trtexec

    entry, asked = order.entry, order.asked
    if asked.shown is PrintedCommand.TRTEXEC:
        plan = str(entry.onnx.with_suffix(".plan"))
        major = major_of(asked.image)
        return as_line(
            ("trtexec", *trtexec(order.options, onnx=str(entry.onnx), plan=plan, major=major))
        )
    _require_cases(entry)
    folder = _kit(order)
    teller.tell(
        "note", f"the build kit is in {folder}; after the build, add the plan with --built {folder}"
    )
    if asked.shown is PrintedCommand.JOB:
        from serve.workbench.conversion.plans.job import PlanPlace, manifest

        place = PlanPlace(asked.image, asked.claim, folder.name, asked.product)
        return manifest(entry.name, place).rstrip("\n")
    user, group = os.getuid(), os.getgid()
    return as_line(docker(str(folder.absolute()), image=asked.image, user=user, group=group))


def _kit(order: FlavourOrder) -> Path:
    """The kit's folder; one that is there and was made of the same is taken as it is."""
    asked = order.asked
    if not asked.image:
        raise Invalid(
            "the Triton image is not specified",
            why="a plan runs only on the TensorRT version that built it",
            try_this=f"pass --image {_IMAGE} with the image that will serve the plan",
        )
    folder = asked.kit or Path(f"{order.entry.name}-kit")
    if not folder.is_dir():
        _write_kit(order, folder)
        return folder
    with tempfile.TemporaryDirectory(prefix="servegate-kit-") as scratch:
        fresh = Path(scratch) / "kit"
        _write_kit(order, fresh)
        names = [path.name for path in fresh.iterdir()]
        if len(filecmp.cmpfiles(fresh, folder, names, shallow=False)[0]) < len(names):
            raise Invalid(
                f"the folder '{folder}' contains another build kit",
                try_this=f"pass --kit with another folder, remove '{folder}', or pass "
                f"--built '{folder}' if its plan is built",
            )
    return folder


def _write_kit(order: FlavourOrder, folder: Path) -> None:
    from serve.workbench.conversion.plans.kits import write_kit

    entry = order.entry
    write_kit(
        folder,
        name=entry.name,
        onnx=entry.onnx,
        config=entry.config,
        cases=entry.cases,
        options=order.options,
        precision=order.precision,
        image=order.asked.image,
    )


def _require_cases(entry: "ModelEntry") -> None:
    if not entry.cases:
        raise Invalid(
            f"'{entry.folder}' has no golden cases",
            why="the results of a plan are checked with them",
            try_this=f"servegate convert trt {entry.onnx} --name NAME --out DIR",
        )


def _elsewhere(order: FlavourOrder, teller: CommandTalk) -> ConversionFailed:
    """Why no plan is built here, with what builds it: a line for docker if the image is known."""
    from serve.workbench.conversion.faults import failed

    if not order.asked.image:
        hint = (
            f"pass --image {_IMAGE} --print docker (or --print job) to write a build kit, and "
            "build the plan where the GPU is"
        )
        return failed("trt_missing", hint=hint)
    line = _shown(replace(order, asked=replace(order.asked, shown=PrintedCommand.DOCKER)), teller)
    return failed("trt_missing", hint=line)
