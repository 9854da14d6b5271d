"""The Kubernetes Job that builds the plan of a kit: one GPU of the kind that will serve it.

The kit lies on a volume, see `kits.py`; the container is Triton's image, the very one of the pool.
It may write into the kit and /tmp, and has no right and no secret. It is not tried again: what
fails once with the same image, file and GPU fails again.

Source: batch/v1 Job, and the labels of NVIDIA's GPU feature discovery.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from serve.core import pods
from serve.core.errors import Invalid
from serve.core.flavours import CAPABILITY


@dataclass(frozen=True, slots=True)
class PlanPlace:
    """Where a plan is built. `folder` is the kit's path on the volume `claim`.

    `product` (`NVIDIA-H100-80GB-HBM3`) and `compute_capability` (`9.0`) choose the node; both may
    be empty. `resource` is what one GPU is called there, and `runtime_class` what runs it, mostly
    nothing. `seconds` until it is given up.
    """

    image: str
    claim: str
    folder: str
    product: str = ""
    compute_capability: str = ""
    resource: str = "nvidia.com/gpu"
    runtime_class: str = ""
    seconds: int = 3600
    cpu: str = "4"
    memory: str = "16Gi"


def manifest(name: str, place: PlanPlace) -> str:
    """The Job as YAML; `Invalid` for what cannot be a path on the volume, or a capability."""
    folder = place.folder.strip("/")
    if not folder or ".." in folder.split("/"):
        raise Invalid(f"'{place.folder}' cannot be a folder on the volume '{place.claim}'")
    labels = pods.labels("conversion")
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": pods.object_name(f"plan-{name}"), "labels": labels},
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": place.seconds,
            "ttlSecondsAfterFinished": 86400,
            "template": {"metadata": {"labels": dict(labels)}, "spec": _pod(place, folder)},
        },
    }
    text: str = yaml.safe_dump(job, sort_keys=False, width=100)
    return text


def _pod(place: PlanPlace, folder: str) -> dict[str, Any]:
    pod: dict[str, Any] = {
        **pods.pod(),
        "restartPolicy": "Never",
        "tolerations": [
            {"key": place.resource, "operator": "Exists", "effect": "NoSchedule"},
        ],
        "containers": [_container(place, folder)],
        "volumes": [
            {"name": "kit", "persistentVolumeClaim": {"claimName": place.claim}},
            {"name": "scratch", "emptyDir": {"sizeLimit": "8Gi"}},
            {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
        ],
    }
    if selector := _selector(place):
        pod["nodeSelector"] = selector
    if place.runtime_class:
        pod["runtimeClassName"] = place.runtime_class
    return pod


def _container(place: PlanPlace, folder: str) -> dict[str, Any]:
    resources = {"cpu": place.cpu, "memory": place.memory, "ephemeral-storage": "10Gi"}
    return {
        "name": "build",
        "image": place.image,
        "command": ["python3", "/kit/onsite.py", "/kit"],
        "env": [{"name": "HOME", "value": "/tmp"}, {"name": "IMAGE", "value": place.image}],
        "resources": {"requests": resources, "limits": {**resources, place.resource: "1"}},
        "securityContext": pods.container_security(),
        "volumeMounts": [
            {"name": "kit", "mountPath": "/kit", "subPath": folder},
            {"name": "scratch", "mountPath": "/tmp"},
            {"name": "memory", "mountPath": "/dev/shm"},
        ],
    }


def _selector(place: PlanPlace) -> Mapping[str, str]:
    found = {}
    if place.product:
        found["nvidia.com/gpu.product"] = place.product
    if place.compute_capability:
        if not CAPABILITY.match(place.compute_capability):
            raise Invalid(f"'{place.compute_capability}' is not a compute capability such as 9.0")
        major, minor = place.compute_capability.split(".")
        found |= {"nvidia.com/gpu.compute.major": major, "nvidia.com/gpu.compute.minor": minor}
    return found
