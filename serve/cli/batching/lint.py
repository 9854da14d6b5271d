"""`servegate batching lint`: what is wrong with how a version is batched, or would be."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from serve.cli.batching.edits import Edits
from serve.cli.batching.options import with_edits
from serve.cli.client import AdminClient, connect
from serve.cli.options import AdminUrl, AsJson, KeyFile
from serve.cli.output import as_json, say, table
from serve.core.errors import CheckFailed, Invalid

if TYPE_CHECKING:
    from serve.cli.lint import Examined

_FILES = (".pbtxt", ".onnx")
Findings = list[Mapping[str, Any]]


@with_edits
def lint(
    what: Annotated[
        str,
        typer.Argument(
            metavar="NAME[@V|:label]|PATH",
            help="Version on the gateway, or a local model folder or config.pbtxt (a path that "
            "contains '/').",
        ),
    ],
    edits: Edits,
    admin_url: AdminUrl = None,
    key_file: KeyFile = None,
    json: AsJson = False,
) -> None:
    """Check a version's batching configuration.

    With batching options, the command checks the proposed change instead. It changes nothing. Exits
    with status 1 if there are errors, and 0 if there are only warnings.

    Example: servegate batching lint digits

    Example: servegate batching lint digits --max-batch-size 64 --preferred 8,16

    Example: servegate batching lint model_repo/digits
    """
    if "/" in what or what == "." or what.endswith(_FILES):
        _lint_path(Path(what), edits, json=json)
        return
    found = _asked(connect(admin_url, key_file), what, edits)
    if json:
        as_json({"version": what, "findings": found})
    else:
        _show(found)
    _end(found)


def _asked(admin: AdminClient, what: str, edits: Edits) -> Findings:
    """What the gateway finds in the present configuration, or in the edited one."""
    from serve.cli.asked import parse_asked
    from serve.cli.batching.difference import findings_in
    from serve.cli.batching.set import checked, planned
    from serve.cli.talk import talk
    from serve.cli.versions import called_number, path_of

    if edits.is_empty:
        asked = parse_asked(what)
        path = f"{path_of(asked.model, called_number(admin, asked))}/serving-configuration"
        return _about_batching(admin.get(path)["findings"])
    change = planned(admin, what, edits)
    try:
        page = asyncio.run(checked(admin, talk(json=False), change))
    except CheckFailed as error:
        return findings_in(error)
    return _about_batching(page["findings"])


def _lint_path(path: Path, edits: Edits, *, json: bool) -> None:
    from serve.cli.lint import show

    if not edits.is_empty:
        raise Invalid(
            f"options that change the configuration do not apply to '{path}'",
            why="they describe a change of a version on a gateway",
            try_this="edit its config.pbtxt, and check that",
        )
    examined = asyncio.run(_examined(path))
    found = [finding.to_json() for each in examined for finding in each.findings]
    if json:
        as_json([each.to_json() for each in examined])
    else:
        show(examined)
    _end(found)


async def _examined(path: Path) -> "list[Examined]":
    """Every version below a folder, or one configuration, with what is wrong about batching."""
    from serve.cli.lint import examine

    if path.suffix == ".pbtxt" and not _has_versions(path.parent):
        return [_examined_alone(path)]
    found = await examine(path.parent if path.suffix == ".pbtxt" else path)
    rules = _rules()
    return [
        replace(each, findings=tuple(one for one in each.findings if one.rule in rules))
        for each in found
    ]


def _examined_alone(path: Path) -> "Examined":
    """A config.pbtxt without the files of its model."""
    from serve.cli.lint import Examined
    from serve.core.versions import VersionFile
    from serve.triton.config import parse
    from serve.triton.lint import BATCHING, LintSubject
    from serve.triton.lint import lint as diagnose

    try:
        config = parse(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"cannot read '{path}'", why=str(error)) from error
    name = config.message.name or path.resolve().parent.name
    beside = path.parent.glob("warmup/*")
    files = tuple(VersionFile(one.relative_to(path.parent).as_posix(), 0, "") for one in beside)
    return Examined(name, 0, diagnose(LintSubject(name, config, files), BATCHING))


def _has_versions(folder: Path) -> bool:
    from serve.triton.layout import ModelFolder

    return bool(ModelFolder(folder.resolve()).versions())


def _about_batching(findings: Iterable[Mapping[str, Any]]) -> Findings:
    rules = _rules()
    return [one for one in findings if one["rule"] in rules]


def _rules() -> frozenset[str]:
    """The table of batching, and what is said of files that nobody can read."""
    from serve.triton.lint import BATCHING

    return frozenset({"unreadable", *(rule.name for rule in BATCHING)})


def _show(found: Findings) -> None:
    columns = ("severity", "field", "why", "fix", "rule")
    if found:
        table(
            [name.upper() for name in columns], [[one[name] for name in columns] for one in found]
        )
    say(f"{len(found)} findings" if found else "no findings")


def _end(found: Iterable[Mapping[str, Any]]) -> None:
    if any(one["severity"] == "error" for one in found):
        raise typer.Exit(1)
