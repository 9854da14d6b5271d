"""The pipeline: the way of a version from its upload to being published, driven by its record.

| the record says | what is done next                                      | then            |
|-----------------|--------------------------------------------------------|-----------------|
| uploaded        | the checks; its canonical configuration and its name   | checked         |
| checked         | quarantine and contract, the manifest into the storage | published       |
| published       | its upload is forgotten                                |                 |
| failed          | its upload is forgotten                                |                 |

Each step can be done again and gives the same, so whoever starts after a crash goes on from what
the records say. What is wrong with the version makes it FAILED, with every reason; where only the
surroundings fail (storage, database, disk) the step is tried again after a growing pause.

Holding: publishing a version moves no calls, so what serves by default is written down first.

A model without a route serves its newest version. Before another one may come, the route gets what
serves now; from then on people decide.
"""

import asyncio
import logging
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from serve.control.artifacts.storage import ArtifactStorage
from serve.control.decisions import ROUTE
from serve.control.models import By
from serve.control.publication.checks import Checker
from serve.control.publication.numbers import manifest_of, name_in_triton
from serve.control.publication.records import IN_PROGRESS, SERVEGATE, Records
from serve.control.publication.trials import Trials
from serve.control.uploads.uploads import Uploads
from serve.control.versions import PublishedVersion
from serve.core.errors import (
    CannotStart,
    CheckFailed,
    NoSpace,
    PreconditionFailed,
    ServegateError,
    Unavailable,
)
from serve.core.versions import CONFIG, VersionFile, VersionState
from serve.processes.failpoints import reach

# --- holding --------------------------------------------------------------------------------------


class DefaultRoutes:
    """Keeps the calls of a model where they are. `serving_now` gives the version they go to."""

    def __init__(self, records: Records, serving_now: Callable[[str], int | None]) -> None:
        self._records = records
        self._serving_now = serving_now

    def __repr__(self) -> str:
        return f"<DefaultRoutes {self._records}>"

    async def hold(self, model: str, newcomer: int) -> None:
        """Pin what serves now, before this version comes; nothing where there is a route."""
        serving = self._serving_now(model)
        if serving in (None, newcomer) or self._records.decisions.route(model) is not None:
            return
        reason = f"traffic stays on version {serving} while version {newcomer} is published"
        try:
            await self._records.set(
                ROUTE, model, {"split": {str(serving): 100}}, By(SERVEGATE, reason)
            )
        except PreconditionFailed:
            pass  # another request has just set one


# --- the pipeline ---------------------------------------------------------------------------------


_log = logging.getLogger("servegate.pipeline")
TICK = 1.0  # seconds between two looks at the records, which others may write, too
SHORTEST, LONGEST = 1.0, 60.0  # seconds between two attempts while the surroundings fail
_LONGEST_REASON = 20_000  # characters; a parser may quote a whole line, and that a whole file
_SURROUNDINGS = (Unavailable, NoSpace, CannotStart, OSError)
_DONE = frozenset({VersionState.PUBLISHED, VersionState.FAILED})


@dataclass(frozen=True, slots=True)
class _Pause:
    """A step is tried again at `until` (monotonic seconds); `length` seconds lie between."""

    until: float
    length: float


class Pipeline:
    """Publishes versions one after the other, the oldest first.

    `has_plain` says whether the plain repository has a folder of this name. `folder` is where
    checks and trials work; what is in it at the start was left by a crash.
    """

    def __init__(
        self,
        records: Records,
        storage: ArtifactStorage,
        uploads: Uploads,
        *,
        checker: Checker,
        trials: Trials,
        holding: DefaultRoutes,
        has_plain: Callable[[str], bool],
        folder: Path,
        clock: Callable[[], float],
    ) -> None:
        self._records = records
        self._storage = storage
        self._uploads = uploads
        self._checker = checker
        self._trials = trials
        self._holding = holding
        self._has_plain = has_plain
        self._folder = folder
        self._clock = clock
        self._news = asyncio.Event()
        self._pauses: dict[str, _Pause] = {}

    def __repr__(self) -> str:
        waiting = sum(version.state in IN_PROGRESS for version in self._records.all())
        return f"<Pipeline waiting={waiting} paused={len(self._pauses)}>"

    def wake(self) -> None:
        """Look at the records now: one of them is new."""
        self._news.set()

    async def run(self) -> None:
        """Work off what is uploaded or checked, for ever; what an earlier process left, too."""
        await asyncio.to_thread(_empty, self._folder)
        while True:
            self._news.clear()
            await self.round()
            try:
                async with asyncio.timeout(TICK):
                    await self._news.wait()
            except TimeoutError:
                pass

    async def round(self) -> None:
        """Take every version that is on its way as far as it goes now."""
        waiting = [one for one in self._records.all() if one.state in IN_PROGRESS]
        for version in sorted(
            waiting, key=lambda one: one.times.get(VersionState.UPLOADED.value, 0.0)
        ):
            pause = self._pauses.get(version.key)
            if pause is None or pause.until <= self._clock():
                await self._advance(version)
        try:
            await self._forget_done()
        except (ServegateError, OSError) as error:
            _log.warning("cannot delete a finished upload yet: %s", error)

    async def _advance(self, version: PublishedVersion) -> None:
        """Step by step, until it is published, has failed, or the surroundings fail."""
        present: PublishedVersion | None = version
        try:
            while present is not None and present.state in IN_PROGRESS:
                present = await self._step_or_fail(present)
            self._pauses.pop(version.key, None)
        except (ServegateError, OSError) as error:
            await self._pause(present or version, error)

    async def _step_or_fail(self, version: PublishedVersion) -> PublishedVersion | None:
        """The version after its next step; None when somebody else has moved it meanwhile."""
        try:
            step = self._check if version.state is VersionState.UPLOADED else self._publish
            return await step(version)
        except _SURROUNDINGS:
            raise
        except ServegateError as error:
            findings = error.findings if isinstance(error, CheckFailed) else ()
            return await self._fail(version, str(error), findings)
        except Exception:
            _log.exception("publishing %s failed", version.key)
            return await self._fail(version, "an error in Servegate; see its log", ())

    async def _check(self, version: PublishedVersion) -> PublishedVersion | None:
        files = self._uploads.get(version.upload).files
        checked = await self._checker.check(version, files)
        reach("check.passed")
        async with self._records.collecting:
            await self._storage.add_bytes(checked.config.encode())
            moved = await self._move(
                version,
                VersionState.CHECKED,
                lambda present: replace(
                    present,
                    physical=name_in_triton(
                        version.model, checked.group, self._records.all(), self._has_plain
                    ),
                    group=checked.group,
                    config=checked.config,
                    flavours=checked.flavours,
                    has_contract=checked.has_contract,
                    findings=checked.findings,
                    signature=checked.signature,
                    output_labels=checked.output_labels,
                    preprocessing=checked.preprocessing,
                    output_kinds=checked.output_kinds,
                    card=checked.card,
                ),
            )
        reach("check.recorded")
        return moved

    async def _publish(self, version: PublishedVersion) -> PublishedVersion | None:
        files = self._uploads.get(version.upload).files
        size, sha256 = await self._storage.add_bytes(version.config.encode())
        manifest = manifest_of(version, files, VersionFile(CONFIG, size, sha256))
        tried = await self._trials.run(version, manifest)
        reach("quarantine.passed")
        async with self._records.collecting:
            await self._storage.put_manifest(manifest)
            reach("manifest.written")
            await self._holding.hold(version.model, version.number)
            moved = await self._move(
                version,
                VersionState.PUBLISHED,
                lambda present: replace(
                    present,
                    size=manifest.size,
                    memory=tried.memory,
                    findings=(*present.findings, *tried.findings),
                ),
            )
            reach("publish.recorded")
            await self._forget_done()
        return moved

    async def _move(
        self,
        version: PublishedVersion,
        state: VersionState,
        edit: Callable[[PublishedVersion], PublishedVersion],
        reason: str = "",
    ) -> PublishedVersion | None:
        """Write the version's next state, and what is known of it by then."""
        verb = "" if state is VersionState.FAILED else "is "
        told = f"version {version.number} {verb}{state.value}" + (f": {reason}" if reason else "")
        return await self._records.change(
            version,
            lambda present: edit(present).moved(state, self._records.now, reason=reason),
            By(SERVEGATE, told),
        )

    async def _fail(
        self, version: PublishedVersion, error: str, findings: Sequence[str]
    ) -> PublishedVersion | None:
        found = tuple(findings)
        return await self._move(
            version,
            VersionState.FAILED,
            lambda present: replace(present, findings=(*found, *present.findings)),
            error if len(error) <= _LONGEST_REASON else f"{error[:_LONGEST_REASON]}…",
        )

    async def _pause(self, version: PublishedVersion, error: Exception) -> None:
        """Wait before the next attempt, and say so where people look, if that can be written."""
        known = self._pauses.get(version.key)
        length = min(known.length * 2, LONGEST) if known else SHORTEST
        self._pauses[version.key] = _Pause(self._clock() + length, length)
        _log.warning("publishing %s is retried in %g s: %s", version.key, length, error)
        told = f"publishing is retried: {error}"
        try:
            await self._records.change(
                version,
                lambda present: replace(present, reason=told),
                By(SERVEGATE, f"publishing version {version.number} is retried: {error}"),
            )
        except (ServegateError, OSError) as another:
            _log.warning("cannot record this either: %s", another)

    # --- uploads that are done -------------------------------------------------------------------

    async def forget(self, upload: str) -> None:
        """Drop an upload, unless a version that is on its way is made of it."""
        if upload not in {one.upload for one in self._records.all() if one.state in IN_PROGRESS}:
            await self._uploads.forget(upload)
            reach("upload.forgotten")

    async def _forget_done(self) -> None:
        """Drop the uploads of versions that are done, unless they were asked for again since."""
        begun = {upload.id: upload.begun for upload in self._uploads.all()}
        for version in self._records.all() if begun else ():
            ended = version.times.get(version.state.value, 0.0)
            if version.state in _DONE and begun.get(version.upload, ended + 1) <= ended:
                await self.forget(version.upload)


def _empty(folder: Path) -> None:
    """Make the folder, without anything in it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
