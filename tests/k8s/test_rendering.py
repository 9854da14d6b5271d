"""Every kustomization renders, and the documentation names exactly those that exist."""

import re
from pathlib import Path

from k8s.cluster import ROOT
from k8s.rendering import FOLDER, Rendering, kustomizations, name_of

_PLACES = ("components", "overlays")


def existing(place: str) -> set[str]:
    return {each.name for each in (FOLDER / place).iterdir() if each.is_dir()}


def test_the_base_and_every_overlay_are_rendered(rendered: dict[str, Rendering]) -> None:
    assert {"base", *(f"overlays/{each}" for each in existing("overlays"))} <= set(rendered)
    assert all(each.objects for each in rendered.values())


def test_every_folder_of_components_holds_a_component() -> None:
    found = {name_of(each) for each in kustomizations("Component")}
    assert {f"components/{each}" for each in existing("components")} <= found


def test_every_manifest_is_a_part_of_some_kustomization() -> None:
    used = set().union(*(_files_of(each) for each in _all_kustomizations()))
    manifests = {each for each in FOLDER.rglob("*.yaml") if _is_manifest(each)}
    assert sorted(str(each.relative_to(FOLDER)) for each in manifests - used) == []


def test_the_documentation_names_exactly_what_exists() -> None:
    text = (ROOT / "docs" / "kubernetes.md").read_text()
    for place in _PLACES:
        named = set(re.findall(rf"\bk8s/{place}/([a-z0-9-]+)", text))
        assert named == existing(place), f"docs/kubernetes.md and k8s/{place} differ"


def _all_kustomizations() -> list[Path]:
    return [*kustomizations(), *kustomizations("Component")]


def _files_of(folder: Path) -> set[Path]:
    """What a kustomization names in its own folder, directly."""
    text = (folder / "kustomization.yaml").read_text()
    words = re.findall(r"[\w./-]+\.yaml", text)
    return {(folder / each).resolve() for each in words}


def _is_manifest(file: Path) -> bool:
    is_example = FOLDER / "examples" in file.parents
    is_setting = file.name in ("kustomization.yaml", "checkov.yaml", "hadolint.yaml")
    return not is_setting and not is_example
