"""Components together, in the orders that their heads ask for and no overlay of ours has."""

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from k8s.cluster import ROOT, kubectl
from k8s.rendering import Object, Rendering, objects_of

_WITHOUT_AGENT = ("bucket", "shared-volume")


def render(home: Path, folder: Path, *components: str) -> tuple[Object, ...]:
    """What the base and these components come to."""
    folder.mkdir(exist_ok=True)
    place = os.path.relpath(ROOT / "k8s", folder.resolve())
    told = {
        "namespace": "servegate",
        "resources": [f"{place}/base"],
        "components": [f"{place}/components/{name}" for name in components],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(told))
    said = kubectl(home, "kustomize", str(folder)).well()
    assert not said.err
    return objects_of(said.out)


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


def test_the_control_plane_and_the_tritons_mount_the_same_volume(
    home: Path, tmp_path: Path
) -> None:
    found = pods(render(home, tmp_path, "shared-volume"))
    for name, may_write in (("servegate-control", True), ("triton-default", False)):
        pod = found[name]
        [volume] = [one for one in pod["volumes"] if one["name"] == "models"]
        assert "emptyDir" not in volume
        assert volume["persistentVolumeClaim"]["claimName"] == "servegate-models"
        [mount] = [one for one in pod["containers"][-1]["volumeMounts"] if one["name"] == "models"]
        assert mount["mountPath"] == "/models"
        assert mount.get("readOnly", False) is not may_write


def test_a_triton_reads_the_bucket_where_the_control_plane_writes_it(
    home: Path, tmp_path: Path
) -> None:
    objects = render(home, tmp_path, "bucket")
    [triton] = pods(objects)["triton-default"]["containers"]
    [told] = [one for one in triton["args"] if one.startswith("--model-repository=")]
    assert told == "--model-repository=$(SERVEGATE_STORAGE)/repository"
    [storage] = [one for one in triton["env"] if one["name"] == "SERVEGATE_STORAGE"]
    assert storage["valueFrom"]["configMapKeyRef"]["key"] == "SERVEGATE_STORAGE"


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


def test_over_tls_nothing_of_ours_is_called_in_clear(home: Path, tmp_path: Path) -> None:
    objects = render(home, tmp_path, "prometheus", "load-test", "keda", "tls", "keda-tls")
    [settings] = [
        one["data"]
        for one in objects
        if (one["kind"], one["metadata"]["name"]) == ("ConfigMap", "servegate")
    ]
    every = [variables(one) for pod in pods(objects).values() for one in containers(pod)]
    for told in (settings, *every):
        assert not [name for name, text in told.items() if "http://" in text]
    for name in ("servegate-gateway", "servegate-control"):
        [container] = pods(objects)[name]["containers"]
        probes = [value for key, value in container.items() if key.endswith("Probe")]
        assert {one["httpGet"]["scheme"] for one in probes} == {"HTTPS"}
        assert len(probes) == 3


def test_whoever_calls_over_tls_has_the_certificate_of_the_authority(
    home: Path, tmp_path: Path
) -> None:
    found = pods(render(home, tmp_path, "load-test", "tls"))
    for name, pod in found.items():
        container = pod.get("initContainers", pod["containers"])[0]
        told = variables(container)
        [mount] = [one for one in container["volumeMounts"] if one["name"] == "tls"]
        trusted = told.get("SERVEGATE_CACERT") or told["SSL_CERT_FILE"]
        assert trusted == f"{mount['mountPath']}/ca.crt", name
