"""What Triton can load: one configuration with its versions, under one name in Triton.

A loadable comes from a folder of the plain model repository, which people keep by hand; or from
versions that were published (`control/inventory.py`). A folder that cannot be read is a loadable,
too, with its problem: it is shown, not served, and harms no other. Replicas without a repository of
ours are asked instead, see `discovered`. A model is a name that callers use, with its loadables.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from serve.core.errors import Invalid
from serve.core.flavours import VersionFlavours
from serve.core.names import check_model_name
from serve.core.versions import MODEL_CARD, OUTPUTS, PREPROCESSING
from serve.tensors.output_kinds import label_files, parse_outputs
from serve.triton import config as triton_config
from serve.triton.config import Configuration
from serve.triton.layout import ModelFolder, model_folders

_EMPTY: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Loadable:
    """What one load call brings. `wanted` are the versions that replicas should hold.

    `configuration` is None for a folder without config.pbtxt: Triton completes it, and chooses the
    version by its default policy. `problem` says why nothing of it is served; `trouble` why what is
    on disk now is not, so that what was read before stays in force. `unloaded` says that somebody
    wants it not to be served, whatever the folder says. `of` is the model's name for callers where
    it differs from the name in Triton. `flavours` are its forms, of which a replica runs one: then
    `configuration` is that of its `flavour`, see `control/reconciliation/flavours.py`. `revision`
    is the ETag of the decision that changes the configuration, empty where there is none;
    `passed_over` says why it is not in force.
    """

    name: str
    versions: tuple[int, ...]
    wanted: tuple[int, ...]
    configuration: Configuration | None
    fingerprint: str
    problem: str = ""
    trouble: str = ""
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: _EMPTY)
    preprocessing: Mapping[str, Any] = field(default_factory=lambda: _EMPTY)
    output_kinds: Mapping[str, Any] = field(default_factory=lambda: _EMPTY)
    card: Mapping[str, Any] = field(default_factory=lambda: _EMPTY)
    unloaded: bool = False
    of: str = ""
    published: bool = False
    flavours: VersionFlavours = field(default_factory=VersionFlavours)
    flavour: str = ""
    revision: str = ""
    passed_over: str = ""

    @property
    def model(self) -> str:
        """The name that callers use."""
        return self.of or self.name

    @property
    def composing_models(self) -> tuple[str, ...]:
        """The names in Triton of what must be loaded before this."""
        return self.configuration.composing_models if self.configuration else ()


@dataclass(frozen=True, slots=True)
class Model:
    """A name that callers use, and what Triton loads for it: the plain folder first, if any.

    It has no loadables as long as no version of it was published.
    """

    name: str
    loadables: tuple[Loadable, ...]

    @property
    def versions(self) -> tuple[int, ...]:
        """The versions that could be loaded, ascending."""
        return tuple(sorted({v for one in self.loadables for v in one.versions}))

    @property
    def wanted(self) -> tuple[int, ...]:
        """The versions that replicas should hold, ascending."""
        return tuple(sorted({v for one in self.loadables for v in one.wanted}))

    @property
    def problem(self) -> str:
        """Why nothing of the model is served; empty if something is."""
        problems = [one.problem for one in self.loadables]
        return problems[0] if problems and all(problems) else ""

    @property
    def unloaded(self) -> bool:
        """Whether somebody has unloaded it."""
        return any(one.unloaded for one in self.loadables)

    @property
    def newest(self) -> Loadable | None:
        """What holds the highest version: its label texts, preprocessing and card are shown."""
        return max(self.loadables, key=lambda one: max(one.versions, default=0), default=None)

    def holding(self, version: int) -> Loadable | None:
        """The loadable that a version belongs to."""
        return next((one for one in self.loadables if version in one.versions), None)


class Registry:
    """The folders of a plain model repository. `scan` is called whenever it may have changed."""

    def __init__(self, repository: Path) -> None:
        self._repository = repository
        self._models: Mapping[str, Loadable] = MappingProxyType({})
        self._changing: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"<Registry {self._repository} models={len(self._models)}>"

    @property
    def models(self) -> Mapping[str, Loadable]:
        """A loadable of each folder by its name, those with problems included."""
        return self._models

    def scan(self, *, settled: bool = False) -> bool:
        """Read the folder anew; whether anything changed. Unchanged models are not read again.

        With `settled`, a model that has changed is read only when the scan before saw it so:
        somebody may still be copying or writing it.
        """
        found: dict[str, Loadable] = {}
        changing: dict[str, str] = {}
        for folder in model_folders(self._repository):
            known = self._models.get(folder.name)
            try:
                fingerprint = folder.fingerprint()
            except FileNotFoundError:  # it changes under our hands: the next scan sees it whole
                if known is not None:
                    found[folder.name] = known
                continue
            except OSError as error:
                broken = _broken(folder, "", known.versions if known else (), error)
                found[folder.name] = _or_before(known, broken)
                continue
            if known is not None and known.fingerprint == fingerprint:
                found[folder.name] = known
            elif settled and self._changing.get(folder.name) != fingerprint:
                changing[folder.name] = fingerprint
                if known is not None:
                    found[folder.name] = known
            else:
                found[folder.name] = _or_before(known, _read(folder, fingerprint))
        self._changing = changing
        changed = found != dict(self._models)
        self._models = MappingProxyType(found)
        return changed


def _or_before(known: Loadable | None, read: Loadable) -> Loadable:
    """What was read, unless it cannot be served and what was read before can."""
    if not read.problem or known is None or known.problem:
        return read
    wanted = tuple(version for version in known.wanted if version in read.versions)
    if not wanted:
        return read
    return replace(
        known,
        versions=read.versions,
        wanted=wanted,
        fingerprint=read.fingerprint,
        trouble=read.problem,
    )


def discovered(
    held: Mapping[str, tuple[int, ...]], configs: Mapping[str, Configuration]
) -> Mapping[str, Loadable]:
    """Models as the replicas themselves show them: what is ready is what exists."""
    return MappingProxyType(
        {
            name: Loadable(
                name=name,
                versions=versions,
                wanted=versions,
                configuration=configs.get(name),
                fingerprint="",
            )
            for name, versions in held.items()
        }
    )


def _read(folder: ModelFolder, fingerprint: str) -> Loadable:
    """One folder as a model; what is wrong with it becomes its problem."""
    versions: tuple[int, ...] = ()
    try:
        versions = folder.versions()
        check_model_name(folder.name)
        text = folder.config_text()
        configuration = triton_config.parse(text) if text is not None else None
        if not versions:
            raise Invalid("there is no version folder", try_this=f"mkdir {folder.name}/1")
        wanted = configuration.wanted(versions) if configuration else versions[-1:]
        if not wanted:
            raise Invalid(
                "the version policy selects no existing version",
                why=f"the versions on disk are: {', '.join(map(str, versions))}",
            )
        flavours = VersionFlavours.parse(folder.flavours_text() or "")
        if flavours.preferred and configuration is None:
            raise Invalid("flavours.json needs a config.pbtxt, and there is none")
        output_kinds, output_labels = _outputs(folder)
        return Loadable(
            name=folder.name,
            versions=versions,
            wanted=wanted,
            configuration=configuration,
            fingerprint=fingerprint,
            flavours=flavours,
            labels=MappingProxyType(_labels(folder, configuration) | output_labels),
            preprocessing=folder.document(PREPROCESSING) or _EMPTY,
            output_kinds=output_kinds,
            card=folder.document(MODEL_CARD) or _EMPTY,
        )
    except (Invalid, OSError) as error:
        return _broken(folder, fingerprint, versions, error)


def _broken(
    folder: ModelFolder, fingerprint: str, versions: tuple[int, ...], error: Exception
) -> Loadable:
    return Loadable(folder.name, versions, (), None, fingerprint, problem=str(error))


def _outputs(folder: ModelFolder) -> tuple[Mapping[str, Any], dict[str, tuple[str, ...]]]:
    """What outputs.json declares, and its label texts.

    A wrong one declares nothing: lint reports it, and the model is served all the same.
    """
    try:
        document = folder.document(OUTPUTS) or {"outputs": {}}
        files = label_files(parse_outputs(document))
        return document["outputs"], {name: folder.labels(file) for name, file in files.items()}
    except Invalid:
        return _EMPTY, {}


def _labels(folder: ModelFolder, configuration: Configuration | None) -> dict[str, tuple[str, ...]]:
    if configuration is None:
        return {}
    return {output: folder.labels(file) for output, file in configuration.label_files.items()}
