"""What k8s/ makes: each kustomization rendered by the real kubectl, once.

A kustomization is rendered if it stands for itself. A component does not: it is rendered with what
uses it. A manifest in `k8s/examples` that belongs to no kustomization is read as it is.

Some need a newer Kubernetes than the rest, and say so by an annotation of the kustomization, or of
the object where there is none. What is made of several needs the newest that one of them needs.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from k8s.cluster import ROOT, kubectl

Object = dict[str, Any]

FOLDER = ROOT / "k8s"
OLDEST = "servegate.dev/kubernetes"
FLOOR = (1, 31)


@dataclass(frozen=True, slots=True)
class Rendering:
    """What came of a folder or file: its objects, and the oldest Kubernetes that they are for."""

    name: str
    objects: tuple[Object, ...]
    floor: tuple[int, int]

    @property
    def is_whole(self) -> bool:
        """Whether people apply it. The rest are parts, which get their namespace from a whole."""
        return is_whole(self.name)


def render_all(home: Path) -> dict[str, Rendering]:
    found = [_rendered(home, each) for each in kustomizations()]
    return {each.name: each for each in (*found, *_examples())}


def kustomizations(kind: str = "Kustomization") -> list[Path]:
    """The folders that have one of this kind: Kustomization, or Component."""
    files = sorted(FOLDER.rglob("kustomization.yaml"))
    return [file.parent for file in files if _of(file.parent).get("kind", "Kustomization") == kind]


def name_of(folder: Path) -> str:
    return str(folder.relative_to(FOLDER))


def is_whole(name: str) -> bool:
    return bool(re.fullmatch(r"base|overlays/[^/]+|examples/.+", name))


def made_of(folder: Path) -> set[Path]:
    """A kustomization's folder, and those of all that it is made of."""
    told = _of(folder)
    parts = [*told.get("resources", ()), *told.get("components", ())]
    inner = [(folder / each).resolve() for each in parts]
    return {folder}.union(*(made_of(each) for each in inner if each.is_dir()))


def floor_of(annotations: dict[str, str]) -> tuple[int, int]:
    major, minor = annotations.get(OLDEST, ".".join(map(str, FLOOR))).split(".")
    return int(major), int(minor)


def objects_of(text: str) -> tuple[Object, ...]:
    return tuple(each for each in yaml.safe_load_all(text) if each)


def _rendered(home: Path, folder: Path) -> Rendering:
    said = kubectl(home, "kustomize", str(folder))
    assert said.code == 0, f"{folder} does not render: {said.err}"
    assert not said.err, f"{folder}: {said.err}"  # such as a deprecated field
    floor = max(floor_of(_annotations(_of(each))) for each in made_of(folder))
    return Rendering(name_of(folder), objects_of(said.out), floor)


def _examples() -> list[Rendering]:
    mine = set(kustomizations())
    found = []
    for file in sorted((FOLDER / "examples").rglob("*.yaml")):
        if file.parent in mine:
            continue
        objects = [each for each in objects_of(file.read_text()) if "apiVersion" in each]
        if objects:
            floor = max(floor_of(_annotations(each)) for each in objects)
            found.append(Rendering(name_of(file), tuple(objects), floor))
    return found


def _annotations(told: Object) -> dict[str, str]:
    return (told.get("metadata") or {}).get("annotations") or {}


def _of(folder: Path) -> Object:
    told: Object = yaml.safe_load((folder / "kustomization.yaml").read_text())
    return told
