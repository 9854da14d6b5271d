"""Published versions as loadables: those that share a configuration share a name in Triton.

What people have changed of it is applied.
"""

from collections.abc import Collection, Mapping
from types import MappingProxyType

from serve.control.applied_configurations import applied_to
from serve.control.decisions import Decisions
from serve.control.placement import Name
from serve.control.registry import Loadable
from serve.control.versions import PublishedVersion


def loadables_of(decisions: Decisions, wanted: Collection[Name]) -> Mapping[str, Loadable]:
    """All that was ever published and is not retired, by its name in Triton."""
    groups: dict[str, list[PublishedVersion]] = {}
    for versions in decisions.versions.values():
        for version in versions.values():
            if version.is_published:
                groups.setdefault(version.physical, []).append(version)
    return MappingProxyType(
        {
            name: applied_to(_loadable(name, group, wanted), decisions, group[-1].group)
            for name, group in groups.items()
        }
    )


def names_in_triton(decisions: Decisions) -> frozenset[str]:
    """Every name under which a version was ever checked: what is loaded under it is ours."""
    return frozenset(
        version.physical
        for versions in decisions.versions.values()
        for version in versions.values()
        if version.physical
    )


def _loadable(name: str, group: list[PublishedVersion], wanted: Collection[Name]) -> Loadable:
    group.sort(key=lambda version: version.number)
    newest = group[-1]
    return Loadable(
        name=name,
        versions=tuple(version.number for version in group),
        wanted=tuple(v.number for v in group if (v.model, v.number) in wanted),
        configuration=newest.configuration,
        flavours=newest.forms,
        fingerprint=" ".join(version.content for version in group),
        labels=newest.output_labels,
        preprocessing=newest.preprocessing,
        output_kinds=newest.output_kinds,
        card=newest.card,
        of=newest.model,
        published=True,
    )
