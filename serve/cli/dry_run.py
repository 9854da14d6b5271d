"""`--dry-run`: what a push would send, what is there already, and what lint says. It only reads."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from serve.cli.client import AdminClient, segment
from serve.cli.digests import Blob
from serve.cli.golden import data_of
from serve.cli.onnx_file import ReadModel
from serve.cli.pieces import PushSource
from serve.cli.talk import amount
from serve.core.errors import Invalid, NoControl, NotFound
from serve.core.versions import (
    CONFIG,
    CONVERSION,
    FLAVOURS,
    OUTPUTS,
    Layout,
    VersionState,
    content_digest,
)

_MOST_ASKED = 20  # versions
_DEAD = (VersionState.FAILED, VersionState.RETIRED, VersionState.REMOVED)


@dataclass(frozen=True, slots=True)
class KnownContent:
    """What the gateway has of a model: the version with the same content, and digests of blobs.

    `is_sure` is False when it could not be asked.
    """

    existing: int | None = None
    blobs: Collection[str] = frozenset()
    is_sure: bool = True


def ask_known(admin: AdminClient, model: str, blobs: Sequence[Blob]) -> KnownContent:
    """Look through the newest versions of the model."""
    content = content_digest([blob.file for blob in blobs])
    path = f"/api/models/{segment(model)}"
    existing, there = None, set()
    try:
        numbers = sorted(int(each["version"]) for each in admin.get(path)["versions"])
        for number in reversed(numbers[-_MOST_ASKED:]):
            page = _version(admin, f"{path}/versions/{number}")
            there |= {str(file["sha256"]) for file in page.get("files") or ()}
            is_same = page.get("content") == content and page.get("state") not in _DEAD
            if existing is None and is_same:
                existing = number
    except NotFound:
        return KnownContent()
    except NoControl:
        return KnownContent(is_sure=False)
    return KnownContent(existing, frozenset(there))


def plan(known: KnownContent, blobs: Sequence[Blob], model: str) -> str:
    """What a push would send, in words."""
    sizes = {blob.file.sha256: blob.file.size for blob in blobs}
    total = sum(sizes.values())
    if known.existing is not None:
        return f"version {known.existing} of {model} already has this content; nothing to upload"
    if not known.is_sure:
        return f"would upload at most {amount(total)}; the gateway does not respond"
    there = sum(size for digest, size in sizes.items() if digest in known.blobs)
    rest = f"; the gateway has {amount(there)}" if there else ""
    return f"would upload {amount(total - there)} in {len(blobs)} files{rest}"


def _version(admin: AdminClient, path: str) -> Mapping[str, Any]:
    """One version; empty for one of the plain model repository, which has no record."""
    try:
        page: Mapping[str, Any] = admin.get(path)
    except NotFound:
        return {}
    return page


def _document(source: PushSource, name: str) -> Mapping[str, Any]:
    """A JSON document beside the model; empty where there is none, or none that can be read."""
    file = source.find(name)
    try:
        found = json.loads(data_of(file)) if file else {}
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def findings(
    name: str, source: PushSource, blobs: Sequence[Blob], read_model: ReadModel
) -> tuple[tuple[str, str], ...]:
    """What lint says, as severity and sentence; the parts of an ensemble only the gateway knows."""
    from serve.core.versions import unverified_in
    from serve.triton.config import parse
    from serve.triton.lint import LintSubject, lint

    config = source.find(CONFIG)
    try:
        parsed = parse(data_of(config).decode("utf-8", "replace")) if config else None
        files = tuple(blob.file for blob in blobs)
        flavours = source.find(FLAVOURS)
        text = data_of(flavours).decode("utf-8", "replace") if flavours else ""
        subject = LintSubject(
            name,
            parsed,
            files,
            flavours=text,
            output_kinds=_document(source, OUTPUTS),
            unverified=unverified_in(_document(source, CONVERSION)),
        )
        model = source.find(f"{Layout.of(files).number}/{subject.readable}")
        if model is not None and isinstance(model.origin, Path):
            subject = replace(subject, signature=read_model(model.origin))
    except Invalid as error:
        return (("error", str(error)),)
    if parsed is not None and parsed.composing_models:
        return ()
    return tuple((str(one.severity), str(one)) for one in lint(subject))
