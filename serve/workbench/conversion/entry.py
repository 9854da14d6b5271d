"""The entry of a converted model in a repository: it appears whole, or not at all.

    OUT/NAME/config.pbtxt      generated: batches, and a warm-up before Triton calls it ready
    OUT/NAME/1/model.onnx
    OUT/NAME/contract/…        golden cases: inputs, and what the source answers
    OUT/NAME/conversion.json   the report, and conversion.html for people
    OUT/NAME/outputs.json      which outputs hold classes, with labels.txt, where the source has one

It is made beside its place under a name that begins with a dot, and is then moved. A further
version of an entry that is there already brings its own number, keeps config.pbtxt and labels, and
takes the place of contract and report; its folder is the last to appear.
"""

import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from tempfile import mkdtemp
from types import MappingProxyType

import numpy as np

from serve.core.errors import CheckFailed, Conflict, Invalid, NoSpace
from serve.core.names import check_model_name
from serve.core.versions import (
    CONFIG,
    CONTRACT,
    CONVERSION,
    CONVERSION_PAGE,
    OUTPUTS,
    VersionFile,
)
from serve.tensors.contracts import read_contract
from serve.tensors.datatypes import Shape
from serve.tensors.signature import DYNAMIC, ModelSignature
from serve.triton.config import parse
from serve.triton.config_generation import DEFAULT_BATCH, generate
from serve.triton.layout import ModelFolder
from serve.triton.lint import LintSubject, Severity, lint
from serve.workbench.conversion.class_labels import LABELS
from serve.workbench.conversion.command import command_of
from serve.workbench.conversion.gate.golden import ZEROS
from serve.workbench.conversion.report import MODEL, ConversionReport, StepResult
from serve.workbench.conversion.report_page import render_html
from serve.workbench.conversion.temporary import temporary

Load = Callable[[Path], StepResult]
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def write_entry(
    work: Path,
    report: ConversionReport,
    *,
    name: str,
    out: Path,
    version: int = 1,
    shown_out: str = "",
    load: Load | None = None,
) -> Path:
    """OUT/NAME, out of the folder of a conversion that has passed; its path.

    `load` has the last word before the entry is in its place, and its step goes into the report; it
    is given a repository that holds the entry. `shown_out` stands for OUT in the command that the
    report tells. `Conflict` when that version is there already, `CheckFailed` when config.pbtxt
    does not fit the model; nothing is left then.
    """
    check_model_name(name)
    if not report.passed or not (work / MODEL).is_file():
        raise Invalid("no entry can be written", why="the conversion did not pass the gate")
    target = out / name
    check_free(target, version)
    shown = replace(
        report, command=command_of(report.request, name=name, out=shown_out or str(out))
    )
    with _draft(target) as draft:
        config = _config_of(target)
        _fill(draft, work, shown, name=name, version=version, config=config)
        if load is not None:
            _report(draft, replace(shown, steps=(*shown.steps, _loaded(draft, name, load))))
        _sync(draft)
        if target.exists():
            with _alone(target):
                check_free(target, version)
                _add(draft, target, version)
        else:
            _move(draft, target)
    return target


def check_free(target: Path, version: int = 1) -> None:
    """Whether this version can be written there, asked before hours of work, too.

    `Conflict` when something is there, `Invalid` when the folder cannot be written.
    """
    if target.is_symlink() and not target.exists():
        raise Conflict(f"{target} is a broken link", try_this="remove it, or pass another --name")
    _check_writable(target.parent)
    if not target.exists():
        return
    numbers = ModelFolder(target).versions() if target.is_dir() else ()
    if version in numbers or not numbers:
        what = f"{target} already has version {version}" if numbers else f"{target} already exists"
        raise Conflict(
            what,
            why="existing files are never overwritten",
            try_this=f"pass --as-version {max(numbers) + 1}, or another --name"
            if numbers
            else "pass another --name",
        )


def _check_writable(folder: Path) -> None:
    there = folder
    while not os.path.lexists(there):
        there = there.parent
    try:
        str(folder).encode()
        Path(mkdtemp(prefix=".writable.", dir=there)).rmdir()
    except (OSError, UnicodeEncodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "its name is not valid UTF-8"
        what = f"cannot write to {ascii(str(folder))[1:-1]}"
        raise Invalid(
            what, why=why or str(error), try_this="pass another folder as --out"
        ) from error


def configuration(name: str, report: ConversionReport, sizes: Mapping[str, Shape] | None) -> str:
    """The text of config.pbtxt. `sizes`: of each input, as the golden cases have them; None for no
    warm-up.

    Without batches when a first dimension is fixed, or rows depend on their neighbours.
    """
    signature = signature_of(report)
    asked = report.request.max_batch_size
    largest = (DEFAULT_BATCH if asked is None else asked) if report.is_batched else 0
    warm_up = None if sizes is None else _warm_up(signature, sizes)
    return generate(name, signature, max_batch_size=largest, warm_up=warm_up)


def signature_of(report: ConversionReport) -> ModelSignature:
    """Inputs and outputs of the converted model."""
    page = {name: report.model[name] for name in ("inputs", "outputs")}
    facts = {"opset": report.model.get("opset", {}), "external_data": []}
    return ModelSignature.from_json({"format": "onnx", **page, "facts": facts})


def _warm_up(signature: ModelSignature, sizes: Mapping[str, Shape]) -> Mapping[str, Shape] | None:
    """The sizes for a warm-up; None when they are not known, because a wrong one fails the load."""
    known: dict[str, Shape] = {}
    for spec in signature.inputs:
        shape = sizes.get(spec.name, spec.shape)
        if shape is None or DYNAMIC in shape[1:] or (DYNAMIC in shape and spec.name not in sizes):
            return None
        known[spec.name] = shape
    return MappingProxyType(known)


def _fill(
    draft: Path,
    work: Path,
    report: ConversionReport,
    *,
    name: str,
    version: int,
    config: str | None,
) -> None:
    folder = draft / str(version)
    folder.mkdir()
    shutil.copyfile(work / MODEL, folder / MODEL)
    if (work / CONTRACT).is_dir():
        shutil.copytree(work / CONTRACT, draft / CONTRACT)
    for file in (LABELS, OUTPUTS):
        if (work / file).is_file():
            shutil.copyfile(work / file, draft / file)
    text = configuration(name, report, _sizes(draft)) if config is None else config
    (draft / CONFIG).write_text(text)
    _report(draft, report)
    _check(name, version, text, report)


def _report(draft: Path, report: ConversionReport) -> None:
    (draft / CONVERSION).write_bytes(report.to_bytes())
    (draft / CONVERSION_PAGE).write_text(render_html(report))


def _loaded(draft: Path, name: str, load: Load) -> StepResult:
    """What `load` says of the draft, in a repository where it has its name."""
    with temporary(draft.parent, f".{name}.") as repository:
        (repository / name).symlink_to(draft.absolute())
        return load(repository)


def _sizes(folder: Path) -> Mapping[str, Shape] | None:
    """The shapes of the inputs of the first golden case; nothing without a contract.

    None where the source does not take zeros and empty texts, of which Triton makes the warm-up: it
    dies where its model fails on them.
    """
    cases = read_contract(folder).cases
    zeros = [case.inputs.values() for case in cases if case.name == ZEROS]
    if cases and (not zeros or any(map(np.count_nonzero, zeros[0]))):
        return None
    return {name: array.shape for name, array in cases[0].inputs.items()} if cases else {}


def _check(name: str, version: int, text: str, report: ConversionReport) -> None:
    file = VersionFile(f"{version}/{MODEL}", int(report.model["bytes"]), sha256(b"").hexdigest())
    found = lint(LintSubject(name, parse(text), (file,), signature_of(report)))
    errors = [str(each) for each in found if each.severity is Severity.ERROR]
    if errors:
        raise CheckFailed(
            f"{CONFIG} does not fit the converted model", errors, try_this="pass another --name"
        )


def _config_of(target: Path) -> str | None:
    return ModelFolder(target).config_text() if target.is_dir() else None


@contextmanager
def _draft(target: Path) -> Iterator[Path]:
    """An empty folder beside the target, gone at the end unless it was moved."""
    out, is_new = target.parent, not target.parent.exists()
    out.mkdir(parents=True, exist_ok=True)
    try:
        with temporary(out, f".{target.name}.", mode=0o777) as draft:
            yield draft
    except OSError as error:
        if error.errno in _FULL:
            raise NoSpace(f"the disk of {out} is full", why=error.strerror or "") from error
        raise
    finally:
        if is_new:
            with suppress(OSError):  # it is not empty, as it should be
                out.rmdir()


@contextmanager
def _alone(target: Path) -> Iterator[None]:
    """One process at a time adds to an entry."""
    lock = os.open(target, os.O_RDONLY)
    try:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _move(draft: Path, target: Path) -> None:
    try:
        draft.rename(target)
    except OSError as error:
        raise Conflict(f"{target} was created in the meantime", why=str(error)) from error


def _add(draft: Path, target: Path, version: int) -> None:
    """A further version; until the last line the entry serves what it has served before."""
    if (target / CONTRACT).exists():
        (target / CONTRACT).rename(draft / "replaced")
    if (draft / CONTRACT).exists():
        (draft / CONTRACT).rename(target / CONTRACT)
    for name in (CONVERSION, CONVERSION_PAGE):
        (draft / name).replace(target / name)
    for name in (CONFIG, LABELS, OUTPUTS):
        if (draft / name).exists() and not (target / name).exists():
            (draft / name).replace(target / name)
    _move(draft / str(version), target / str(version))


def _sync(folder: Path) -> None:
    """On the disk before it has its name: a power cut leaves no empty files in a repository."""
    for path in (*folder.rglob("*"), folder):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
