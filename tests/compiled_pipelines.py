"""A compiled pipeline as values: what each task runs, where, and with what."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

GPU = "nvidia.com/gpu"


@dataclass(frozen=True, slots=True)
class Task:
    """One task, also behind a condition. `platform`: what Kubernetes is told of its pod."""

    name: str
    image: str
    resources: dict[str, Any]
    platform: dict[str, Any]
    is_cached: bool
    inputs: frozenset[str]

    @property
    def gpus(self) -> int:
        """How many it asks for."""
        asked = self.resources.get("accelerator", {})
        return int(asked.get("resourceCount", asked.get("count", 0)))


def read(path: Path) -> dict[str, Task]:
    """The tasks of a compiled pipeline by name."""
    spec, *platforms = yaml.safe_load_all(path.read_text())
    kubernetes = platforms[0]["platforms"]["kubernetes"] if platforms else {}
    pods = kubernetes.get("deploymentSpec", {}).get("executors", {})
    executors = spec["deploymentSpec"]["executors"]
    dags = [spec["root"]["dag"]]
    dags += [one["dag"] for one in spec["components"].values() if "dag" in one]
    found = {}
    for dag in dags:
        for name, task in dag["tasks"].items():
            component = spec["components"][task["componentRef"]["name"]]
            if "executorLabel" not in component:
                continue
            label = component["executorLabel"]
            container = executors[label]["container"]
            found[name] = Task(
                name,
                container["image"],
                container.get("resources", {}),
                pods.get(label, {}),
                bool(task.get("cachingOptions", {}).get("enableCache")),
                frozenset(task.get("inputs", {}).get("parameters", {})),
            )
    return found
