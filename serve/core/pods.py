"""What every pod of ours is on Kubernetes: without rights, without a secret that it does not need.

Source: the restricted profile of Kubernetes' Pod Security Standards.
"""

import re
from typing import Any

USER = 1000
_PLAIN = re.compile(r"[^a-z0-9-]+")
_LONGEST = 63  # characters of a label


def pod() -> dict[str, Any]:
    """The fields of a pod's specification that are the same everywhere; fresh, to be added to."""
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }


def container_security() -> dict[str, Any]:
    """The `securityContext` of a container."""
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def labels(component: str) -> dict[str, str]:
    """By which ours are found; fresh."""
    return {"app.kubernetes.io/name": "servegate", "app.kubernetes.io/component": component}


def object_name(name: str, *, room: int = 11) -> str:
    """A name that Kubernetes takes; `room` characters are left for what it adds to a pod's."""
    return _PLAIN.sub("-", name.lower()).strip("-")[: _LONGEST - room].rstrip("-")
