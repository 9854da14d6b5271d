"""A push from end to end: source, digests, upload, commit and result."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import serve
from serve.cli.channel import Channel
from serve.cli.client import AdminClient
from serve.cli.digests import Blob, digest, size_of
from serve.cli.dry_run import ask_known, findings, plan
from serve.cli.onnx_file import ReadModel
from serve.cli.pieces import PushSource
from serve.cli.push_progress import VersionFollower, conclusion
from serve.cli.sources import open_source
from serve.cli.talk import CommandTalk, amount, stage
from serve.cli.uploads import CommittedVersion, Uploading
from serve.core.errors import CheckFailed
from serve.core.versions import check_files, content_digest


@dataclass(frozen=True, slots=True)
class PushRequest:
    """What is wanted beyond being published. `wait` is seconds, None for not waiting."""

    labels: tuple[str, ...] = ()
    live: bool = False
    again: bool = False
    git_commit: str = ""
    tags: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    wait: float | None = None

    def ask(self, source: PushSource) -> dict[str, Any]:
        """The body of the commit."""
        return {
            "labels": list(self.labels),
            "live": self.live,
            "again": self.again,
            "source": f"{source.kind} {source.name}",
            "git_commit": self.git_commit,
            "tools": {"servegate": serve.__version__, **source.tools},
            "tags": {**source.tags, **self.tags},
        }


class Pushing:
    """One push of one model. `committed` is None until the gateway has given it a number."""

    def __init__(self, admin: AdminClient, talk: CommandTalk, *, model: str) -> None:
        self._admin = admin
        self._model = model
        self.talk = talk
        self.committed: CommittedVersion | None = None

    def __repr__(self) -> str:
        return f"<Pushing {self._model}: {self.committed}>"

    def open(
        self, path: Path, read_model: ReadModel, *, version: int | None, is_converting: bool
    ) -> PushSource:
        """What lies at the path; `Invalid` says why it cannot be pushed."""
        source = open_source(path, self._model, read_model=read_model, version=version)
        if is_converting:
            self.talk.tell("note", "--convert is ignored: the model needs no conversion")
        return self.take(source)

    def take(self, source: PushSource) -> PushSource:
        """A source that is open already; its notes are told."""
        for note in source.notes:
            self.talk.tell("note", note)
        return source

    def take_digests(self, source: PushSource) -> tuple[Blob, ...]:
        """The source's files with digests, checked as the gateway checks them; `Invalid`."""
        total = size_of(source.pieces)
        with stage(self.talk, "hashing", total):
            blobs = digest(source.pieces, self.talk.advance)
        files = check_files([blob.file for blob in blobs])
        content = content_digest(files)
        self.talk.tell("digest", files=len(files), bytes=total, content=content)
        return blobs

    def rehearse(
        self, source: PushSource, blobs: tuple[Blob, ...], read_model: ReadModel
    ) -> dict[str, Any]:
        """What `run` would do, without doing it; `CheckFailed` for what lint does not let pass."""
        known = ask_known(self._admin, self._model, blobs)
        found = findings(self._model, source, blobs, read_model)
        self.talk.tell("plan", plan(known, blobs, self._model))
        for severity, sentence in found:
            self.talk.tell("finding", f"{severity}: {sentence}", severity=severity, why=sentence)
        errors = [sentence for severity, sentence in found if severity == "error"]
        if errors:
            raise CheckFailed("the gateway would reject this version", errors)
        return {
            "model": self._model,
            "existing": known.existing,
            "files": [
                blob.file.to_json()
                | {"there": blob.file.sha256 in known.blobs if known.is_sure else None}
                for blob in blobs
            ],
        }

    async def run(
        self, source: PushSource, blobs: tuple[Blob, ...], wish: PushRequest
    ) -> dict[str, Any]:
        """Upload, commit and follow as far as it is wished; what there is to tell programs."""
        async with self._admin.asynchronous() as client:
            channel = Channel(client, self.talk)
            uploading = Uploading(channel, self.talk, model=self._model, blobs=blobs)
            try:
                self.committed = await uploading.publish(wish.ask(source))
            finally:
                self._tell_sent(uploading)
            self._tell_committed(self.committed)
            page: dict[str, Any] = {
                "model": self._model,
                "version": self.committed.version,
                "created": self.committed.created,
                "state": self.committed.state,
                "sent": uploading.sent,
                "total": uploading.total,
            }
            if wish.wait is None:
                look = f"servegate model show {self._model}@{self.committed.version}"
                self.talk.tell(
                    "note",
                    f"the gateway checks and publishes the version; to see its state: {look}",
                )
                return page
            return page | await self._follow(channel, self.committed.version, wish.wait)

    def stopped(self) -> str:
        """What to say after Ctrl-C: what goes on without us, and how to look."""
        if self.committed is None:
            return "stopped; run the same command again to resume the upload"
        number = self.committed.version
        look = f"servegate model show {self._model}@{number}"
        return f"stopped; the publication of version {number} continues; to see its state: {look}"

    async def _follow(self, channel: Channel, number: int, within: float) -> dict[str, Any]:
        following = VersionFollower(channel, self.talk, model=self._model, number=number)
        standing, model = await following.until_ready(within)
        self.talk.tell("note", conclusion(model, number, standing.replicas))
        return {"state": standing.state, "replicas": standing.replicas}

    def _tell_sent(self, uploading: Uploading) -> None:
        sent, total = amount(uploading.sent), amount(uploading.total)
        text = f"uploaded {sent} of {total}; the gateway had the rest"
        if uploading.sent == uploading.total:
            text = f"uploaded {sent}"
        elif uploading.sent > uploading.total:
            text = f"uploaded {sent} for {total}, because parts were sent again"
        if uploading.sent:
            self.talk.tell("sent", text, sent=uploading.sent)

    def _tell_committed(self, committed: CommittedVersion) -> None:
        name = f"version {committed.version}"
        text = f"created {name} of {self._model}"
        if not committed.created:
            text = f"{name} of {self._model} already has this content ({committed.state})"
        self.talk.tell(
            "committed",
            text,
            model=self._model,
            version=committed.version,
            created=committed.created,
            state=committed.state,
        )
