"""Publications: an upload that is whole becomes a version with a number of its own.

Content that is known already gives the version that has it, unless another is asked for. What comes
after the number is the work of the `Pipeline`.
"""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from serve.control.models import By
from serve.control.publication.numbers import next_number
from serve.control.publication.pipeline import Pipeline
from serve.control.publication.records import IN_PROGRESS, Records
from serve.control.uploads.upload import Upload
from serve.control.versions import PublishedVersion
from serve.core.errors import Conflict, Invalid, PreconditionFailed
from serve.core.names import check_label, check_model_name
from serve.core.versions import Provenance, VersionState
from serve.processes.failpoints import reach

_KNOWN = IN_PROGRESS | {VersionState.PUBLISHED}
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._/-]{0,99}")
_MOST_TAGS, _LONGEST_TAG = 100, 1000
_NONE: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class PublicationRequest:
    """What is wanted of an upload, beyond being published.

    `labels` name it as soon as it is ready; `live`: all calls go to it then; `again`: it gets a
    number of its own although its content is known. The others tell where it comes from.
    """

    labels: tuple[str, ...] = ()
    live: bool = False
    again: bool = False
    source: str = ""
    git_commit: str = ""
    tools: Mapping[str, str] = field(default_factory=lambda: _NONE)
    tags: Mapping[str, str] = field(default_factory=lambda: _NONE)


class Publications:
    """Gives versions their numbers, and has `pipeline` publish them.

    `plain_versions` are the numbers in the plain repository's folder of a model.
    """

    def __init__(
        self,
        records: Records,
        pipeline: Pipeline,
        *,
        plain_versions: Callable[[str], tuple[int, ...]],
    ) -> None:
        self._records = records
        self._pipeline = pipeline
        self._plain_versions = plain_versions
        self._numbering = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<Publications {self._pipeline}>"

    async def run(self) -> None:
        """Work off what is uploaded or checked, for ever; what an earlier process left, too."""
        await self._pipeline.run()

    def get(self, model: str, number: int) -> PublishedVersion:
        """One version; `UnknownModel` or `UnknownVersion` when it never was."""
        return self._records.get(model, number)

    async def existing(self, model: str, content: str) -> PublishedVersion | None:
        """The newest version with this content that is published or on its way."""
        found = [
            version
            for version in self._records.of(model)
            if version.content == content and version.state in _KNOWN
        ]
        return found[-1] if found else None

    async def begin(
        self, upload: Upload, ask: PublicationRequest, by: By
    ) -> tuple[PublishedVersion, bool]:
        """The version of a whole upload, and whether it was created.

        Known content gives the version that has it, unless `ask.again`. Of several versions that
        wait for one label, or to be live, the one that was asked for last gets it.
        """
        check_model_name(upload.model)
        check_tags(ask.tags)
        for label in ask.labels:
            check_label(label)
        async with self._numbering:
            version = None
            while version is None:
                await self._records.refresh()
                known = None if ask.again else await self.existing(upload.model, upload.content)
                version = await (
                    self._join(known, ask, by) if known else self._new(upload, ask, by)
                )
            await self._take_over(version, ask, by)
        reach("commit.recorded")
        if known:
            await self._pipeline.forget(upload.id)
        self._pipeline.wake()
        return version, known is None

    async def amend(
        self,
        model: str,
        number: int,
        *,
        tags: Mapping[str, str] | None,
        labels: Sequence[str] | None,
        keep: bool | None = None,
        by: By,
    ) -> PublishedVersion:
        """Set tags, of which an empty text removes one; the labels that wait for the version; or
        whether it stays loaded although nothing refers to it.

        None leaves them. `Conflict` for labels of a version that will never be ready.
        """
        check_tags(tags or {})
        for label in labels or ():
            check_label(label)
        version = self._records.get(model, number)
        if labels and version.state not in _KNOWN:
            raise Conflict(
                f"version {number} of model '{model}' cannot have pending labels",
                why=f"its state is '{version.state.value}'",
            )
        if keep and version.state not in _KNOWN:
            raise Conflict(
                f"version {number} of model '{model}' cannot be loaded",
                why=f"its state is '{version.state.value}'",
                try_this=f"servegate model restore {model}@{number}"
                if version.state is VersionState.RETIRED
                else "",
            )

        def edit(present: PublishedVersion) -> PublishedVersion:
            merged = {k: v for k, v in {**present.tags, **(tags or {})}.items() if v}
            check_tags(merged)
            waiting = present.labels if labels is None else tuple(dict.fromkeys(labels))
            return replace(
                present,
                tags=MappingProxyType(merged),
                labels=waiting,
                keep=present.keep if keep is None else keep,
            )

        amended = await self._records.change(version, edit, by)
        if amended is None:
            raise Conflict(
                f"another request has just changed version {number} of model '{model}'",
                try_this="repeat the request",
            )
        await self._take_over(amended, PublicationRequest(labels=tuple(labels or ())), by)
        return amended

    async def _new(
        self, upload: Upload, ask: PublicationRequest, by: By
    ) -> PublishedVersion | None:
        """A record under the next number; None when somebody else has just taken that."""
        now = self._records.now
        plain = self._plain_versions(upload.model)
        version = PublishedVersion(
            model=upload.model,
            number=next_number(self._records.of(upload.model), plain),
            state=VersionState.UPLOADED,
            content=upload.content,
            provenance=Provenance(by.author, now, ask.source, ask.git_commit, ask.tools),
            upload=upload.id,
            size=sum(file.size for file in upload.files),
            labels=tuple(dict.fromkeys(ask.labels)),
            live=ask.live,
            tags=ask.tags,
            times=MappingProxyType({VersionState.UPLOADED.value: now}),
        )
        try:
            return await self._records.create(version, replace(by, if_match=""))
        except PreconditionFailed:
            return None

    async def _join(
        self, known: PublishedVersion, ask: PublicationRequest, by: By
    ) -> PublishedVersion | None:
        """The version that has this content, with what is newly asked; None when it moves on."""

        def edit(present: PublishedVersion) -> PublishedVersion:
            tags = {**present.tags, **ask.tags}
            check_tags(tags)
            return replace(
                present,
                labels=tuple(dict.fromkeys((*present.labels, *ask.labels))),
                live=present.live or ask.live,
                tags=MappingProxyType(tags),
            )

        return await self._records.change(known, edit, replace(by, if_match=""))

    async def _take_over(self, version: PublishedVersion, ask: PublicationRequest, by: By) -> None:
        """What this version waits for, no other version of the model waits for any more."""
        for other in self._records.of(version.model):
            if other.number == version.number or not (other.labels or other.live):
                continue
            await self._records.change(
                other,
                lambda present: replace(
                    present,
                    labels=tuple(label for label in present.labels if label not in ask.labels),
                    live=present.live and not ask.live,
                ),
                By(by.author, f"superseded by version {version.number}"),
            )


def check_tags(tags: Mapping[str, str]) -> None:
    """`Invalid` for more or longer tags than people can read."""
    if len(tags) > _MOST_TAGS:
        raise Invalid(f"the version has {len(tags)} tags", why=f"the limit is {_MOST_TAGS}")
    for name, text in tags.items():
        if not _TAG.fullmatch(name) or len(text) > _LONGEST_TAG:
            raise Invalid(
                f"the tag '{name[:200]}' is not valid",
                why="a tag's name has up to 100 letters, digits, '.', '_', '-' or '/', and its "
                f"value up to {_LONGEST_TAG} characters",
            )
