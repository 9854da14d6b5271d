"""Applying: what a version is run by, its own configuration with what people have changed of it.

| what was decided for its name in Triton     | it is run by                                    |
|---------------------------------------------|-------------------------------------------------|
| nothing, or it was meant for another group  | its own configuration                           |
| fields that can be applied                  | its own configuration with them                 |
| fields that can be applied no more          | its own configuration; somebody is told why     |

So a decision that has grown old never takes a model down.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from serve.control.decisions import Decisions
from serve.control.registry import Loadable
from serve.control.revision import CONFIGURATION, Revised, revised_of
from serve.control.versions import PublishedVersion
from serve.core.errors import Invalid
from serve.triton.config import Configuration
from serve.triton.config_revisions import revised

NO_CONFIG = "it has no config.pbtxt that could be changed"
_KEPT = 1024  # results of the same base and decision, which are asked for again and again


@dataclass(frozen=True, slots=True)
class Applied:
    """What a version is run by; `trouble` says why what was decided is passed over."""

    configuration: Configuration
    trouble: str = ""


def effective(base: Configuration, decided: Revised) -> Applied:
    """A configuration with what was decided."""
    if not decided.fields:
        return Applied(base)
    return _effective(_Base(base), _Decided(decided))


def configuration_of(decisions: Decisions, version: PublishedVersion) -> Configuration:
    """What a published version is run by, before flavours; its own before it is checked."""
    if not version.config or not version.physical:
        return version.configuration
    decided = revised_of(decisions, version.physical, version.group)
    return effective(version.configuration, decided).configuration


def applied_to(one: Loadable, decisions: Decisions, group: str = "") -> Loadable:
    """A loadable as it is to be run. `group` is that of a published one."""
    entry = decisions.entry(CONFIGURATION, one.name)
    if not entry.revision or one.problem:
        return one
    decided = revised_of(decisions, one.name, group)
    if one.configuration is None:
        return replace(one, passed_over=NO_CONFIG if decided.fields else "")
    found = effective(one.configuration, decided)
    return replace(
        one,
        configuration=found.configuration,
        passed_over=found.trouble,
        revision=decided.etag,
    )


def all_applied(loadables: Mapping[str, Loadable], decisions: Decisions) -> Mapping[str, Loadable]:
    """Those of plain folders among these names that something was decided for, as applied."""
    return {
        name: applied_to(one, decisions)
        for name, one in loadables.items()
        if decisions.entry(CONFIGURATION, name).revision
    }


@dataclass(frozen=True, slots=True, eq=False)
class _Base:
    """A configuration that is told from others by being another object."""

    configuration: Configuration

    def __hash__(self) -> int:
        return id(self.configuration)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Base) and self.configuration is other.configuration


@dataclass(frozen=True, slots=True, eq=False)
class _Decided:
    """A decision, told from others by its etag and fields."""

    revised: Revised

    def __hash__(self) -> int:
        return hash(self.revised.etag)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Decided) and (
            (self.revised.etag, self.revised.fields) == (other.revised.etag, other.revised.fields)
        )


@lru_cache(maxsize=_KEPT)
def _effective(base: _Base, decided: _Decided) -> Applied:
    try:
        return Applied(revised(base.configuration, decided.revised.fields))
    except Invalid as error:
        why = f"the change of its configuration is ignored, because it no longer fits: {error}"
        return Applied(base.configuration, why)
