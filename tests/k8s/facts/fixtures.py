"""The fixtures of the tests of facts: all renderings, and the program, each made once."""

import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
import yaml
from k8s.facts import combinations
from k8s.facts.images import images_of
from k8s.facts.manifests import Manifests, Object
from k8s.facts.program import ROOT, Program
from k8s.facts.reading import read_program, unfolded
from k8s.facts.workloads import pods_of
from k8s.rendering import Rendering, objects_of

# Examples that run our program beside the base; the others are for other programs, or only a part.
BESIDE = {"examples/first-key.yaml": "base", "examples/conversion": "base + conversion"}
WHOLE = re.compile(r"overlays/[^/]+|examples/kserve/[^/]+")
_ADAPTER = ROOT / "k8s" / "examples" / "prometheus-adapter.yaml"


@pytest.fixture(scope="session")
def manifests(
    home: Path, rendered: dict[str, Rendering], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Manifests]:
    """Every rendering by its name: the base, its combinations with components, the overlays."""
    folder = tmp_path_factory.mktemp("combinations")
    found = {"base": rendered["base"].objects}
    for some in combinations.combinations():
        objects = objects_of(combinations.rendered(home, folder / "-".join(some), some))
        found[" + ".join(("base", *some))] = (*objects, *(_adapter() if "hpa-pool" in some else ()))
    for name, one in rendered.items():
        if WHOLE.fullmatch(name):
            found[name] = one.objects
        for start, base in BESIDE.items():
            if name.startswith(start):
                found[f"{base} + {name}"] = (*found[base], *one.objects)
    return {name: _with_images(name, objects) for name, objects in found.items()}


@pytest.fixture(scope="session")
def program(manifests: dict[str, Manifests], tmp_path_factory: pytest.TempPathFactory) -> Program:
    """The program, read once."""
    return read_program(tmp_path_factory.mktemp("program"), tuple(manifests.values()))


def _with_images(name: str, objects: Collection[Object]) -> Manifests:
    """The objects, and the container files of the images that they run."""
    read = Manifests(name, tuple(unfolded(one) for one in objects))
    made = {one["metadata"]["name"]: one for one in images_of(ROOT / "k8s" / "images")}
    run = {one.image for pod in pods_of(read) for one in pod.containers}
    run |= {made[image]["from"] for image in run & made.keys()}
    return Manifests(name, (*read.objects, *(one for image, one in made.items() if image in run)))


def _adapter() -> list[Any]:
    """The values of prometheus-adapter, as an object."""
    told = yaml.safe_load(_ADAPTER.read_text("utf-8"))
    return [{"kind": "PrometheusAdapter", "metadata": {"name": "values"}, **told}]
