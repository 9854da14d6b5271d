"""What is served under a name in Triton, as far as its configuration can be changed.

People name a model and a version; what they change is of all versions that share a configuration.
"""

from dataclasses import dataclass

from serve.control.applied_configurations import NO_CONFIG
from serve.control.inventory import Inventory
from serve.control.models import Models
from serve.control.registry import Loadable
from serve.control.revision import Revised, revised_of
from serve.control.versions import PublishedVersion
from serve.core.errors import Invalid, NotServed
from serve.triton.config import Configuration, of_json


@dataclass(frozen=True, slots=True)
class Served:
    """One name in Triton. `base` is what it came with, `record` that of the version asked for.

    `one` is as it is run now; `decided` what was decided for it, with the ETag of that.
    """

    model: str
    version: int
    one: Loadable
    base: Configuration
    record: PublishedVersion | None
    decided: Revised

    @property
    def name(self) -> str:
        """The name in Triton."""
        return self.one.name

    @property
    def group(self) -> str:
        """What the name stands for; empty for a folder."""
        return self.record.group if self.record else ""

    @property
    def shared_with(self) -> tuple[int, ...]:
        """The other versions that are run in the same way."""
        return tuple(number for number in self.one.versions if number != self.version)

    @property
    def effective(self) -> Configuration:
        """What it is run by now, before flavours."""
        assert self.one.configuration is not None
        return self.one.configuration


def served(models: Models, inventory: Inventory, model: str, number: int) -> Served:
    """What a version is part of; `UnknownModel`, `UnknownVersion`, or `Invalid` with the reason."""
    models.version(model, number)
    if inventory.is_discovering:
        raise NotServed(
            "this gateway cannot change configurations",
            why="the Tritons load their own models",
            try_this="run servegate control --model-repo FOLDER",
        )
    one = models.get(model).model.holding(number)
    record = models.decisions.versions.get(model, {}).get(number)
    if one is None or (one.published and record is None):
        why = str(record.state) if record else "a replica loads it by itself"
        raise Invalid(f"version {number} of '{model}' has no configuration to change", why=why)
    base = record.configuration if record and one.published else _of_folder(models, inventory, one)
    if base is None:
        why = one.problem or NO_CONFIG
        raise Invalid(f"the configuration of '{model}' cannot be changed", why=why)
    record = record if one.published else None
    decided = revised_of(models.decisions, one.name, record.group if record else "")
    return Served(model, number, one, base, record, decided)


def named(models: Models, inventory: Inventory, name: str) -> Served:
    """The same by a name in Triton, for its newest version; `Invalid` where nothing bears it."""
    one = inventory.loadables.get(name)
    if one is None or not one.versions:
        raise Invalid(f"Triton no longer has a model '{name}'")
    return served(models, inventory, one.model, max(one.versions))


def _of_folder(models: Models, inventory: Inventory, one: Loadable) -> Configuration | None:
    """What a plain folder says, or a management call instead."""
    override = models.decisions.override(one.name)
    try:
        instead = None if override is None else of_json(override)
    except Invalid:
        instead = None
    return instead or inventory.plain_configuration(one.name)
