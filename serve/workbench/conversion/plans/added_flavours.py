"""Adding flavours to an entry of the repository: first the file, last the list that names it.

    NAME/1/model.plan-sm90.plan      a plan, beside the ONNX file
    NAME/plans.json                  what each plan is: see `facts.py`
    NAME/flavours.json               which flavours there are: see `core/flavours.py`

Each file is replaced as a whole. A Triton that reads the entry in between finds what it knows: it
opens the file that config.pbtxt names, and that is the ONNX file.
"""

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from serve.core.errors import Invalid
from serve.core.flavours import Flavour, VersionFlavours
from serve.core.versions import FLAVOURS, PLANS
from serve.triton.config import parse
from serve.triton.layout import ModelFolder
from serve.workbench.conversion.plans.accelerator import NAME as ACCELERATED
from serve.workbench.conversion.plans.facts import PlanFacts
from serve.workbench.conversion.plans.placement import on_gpu

FORMAT = 1


def add_plan(entry: Path, version: int, file: Path, facts: PlanFacts) -> Flavour:
    """Put a plan into an entry, in the place of an earlier one of the same name."""
    base = parse(ModelFolder(entry).config_text() or "")
    flavour = facts.flavour(on_gpu(base))
    listed, plans = _merged(entry, [flavour]), _plans(entry / PLANS)
    target = entry / str(version) / flavour.file
    part = target.with_name(f".{target.name}.part")
    try:
        shutil.copyfile(file, part)
        with part.open("rb") as copied:
            os.fsync(copied.fileno())
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
    plans[facts.name] = facts.to_json()
    page = {"format": FORMAT, "plans": dict(sorted(plans.items()))}
    _replace(entry / PLANS, json.dumps(page, indent=1))
    _write_list(entry, listed)
    return flavour


def add_flavours(entry: Path, added: Sequence[Flavour]) -> VersionFlavours:
    """Write flavours into the entry's list; one of the same name is replaced.

    Plans come first, those for one kind of GPU before those for several, `onnx+trt` comes last.
    """
    after = _merged(entry, added)
    _write_list(entry, after)
    return after


def _merged(entry: Path, added: Sequence[Flavour]) -> VersionFlavours:
    """The entry's flavours with these; `Invalid` when they could not be read again."""
    path = entry / FLAVOURS
    before = VersionFlavours.parse(path.read_text() if path.is_file() else "")
    names = {each.name for each in added}
    others = [each for each in before.preferred if each.name not in names]
    after = VersionFlavours(tuple(sorted([*added, *others], key=_order)), before.base)
    return VersionFlavours.parse(after.text())


def _write_list(entry: Path, flavours: VersionFlavours) -> None:
    _replace(entry / FLAVOURS, json.dumps(json.loads(flavours.text()), indent=1) + "\n")


def _order(flavour: Flavour) -> tuple[bool, bool]:
    is_wide = any(one.endswith("+") for one in flavour.needs.compute_capability)
    return (flavour.name == ACCELERATED, is_wide)


def _plans(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        page = json.loads(path.read_text())
        return dict(page["plans"])
    except (ValueError, KeyError, TypeError) as error:
        raise Invalid(f"'{path}' cannot be read", why=repr(error), try_this="remove it") from error


def _replace(path: Path, text: str) -> None:
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_text(text)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
