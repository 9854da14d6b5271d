"""The Job: one GPU of the right kind, the serving image, and nothing that it does not need."""

import re
from dataclasses import replace
from typing import Any

import yaml
from refusals import refusal

from serve.core.errors import Invalid
from serve.workbench.conversion.plans.job import PlanPlace, manifest

PLACE = PlanPlace("nvcr.io/nvidia/tritonserver:26.07-py3", "models", "digits-kit")


def job(name: str = "digits", **changes: Any) -> Any:
    return yaml.safe_load(manifest(name, replace(PLACE, **changes)))


def pod(**changes: Any) -> Any:
    return job(**changes)["spec"]["template"]["spec"]


def test_it_is_tried_once_and_given_up_in_time() -> None:
    spec = job(seconds=900)["spec"]
    assert (spec["backoffLimit"], spec["activeDeadlineSeconds"]) == (0, 900)
    assert spec["template"]["spec"]["restartPolicy"] == "Never"


def test_it_takes_one_whole_gpu_of_the_product_that_will_serve() -> None:
    found = pod(product="NVIDIA-H100-80GB-HBM3", compute_capability="9.0")
    (container,) = found["containers"]
    assert container["image"] == PLACE.image
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert "nvidia.com/gpu" not in container["resources"]["requests"]
    assert found["nodeSelector"] == {
        "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
        "nvidia.com/gpu.compute.major": "9",
        "nvidia.com/gpu.compute.minor": "0",
    }
    assert found["tolerations"][0]["key"] == "nvidia.com/gpu"
    assert "nodeSelector" not in pod()


def test_a_slice_of_a_gpu_and_a_runtime_class_can_be_named() -> None:
    found = pod(resource="nvidia.com/mig-1g.10gb", runtime_class="nvidia")
    assert found["containers"][0]["resources"]["limits"]["nvidia.com/mig-1g.10gb"] == "1"
    assert found["runtimeClassName"] == "nvidia"


def test_it_has_no_right_and_writes_only_into_the_kit() -> None:
    found = pod()
    (container,) = found["containers"]
    assert found["automountServiceAccountToken"] is False
    assert found["securityContext"]["runAsNonRoot"] is True
    assert found["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["command"] == ["python3", "/kit/onsite.py", "/kit"]
    mounts = {each["mountPath"]: each for each in container["volumeMounts"]}
    assert mounts.keys() == {"/kit", "/tmp", "/dev/shm"}
    assert mounts["/kit"]["subPath"] == "digits-kit"
    assert found["volumes"][0]["persistentVolumeClaim"] == {"claimName": "models"}


def test_any_name_of_a_model_makes_a_name_for_kubernetes() -> None:
    for name in ("digits", "My_Model.v2", "x" * 100, "é"):
        assert re.fullmatch(r"plan(-[a-z0-9]+)*", job(name)["metadata"]["name"])
        assert len(job(name)["metadata"]["name"]) <= 63


def test_a_folder_outside_of_the_volume_is_refused() -> None:
    for folder in ("", "/", "../other", "a/../../b"):
        refusal(Invalid, manifest, "digits", replace(PLACE, folder=folder))
