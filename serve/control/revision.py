"""Revisions of serving configurations: what was decided about how versions are run.

A decision of the kind `configuration`. Its key is a name in Triton, so it is of all versions that
share a configuration there (mostly all of a model), and of those that will be pushed with the same.
Its body:

    {"fields": {"max_batch_size": 16, "dynamic_batching": {…}}, "group": "…", "tuned": {…}}

`fields` are those of `triton/config_revisions.py`. `group` is the one that the name stood for when
this was decided; a name in Triton may be given away later, and then this is not meant. It is empty
for a folder of the plain repository. `tuned` is what `servegate batching tune` measured, if it did.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from serve.control.decisions import Decisions

CONFIGURATION = "configuration"
_NONE: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Revised:
    """What was decided for one name in Triton; `etag` is that of the decision."""

    fields: Mapping[str, Any] = field(default_factory=lambda: _NONE)
    tuned: Mapping[str, Any] = field(default_factory=lambda: _NONE)
    etag: str = ""


NOTHING = Revised()


def revised_of(decisions: Decisions, name: str, group: str) -> Revised:
    """What is decided for a name in Triton that stands for this group, or `NOTHING`."""
    entry = decisions.entry(CONFIGURATION, name)
    body = entry.body or {}
    if not body or str(body.get("group", "")) != group:
        return Revised(etag=entry.etag)
    return Revised(
        MappingProxyType(dict(body.get("fields") or {})),
        MappingProxyType(dict(body.get("tuned") or {})),
        entry.etag,
    )
