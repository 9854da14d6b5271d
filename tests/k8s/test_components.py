"""Components together, in the orders that their heads ask for and no overlay of ours has."""

from pathlib import Path
from typing import Any

import pytest

from k8s.facts import combinations
from k8s.rendering import Object, Rendering

_WITHOUT_AGENT = ("bucket", "shared-volume")


def render(home: Path, folder: Path, *components: str) -> tuple[Object, ...]:
    return combinations.rendered(home, folder / "rendered", components)


def pods(objects: tuple[Object, ...]) -> dict[str, Any]:
    """The specifications of the pods of all Deployments and Jobs, by name."""
    return {
        one["metadata"]["name"]: one["spec"]["template"]["spec"]
        for one in objects
        if one["kind"] in ("Deployment", "Job")
    }


def containers(pod: Any) -> list[Any]:
    return [*pod.get("initContainers", ()), *pod["containers"]]


def variables(container: Any) -> dict[str, str]:
    return {one["name"]: one.get("value", "") for one in container.get("env", ())}


@pytest.mark.parametrize("delivery", _WITHOUT_AGENT)
def test_without_agents_no_trace_of_them_is_left(home: Path, tmp_path: Path, delivery: str) -> None:
    objects = render(home, tmp_path, "keda", "tls", "keda-tls", delivery)
    pod = pods(objects)["triton-default"]
    assert [one["name"] for one in containers(pod)] == ["triton"]
    [triton] = pod["containers"]
    assert variables(triton).keys() >= {"KEDA_KEY"}
    volumes = {one["name"] for one in pod["volumes"]}
    assert {one["name"] for one in triton["volumeMounts"]} <= volumes


@pytest.mark.parametrize("delivery", [(), ("bucket",)])
def test_a_pod_that_runs_the_code_of_models_has_no_credentials_that_write_the_bucket(
    home: Path, tmp_path: Path, delivery: tuple[str, ...]
) -> None:
    found = pods(render(home, tmp_path, *delivery))
    told = {
        name: {
            source["secretRef"]["name"]
            for one in containers(pod)
            for source in one.get("envFrom", ())
            if "secretRef" in source
        }
        for name, pod in found.items()
    }
    assert told["servegate-control"] == {"servegate-storage"}
    assert told["triton-default"] == {"servegate-storage-read"}


def test_tritons_and_the_control_plane_have_roles_of_their_own_on_eks(
    rendered: dict[str, Rendering],
) -> None:
    roles = {
        one["metadata"]["name"]: one["metadata"]["annotations"]["eks.amazonaws.com/role-arn"]
        for one in rendered["overlays/eks"].objects
        if one["kind"] == "ServiceAccount" and "annotations" in one["metadata"]
    }
    assert roles.keys() == {"servegate-control", "servegate-triton"}
    assert len(set(roles.values())) == 2


def test_every_pod_gets_the_priority_and_the_credentials_of_the_registry(
    home: Path, tmp_path: Path
) -> None:
    objects = render(home, tmp_path, "load-test", "priority", "pull-secret")
    [kind] = [one for one in objects if one["kind"] == "PriorityClass"]
    found = pods(objects)
    assert {"servegate-gateway", "servegate-control", "triton-default"} < found.keys()
    for name, pod in found.items():
        assert pod["imagePullSecrets"] == [{"name": "servegate-registry"}], name
        is_server = not name.startswith("load-")
        assert (pod.get("priorityClassName") == kind["metadata"]["name"]) == is_server, name
