"""Subjects of benches: a version as it can be loaded somewhere, with other fields."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from serve.control.batching.served import served
from serve.control.inventory import Inventory
from serve.control.models import Models
from serve.control.publication.ensembles import PinnableVersions, PinnedStep, parts_of
from serve.control.versions import PublishedVersion
from serve.core.errors import Invalid
from serve.core.flavours import Flavour, Machine, VersionFlavours
from serve.triton.config import Configuration
from serve.triton.config_revisions import revised
from serve.triton.flavoured import configured


@dataclass(frozen=True, slots=True)
class BenchSubject:
    """One version. `name` is in Triton, `base` the configuration that it came with.

    `record` is None for a folder of the plain repository. `parts`: what an ensemble is made of,
    each as it is served now.
    """

    model: str
    number: int
    name: str
    base: Configuration
    flavours: VersionFlavours
    record: PublishedVersion | None
    parts: tuple[PinnedStep, ...] = ()

    def configured(self, fields: Mapping[str, Any], form: Flavour, machine: Machine) -> PinnedStep:
        """What is to be loaded; `Invalid` for fields that say no configuration."""
        config = configured(revised(self.base, fields), form, machine.engine_cache)
        return PinnedStep(self.name, self.number, config, self.record)

    def form(self, machine: Machine) -> Flavour:
        """The form that a replica on this machine would run; `Invalid` where there is none."""
        lacking = {}
        for one in self.flavours.candidates:
            why = one.needs.lacking(machine)
            if not why:
                return one
            lacking[one.name] = why
        raise Invalid(
            f"no flavour of version {self.number} of model '{self.model}' can run there",
            why="; ".join(f"{name}: {why}" for name, why in lacking.items()),
            try_this="pass --replica NAME with a replica that can run it",
        )


class Subjects:
    """Finds them."""

    def __init__(self, models: Models, inventory: Inventory, parts: PinnableVersions) -> None:
        self._models = models
        self._inventory = inventory
        self._parts = parts

    def __repr__(self) -> str:
        return f"<Subjects {len(self._inventory.models)} models>"

    def find(self, model: str, number: int) -> BenchSubject:
        """The version; `Invalid` for what cannot be measured, whatever is changed of it."""
        one = served(self._models, self._inventory, model, number)
        parts = tuple(map(self._as_served, parts_of(one.base, self._parts)))
        flavours = one.record.forms if one.record else one.one.flavours
        return BenchSubject(model, number, one.name, one.base, flavours, one.record, parts)

    def _as_served(self, part: PinnedStep) -> PinnedStep:
        """A part with the configuration that is in force for it."""
        one = self._inventory.loadables.get(part.name)
        if one is None or one.configuration is None:
            return part
        return replace(part, configuration=one.configuration)
