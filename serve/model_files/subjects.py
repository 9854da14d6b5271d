"""A model's folder on disk as lint looks at it: files, configuration, and the model file's word."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType

from serve.core.errors import Invalid
from serve.core.versions import (
    CONVERSION,
    OUTPUTS,
    PLANS,
    PREPROCESSING,
    VersionFile,
    unverified_in,
)
from serve.model_files.reader import read_model
from serve.triton.config import Configuration, parse
from serve.triton.layout import ModelFolder
from serve.triton.lint import LintSubject

_NO_MODELS: Mapping[str, Configuration] = MappingProxyType({})
_MOST_FILES = 10_000
_NO_DIGEST = sha256(b"").hexdigest()


async def subject_of(
    folder: Path,
    version: int | None = None,
    *,
    name: str = "",
    others: Mapping[str, Configuration] = _NO_MODELS,
    timeout: float = 60.0,  # noqa: ASYNC109 — handed on to the child
    memory: int = 2 << 30,
) -> LintSubject:
    """One version of a model's folder; the newest one when it is not said which.

    `name` is the folder's unless it is given. The files have their sizes, and no digests of their
    own: lint does not look at them. `Invalid` when config.pbtxt or the model file cannot be read.
    """
    model = ModelFolder(folder)
    numbers = model.versions()
    number = version if version is not None else max(numbers, default=None)
    text = model.config_text()
    config = None if text is None else parse(text)
    files = tuple(_files(folder, number))
    plans = (model.document(PLANS) or {}).get("plans")
    subject = LintSubject(
        name or model.name,
        config,
        files,
        others=others,
        flavours=model.flavours_text() or "",
        plans=plans if isinstance(plans, dict) else {},
        preprocessing=model.document(PREPROCESSING) or {},
        output_kinds=model.document(OUTPUTS) or {},
        unverified=_unverified(model),
    )
    readable = {"": subject.readable} if subject.readable else {}
    signatures = {
        one: await read_model(folder / str(number) / file, timeout=timeout, memory=memory)
        for one, file in (readable | dict(subject.readable_flavours)).items()
    }
    return replace(subject, signature=signatures.pop("", None), signatures=signatures)


def _unverified(model: ModelFolder) -> str:
    """What the report of its conversion says of that; one that cannot be read says nothing."""
    try:
        return unverified_in(model.document(CONVERSION))
    except Invalid:
        return ""


def others_beside(folder: Path, config: Configuration) -> Mapping[str, Configuration]:
    """The models in the same repository that the steps of this configuration name.

    Steps of steps come along. A model without config.pbtxt is there, and says nothing of itself.
    """
    found: dict[str, Configuration] = {}
    wanted = list(config.composing_models)
    while wanted:
        name = wanted.pop()
        beside = folder.parent / name
        if name not in found and "/" not in name and beside.is_dir():
            found[name] = parse(ModelFolder(beside).config_text() or "")
            wanted += found[name].composing_models
    return MappingProxyType(found)


def _files(folder: Path, number: int | None) -> Iterator[VersionFile]:
    """The files of this version and those beside it, as an upload would list them."""
    seen = 0
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        first = relative.parts[0]
        hidden = any(part.startswith(".") or part == "__pycache__" for part in relative.parts)
        another = len(relative.parts) > 1 and first.isdigit() and first != str(number)
        if hidden or another or not path.is_file():
            continue
        seen += 1
        if seen > _MOST_FILES:
            raise Invalid(f"'{folder.name}' has more than {_MOST_FILES} files")
        yield VersionFile(relative.as_posix(), path.stat().st_size, _NO_DIGEST)
