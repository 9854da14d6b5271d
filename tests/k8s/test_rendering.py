"""Every kustomization renders, and the documentation names exactly those that exist."""

import re
from pathlib import Path
from typing import Any

from k8s.cluster import ROOT
from k8s.rendering import FOLDER, Rendering, kustomizations, made_of, name_of

_PLACES = ("components", "overlays")


def existing(place: str) -> set[str]:
    return {each.name for each in (FOLDER / place).iterdir() if each.is_dir()}


def test_the_base_and_every_overlay_are_rendered(rendered: dict[str, Rendering]) -> None:
    assert {"base", *(f"overlays/{each}" for each in existing("overlays"))} <= set(rendered)
    assert all(each.objects for each in rendered.values())


def test_every_folder_of_components_holds_a_component() -> None:
    found = {name_of(each) for each in kustomizations("Component")}
    assert {f"components/{each}" for each in existing("components")} <= found


def test_every_component_is_a_part_of_what_is_rendered() -> None:
    used = set().union(*(made_of(each) for each in kustomizations()))
    unused = [name_of(each) for each in kustomizations("Component") if each not in used]
    assert unused == []


def test_every_manifest_is_a_part_of_some_kustomization() -> None:
    used = set().union(*(_files_of(each) for each in _all_kustomizations()))
    manifests = {each for each in FOLDER.rglob("*.yaml") if _is_manifest(each)}
    assert sorted(str(each.relative_to(FOLDER)) for each in manifests - used) == []


def test_the_documentation_names_exactly_what_exists() -> None:
    text = (ROOT / "docs" / "kubernetes.md").read_text()
    for place in _PLACES:
        named = set(re.findall(rf"\bk8s/{place}/([a-z0-9-]+)", text))
        assert named == existing(place), f"docs/kubernetes.md and k8s/{place} differ"


def test_everything_that_has_a_namespace_is_in_ours(rendered: dict[str, Rendering]) -> None:
    cluster_wide = {"Namespace", "ClusterRole", "ClusterRoleBinding", "PriorityClass"}
    cluster_wide |= {"DeviceClass", "GatewayClass"}
    elsewhere = [
        (name, each["kind"], each["metadata"]["name"])
        for name, rendering in rendered.items()
        if rendering.is_whole and not name.startswith("examples/")
        for each in rendering.objects
        if each["kind"] not in cluster_wide and each["metadata"].get("namespace") != "servegate"
    ]
    assert elsewhere == []


def test_no_image_floats(rendered: dict[str, Rendering]) -> None:
    images = {
        container["image"]
        for rendering in rendered.values()
        for each in rendering.objects
        for container in _containers(each)
    }
    assert images
    assert [each for each in images if ":" not in each or each.endswith(":latest")] == []


def _containers(value: Any) -> list[dict[str, Any]]:
    """All maps that have an image, wherever they are."""
    if isinstance(value, list):
        return [found for each in value for found in _containers(each)]
    if not isinstance(value, dict):
        return []
    mine = [value] if isinstance(value.get("image"), str) else []
    return mine + [found for each in value.values() for found in _containers(each)]


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
