"""Every component on the base: alone, and together with TLS, which changes all that speaks.

A component that says that it goes beside another is rendered with it. Where a component replaces
what another needs, the two are never together.
"""

import json
import os
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import yaml
from k8s.cluster import ROOT, kubectl
from k8s.facts.images import images_of
from k8s.facts.manifests import Manifests, Object, mapping
from k8s.facts.workloads import pods_of
from k8s.rendering import Rendering, objects_of

COMPONENTS = {file.parent.name for file in ROOT.glob("k8s/components/*/kustomization.yaml")}
NEEDS = {
    "gateway-api": ("gateway",),
    "gateway-api-admin": ("gateway",),
    "hpa-pool": ("prometheus",),
    "keda-tls": ("keda", "tls"),
}
LAST = ("tls", "keda-tls", "bucket", "shared-volume")  # they say that they come behind others
PARTS = ("images",)  # the base has them
# Examples that run our program beside the base; the others are for other programs, or only a part.
BESIDE = {"examples/first-key.yaml": "base", "examples/conversion": "base + conversion"}
WHOLE = re.compile(r"overlays/[^/]+|examples/kserve/[^/]+")


def combinations() -> Iterator[tuple[str, ...]]:
    """The components of each combination, in the order in which they are applied."""
    seen = set()
    for name in sorted(COMPONENTS - {*PARTS}):
        for more in ((), ("tls",)):
            chosen = {name, *more, *NEEDS.get(name, ())}
            last = [one for one in LAST if one in chosen]
            ordered = (*sorted(chosen - {*LAST}), *last)
            if ordered not in seen:
                seen.add(ordered)
                yield ordered


def rendered(home: Path, folder: Path, components: Collection[str]) -> tuple[Object, ...]:
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
    return objects_of(said.out)


def all_manifests(
    home: Path, folder: Path, kustomizations: Mapping[str, Rendering]
) -> dict[str, Manifests]:
    """Every rendering by its name: the base, its combinations with components, the overlays."""
    found: dict[str, tuple[Object, ...]] = {"base": kustomizations["base"].objects}
    values = yaml.safe_load((ROOT / "k8s/examples/prometheus-adapter.yaml").read_text("utf-8"))
    adapter = {"kind": "PrometheusAdapter", "metadata": {"name": "values"}, **values}
    for some in combinations():
        objects = rendered(home, folder / "-".join(some), some)
        found[" + ".join(("base", *some))] = (*objects, *((adapter,) if "hpa-pool" in some else ()))
    for name, one in kustomizations.items():
        if WHOLE.fullmatch(name):
            found[name] = one.objects
        for start, base in BESIDE.items():
            if name.startswith(start):
                found[f"{base} + {name}"] = (*found[base], *one.objects)
    return {name: _with_images(name, objects) for name, objects in found.items()}


def _with_images(name: str, objects: Collection[Object]) -> Manifests:
    """The objects, and the container files of the images that they run."""
    read = Manifests(name, tuple(_unfolded(one) for one in objects))
    made = {one["metadata"]["name"]: one for one in images_of(ROOT / "k8s" / "images")}
    run = {one.image for pod in pods_of(read) for one in pod.containers}
    run |= {made[image]["from"] for image in run & made.keys()}
    return Manifests(name, (*read.objects, *(one for image, one in made.items() if image in run)))


def _unfolded(one: Object) -> Object:
    """A dashboard in a ConfigMap is JSON in a text: its values are values as well."""
    if one.get("kind") != "ConfigMap":
        return one
    data = mapping(one.get("data")).items()
    read = {key: json.loads(text) if key.endswith(".json") else text for key, text in data}
    return {**one, "data": read}
