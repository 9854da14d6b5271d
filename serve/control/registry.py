"""The registry: which models and versions exist, read from a model repository on disk.

A model that cannot be read is still in the registry, with its problem: it is shown, not served, and
harms no other. Replicas without a repository of ours are asked instead, see `discover`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from serve.core.errors import Invalid
from serve.core.naming import check_model_name
from serve.triton import config as triton_config
from serve.triton.config import Configuration
from serve.triton.layout import MODEL_CARD, PREPROCESSING, ModelFolder, model_folders

_EMPTY: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Model:
    """One model as it exists. `wanted` are the versions that replicas should hold.

    `configuration` is None for a model without config.pbtxt: Triton completes it, and chooses the
    version by its default policy. `problem` says why a model is not served at all; `trouble` why
    what is on disk now is not, so that what was read before stays in force. `unloaded` says that
    somebody wants it not to be served, whatever the folder says.
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
    card: Mapping[str, Any] = field(default_factory=lambda: _EMPTY)
    unloaded: bool = False

    @property
    def composing_models(self) -> tuple[str, ...]:
        """The models that must be loaded before this one."""
        return self.configuration.composing_models if self.configuration else ()


class Registry:
    """The models in one repository folder. `scan` is called again whenever it may have changed."""

    def __init__(self, repository: Path) -> None:
        self._repository = repository
        self._models: Mapping[str, Model] = MappingProxyType({})
        self._changing: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"<Registry {self._repository} models={len(self._models)}>"

    @property
    def models(self) -> Mapping[str, Model]:
        """All models by name, those with problems included."""
        return self._models

    def scan(self, *, settled: bool = False) -> bool:
        """Read the folder anew; whether anything changed. Unchanged models are not read again.

        With `settled`, a model that has changed is read only when the scan before saw it so:
        somebody may still be copying or writing it.
        """
        found: dict[str, Model] = {}
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


def _or_before(known: Model | None, read: Model) -> Model:
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
) -> Mapping[str, Model]:
    """Models as the replicas themselves show them: what is ready is what exists."""
    return MappingProxyType(
        {
            name: Model(
                name=name,
                versions=versions,
                wanted=versions,
                configuration=configs.get(name),
                fingerprint="",
            )
            for name, versions in held.items()
        }
    )


def _read(folder: ModelFolder, fingerprint: str) -> Model:
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
                "the version policy names no version that exists",
                why=f"on disk: {', '.join(map(str, versions))}",
            )
        return Model(
            name=folder.name,
            versions=versions,
            wanted=wanted,
            configuration=configuration,
            fingerprint=fingerprint,
            labels=MappingProxyType(_labels(folder, configuration)),
            preprocessing=folder.document(PREPROCESSING) or _EMPTY,
            card=folder.document(MODEL_CARD) or _EMPTY,
        )
    except (Invalid, OSError) as error:
        return _broken(folder, fingerprint, versions, error)


def _broken(
    folder: ModelFolder, fingerprint: str, versions: tuple[int, ...], error: Exception
) -> Model:
    return Model(folder.name, versions, (), None, fingerprint, problem=str(error))


def _labels(folder: ModelFolder, configuration: Configuration | None) -> dict[str, tuple[str, ...]]:
    if configuration is None:
        return {}
    return {output: folder.labels(file) for output, file in configuration.label_files.items()}
