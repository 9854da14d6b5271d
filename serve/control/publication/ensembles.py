"""Ensembles: every step is pinned to a name in Triton and a number, so that no later push moves it.

A step names a model as callers do, with a version or -1. It is pinned to

| the step says      | it becomes                                                             |
|--------------------|------------------------------------------------------------------------|
| a version          | that version, which must be published or in the plain repository       |
| -1                 | the version that serves now, else the newest published, else the       |
|                    | newest that the plain repository's folder wants                        |
| what a pin says    | the same: a configuration that was pulled can be pushed again          |
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from tritonclient.grpc import model_config_pb2

from serve.control.applied_configurations import configuration_of
from serve.control.decisions import Decisions
from serve.control.placement import pinned_parts
from serve.control.registry import Loadable
from serve.control.versions import PublishedVersion
from serve.core.errors import CheckFailed
from serve.core.versions import VersionState
from serve.triton import config as triton_config
from serve.triton.config import Configuration

NEWEST = -1


@dataclass(frozen=True, slots=True)
class PinnedStep:
    """What a step is pinned to: a published version, or a number in a plain folder."""

    name: str  # in Triton
    number: int
    configuration: Configuration | None  # None: a plain folder that Triton completes
    version: PublishedVersion | None  # None: from the plain repository


class PinnableVersions:
    """What the steps of ensembles may be pinned to at this moment."""

    def __init__(
        self,
        decisions: Callable[[], Decisions],
        loadables: Callable[[], Mapping[str, Loadable]],
        serving_now: Callable[[str], int | None],
    ) -> None:
        self._decisions = decisions
        self._loadables = loadables
        self._serving_now = serving_now

    def __repr__(self) -> str:
        return f"<PinnableVersions {len(self._loadables())}>"

    def find(self, model: str, number: int = NEWEST) -> PinnedStep | None:
        """What a step of this model and version means now; None when it names nothing living."""
        if number != NEWEST:
            return (
                self._published(model, number)
                or self._plain(model, number)
                or self.at(model, number)
            )
        serving = self._serving_now(model)
        found = self.find(model, serving) if serving else None
        if found is None:
            published = [one.number for one in self._versions(model) if one.is_published]
            found = self._published(model, max(published)) if published else None
        return found or self.newest_plain(model)

    def own(self, version: PublishedVersion) -> Configuration:
        """What a checked version is run by once it is published."""
        return configuration_of(self._decisions(), version)

    def meant(self, model: str, written: int) -> PinnedStep | None:
        """As `find`, for the version of a step as it is written: 0 is what nobody has written."""
        return self.find(model, written or NEWEST)

    def at(self, name: str, number: int) -> PinnedStep | None:
        """What has this name in Triton and this number."""
        for versions in self._decisions().versions.values():
            version = versions.get(number)
            if version is not None and version.physical == name and version.is_published:
                return _part(self._decisions(), version)
        return self._plain(name, number)

    def _versions(self, model: str) -> Iterable[PublishedVersion]:
        return self._decisions().versions.get(model, {}).values()

    def _published(self, model: str, number: int) -> PinnedStep | None:
        found = [one for one in self._versions(model) if one.number == number and one.is_published]
        return _part(self._decisions(), found[0]) if found else None

    def _plain(self, name: str, number: int) -> PinnedStep | None:
        one = self._plain_folder(name)
        return (
            PinnedStep(name, number, one.configuration, None)
            if one and number in one.wanted
            else None
        )

    def newest_plain(self, name: str) -> PinnedStep | None:
        """The newest version that the plain repository's folder of this name wants."""
        one = self._plain_folder(name)
        return self._plain(name, max(one.wanted)) if one and one.wanted else None

    def _plain_folder(self, name: str) -> Loadable | None:
        one = self._loadables().get(name)
        return one if one and not one.published and not one.problem else None


def pin(configuration: Configuration, parts: PinnableVersions) -> Configuration:
    """The configuration with every step pinned; `CheckFailed` names each step that cannot be."""
    if not configuration.composing_models:
        return configuration
    message = model_config_pb2.ModelConfig()
    message.CopyFrom(configuration.message)
    missing = []
    for step in message.ensemble_scheduling.step:
        part = parts.meant(step.model_name, int(step.model_version))
        if part is None:
            number = "" if step.model_version in (0, NEWEST) else f"{step.model_version} "
            missing.append(f"no version {number}of model '{step.model_name}' is published")
        else:
            step.model_name, step.model_version = part.name, part.number
    if missing:
        raise CheckFailed(
            "the ensemble has models that are not published",
            missing,
            try_this="push these models first",
        )
    return triton_config.of_message(message)


def parts_of(configuration: Configuration, parts: PinnableVersions) -> tuple[PinnedStep, ...]:
    """All that a pinned ensemble is made of, each once, parts before what is made of them.

    `CheckFailed` when one is published no more.
    """
    seen: set[tuple[str, int]] = set()
    found: list[PinnedStep] = []

    def walk(inner: Configuration) -> None:
        for step in inner.message.ensemble_scheduling.step:
            name, number = step.model_name, int(step.model_version)
            # A plain ensemble is not pinned; its steps are names in Triton all the same.
            part = parts.at(name, number) if number > 0 else parts.newest_plain(name)
            if part is None:
                gone = f"'{name}' version {number} is no longer published"
                raise CheckFailed("a model of the ensemble is no longer published", [gone])
            if (part.name, part.number) in seen:
                continue
            seen.add((part.name, part.number))
            if part.configuration is not None:
                walk(part.configuration)
            found.append(part)

    walk(configuration)
    return tuple(found)


def ensembles_with(
    version: PublishedVersion, decisions: Decisions, states: Iterable[VersionState]
) -> tuple[str, ...]:
    """The versions in one of these states that are made of this one, as people call them."""
    slot, among = (version.physical, version.number), frozenset(states)
    return tuple(
        f"ensemble '{one.model}' version {one.number}"
        for versions in decisions.versions.values()
        for one in versions.values()
        if one.state in among and slot in pinned_parts(one)
    )


def _part(decisions: Decisions, version: PublishedVersion) -> PinnedStep:
    configuration = configuration_of(decisions, version)
    return PinnedStep(version.physical, version.number, configuration, version)
