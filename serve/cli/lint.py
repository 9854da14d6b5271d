"""`servegate model lint`: checks a model folder before a push."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from serve.cli.options import AsJson
from serve.cli.output import as_json, say, table
from serve.core.errors import Invalid

if TYPE_CHECKING:
    from serve.core.versions import VersionFile
    from serve.triton.layout import ModelFolder
    from serve.triton.lint import Diagnosis, LintSubject


@dataclass(frozen=True, slots=True)
class Examined:
    """One version and what was found in it; version 0 is a model that has none."""

    model: str
    version: int
    findings: "tuple[Diagnosis, ...]"

    @property
    def is_good(self) -> bool:
        """Whether there are no errors; warnings are allowed."""
        return all(finding.severity != "error" for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        """Plain values for `json.dumps`."""
        findings = [finding.to_json() for finding in self.findings]
        return {"model": self.model, "version": self.version, "findings": findings}


def lint(
    path: Annotated[
        Path,
        typer.Argument(metavar="PATH", help="Model folder, model repository, or .onnx file."),
    ],
    json: AsJson = False,
) -> None:
    """Check model configurations against the model files.

    The command needs no gateway. Exits with status 1 if there are errors; warnings do not count.

    Example: servegate model lint model_repo/digits
    """
    import asyncio

    examined = asyncio.run(examine(path))
    if json:
        as_json([each.to_json() for each in examined])
    else:
        show(examined)
    if not all(each.is_good for each in examined):
        raise typer.Exit(1)


async def examine(path: Path) -> list[Examined]:
    """Look at every version below this path; `Invalid` when there is no model in it."""
    models = _models(path)
    if not models:
        return [await _examine_file(path)]
    return [
        await _examine_version(model.path, version)
        for model in models
        for version in model.versions() or (0,)
    ]


def _models(path: Path) -> "list[ModelFolder]":
    """The models of a folder; none when the path is a file."""
    from serve.triton.layout import ModelFolder, model_folders

    if path.is_file():
        return []
    folder = ModelFolder(path.resolve())  # its name is the model's
    models = [folder] if _is_model(path) else [m for m in model_folders(path) if _is_model(m.path)]
    if not models:
        raise Invalid(
            f"there is no model in '{path}'",
            why="a model folder contains config.pbtxt or numbered version folders",
            try_this="servegate model lint model_repo/digits",
        )
    return models


def _is_model(path: Path) -> bool:
    from serve.core.versions import CONFIG
    from serve.triton.layout import ModelFolder

    return path.is_dir() and ((path / CONFIG).is_file() or bool(ModelFolder(path).versions()))


async def _examine_file(path: Path) -> Examined:
    """One ONNX file, with the configuration that a push would generate for it."""
    from serve.model_files.reader import read_model
    from serve.triton.config import parse
    from serve.triton.config_generation import generate
    from serve.triton.lint import LintSubject
    from serve.triton.lint import lint as diagnose

    name = path.stem
    try:
        signature = await read_model(path)
        config = parse(generate(name, signature))
    except Invalid as error:
        return Examined(name, 1, (_unreadable(error),))
    files = _files(path, signature.facts["external_data"])
    return Examined(name, 1, diagnose(LintSubject(name, config, files, signature)))


def _files(path: Path, others: Iterable[str]) -> "tuple[VersionFile, ...]":
    """The file as a version would hold it, with the files of weights that lie beside it."""
    from serve.core.versions import VersionFile

    beside = [name for name in others if (path.parent / name).is_file()]
    return tuple(VersionFile(f"1/{name}", 0, "") for name in ("model.onnx", *beside))


async def _examine_version(folder: Path, version: int) -> Examined:
    from serve.model_files.subjects import others_beside, subject_of
    from serve.triton.config import parse
    from serve.triton.layout import ModelFolder
    from serve.triton.lint import lint as diagnose

    model = ModelFolder(folder)
    try:
        config = parse(model.config_text() or "")
        others = others_beside(folder, config)
        subject = await subject_of(folder, version or None, others=others)
    except Invalid as error:
        return Examined(model.name, version, (_unreadable(error),))
    found = (_here(one) for one in diagnose(subject))
    return Examined(model.name, version, (*found, *_code(subject)))


def _here(finding: "Diagnosis") -> "Diagnosis":
    """A step's model that is not in this repository may be published: the push looks there."""
    from serve.triton.lint import Severity

    if finding.rule != "step-unknown":
        return finding
    return replace(
        finding,
        severity=Severity.WARNING,
        why=f"{finding.why} in this folder",
        fix="put the model into this folder, unless it is already published",
    )


def _unreadable(error: Invalid) -> "Diagnosis":
    from serve.triton.lint import Diagnosis, Severity

    fix = error.try_this or "provide a readable file"
    return Diagnosis("unreadable", Severity.ERROR, error.what, error.why or error.what, fix)


def _code(subject: "LintSubject") -> "tuple[Diagnosis, ...]":
    """A warning when a push of this version needs the permission to bring code."""
    from serve.triton.config import parse
    from serve.triton.foreign_code import code_in
    from serve.triton.lint import Diagnosis, Severity

    configs = (subject.config or parse(""), *(one.config for one in subject.flavoured.values()))
    why = next((why for one in configs if one and (why := code_in(one, subject.files))), "")
    if not why:
        return ()
    fix = "servegate up --allow-code-models, if you trust everyone who can push"
    return (Diagnosis("brings-code", Severity.WARNING, "version", why, fix),)


def show(examined: Sequence[Examined]) -> None:
    """All findings as a table, and how many there are."""
    rows = [
        (
            each.model,
            str(each.version),
            str(finding.severity),
            finding.field,
            finding.why,
            finding.fix,
            finding.rule,
        )
        for each in examined
        for finding in each.findings
    ]
    if rows:
        table(("MODEL", "VERSION", "SEVERITY", "FIELD", "WHY", "FIX", "RULE"), rows)
    count = f"{len(examined)} version{'' if len(examined) == 1 else 's'}"
    say(f"{len(rows)} findings in {count}" if rows else f"{count}: no findings")
