"""The checks of a changed configuration before it is written: lint, and a trial in quarantine.

What was wrong before is not the change's fault: only findings that it brings keep it from being
made. A trial loads the version with the changed configuration in a throw-away Triton, in all forms
that this machine can run, and runs its contract there.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from serve.control.artifacts.contents import Contents
from serve.control.artifacts.storage import ArtifactStorage
from serve.control.batching.served import Served
from serve.control.publication.trials import Trials
from serve.core.errors import CheckFailed, Invalid, NotFound, TrialFailed, Unavailable
from serve.core.versions import VersionFile
from serve.tensors.signature import ModelSignature
from serve.triton.config import Configuration
from serve.triton.layout import ModelFolder
from serve.triton.lint import Diagnosis, LintSubject, Severity, lint

_NO_DIGEST = "0" * 64


class Checks:
    """Looks at configurations. `plain` is the plain model repository, if there is one; `others`
    are all that can be loaded, by name in Triton: what ensembles may be made of."""

    def __init__(
        self,
        storage: ArtifactStorage,
        trials: Trials | None,
        *,
        plain: Path | None,
        others: Callable[[], Mapping[str, Configuration]],
    ) -> None:
        self._storage = storage
        self._contents = Contents(storage)
        self._trials = trials
        self._plain = plain
        self._others = others

    def __repr__(self) -> str:
        return f"<Checks {self._trials!r}>"

    async def findings(self, served: Served, config: Configuration) -> tuple[Diagnosis, ...]:
        """What lint says of it with this configuration."""
        return await _lint(await self._subject(served), config)

    async def require_sound(self, served: Served, config: Configuration) -> tuple[Diagnosis, ...]:
        """The same; `CheckFailed` when it is wrong in some way that it was not before."""
        subject = await self._subject(served)
        before = set(await _lint(subject, served.base))
        found = await _lint(subject, config)
        errors = [one for one in found if one.severity is Severity.ERROR and one not in before]
        if errors:
            raise CheckFailed(
                f"the configuration of '{served.model}' was not changed",
                [str(one) for one in errors],
            )
        return found

    async def require_good(self, served: Served, config: Configuration) -> bool:
        """Try it; `CheckFailed` says why it is not fit. Whether there was a Triton to try it."""
        if self._trials is None:
            return False
        try:
            if served.record is None:
                return await self._trials.try_plain(served.one, config)
            manifest = await self._storage.manifest(served.model, served.version)
            tried = await self._trials.run(served.record, manifest, config)
            return tried.memory is not None
        except TrialFailed as error:
            why = f"{error.what}: {error.why}" if error.why else error.what
            raise CheckFailed(
                f"the configuration of '{served.model}' failed its trial and was not changed", [why]
            ) from error

    async def _subject(self, served: Served) -> LintSubject:
        """The version with its own configuration, as far as it can be known here."""
        signature, flavours = None, ""
        if served.record is not None:
            flavours = served.record.flavours
            if served.record.signature:
                signature = ModelSignature.from_json(served.record.signature)
        return LintSubject(
            served.model,
            served.base,
            await self._files(served),
            signature=signature,
            others=self._others(),
            flavours=flavours,
        )

    async def _files(self, served: Served) -> tuple[VersionFile, ...]:
        try:
            if served.record is not None:
                return (await self._storage.manifest(served.model, served.version)).files
        except (NotFound, Unavailable, Invalid):
            return ()
        if self._plain is None:
            return ()
        return await asyncio.to_thread(_files_in, ModelFolder(self._plain / served.name))


async def _lint(subject: LintSubject, config: Configuration) -> tuple[Diagnosis, ...]:
    return tuple(await asyncio.to_thread(lint, replace(subject, config=config)))


def _files_in(folder: ModelFolder) -> tuple[VersionFile, ...]:
    """What lies in a model's folder; lint looks at the names."""
    try:
        paths = [path for path in folder.path.rglob("*") if path.is_file()]
        return tuple(
            VersionFile(path.relative_to(folder.path).as_posix(), path.stat().st_size, _NO_DIGEST)
            for path in sorted(paths)
        )
    except OSError:
        return ()
