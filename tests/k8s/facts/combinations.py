"""Every component on the base: alone, and together with TLS, which changes all that speaks.

A component that says that it goes beside another is rendered with it. Where a component replaces
what another needs, the two are never together.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import yaml
from k8s.cluster import ROOT, kubectl

NEEDS = {
    "gateway-api": ("gateway",),
    "gateway-api-admin": ("gateway",),
    "hpa-pool": ("prometheus",),
    "keda-tls": ("keda", "tls"),
}
LAST = ("tls", "keda-tls", "bucket", "shared-volume")  # they say that they come behind others
REPLACING = ("bucket", "shared-volume")  # they take parts of the base away
PARTS = ("images",)  # the base has them


def combinations() -> Iterator[tuple[str, ...]]:
    """The components of each combination, in the order in which they are applied."""
    folder = ROOT / "k8s" / "components"
    found = (one.name for one in folder.iterdir() if (one / "kustomization.yaml").exists())
    seen = set()
    for name in sorted(found, key=lambda one: (one in REPLACING, one != "tls", one)):
        for more in ((), ("tls",)) if name not in PARTS else ():
            chosen = {name, *more, *NEEDS.get(name, ())}
            ahead = sorted(chosen - set(LAST))
            ordered = (*ahead, *(one for one in LAST if one in chosen))
            if ordered not in seen:
                seen.add(ordered)
                yield ordered


def rendered(home: Path, folder: Path, components: tuple[str, ...]) -> str:
    """The base with these components, as kubectl makes it; `folder` is for the kustomization."""
    k8s = Path(os.path.relpath(ROOT / "k8s", folder))
    told = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "namespace": "servegate",
        "resources": [str(k8s / "base")],
        "components": [str(k8s / "components" / one) for one in components],
    }
    folder.mkdir(parents=True)
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(told))
    said = kubectl(home, "kustomize", str(folder))
    assert said.code == 0, f"{' + '.join(components)} does not render: {said.err}"
    return said.out
