"""The features of the workbench in a control plane: where they are found, and what they build on.

A feature is a package below `serve/workbench/` whose module `feature` has a function `build`. This
is the only list of them here; `serve/cli/features.py` lists their commands. Without the workbench
the gateway runs as usual, and has neither their pages nor their part of the admin API.
"""

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from serve.app.publication import Publishing
from serve.control.artifacts.storage import ArtifactStorage
from serve.control.decisions import Decisions
from serve.control.gateway import GatewayClient
from serve.control.models import Models
from serve.control.storage.store import Store
from serve.settings import Settings

if TYPE_CHECKING:
    from serve.admin.api.features import FeatureWeb

WORKBENCH = "serve.workbench"
FEATURES = ("conversion", "evaluation", "loadtest")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plane:
    """The parts of a control plane that a feature may build on."""

    settings: Settings
    storage: ArtifactStorage
    gateway: GatewayClient
    models: Models
    publishing: Publishing
    store: Store
    decisions: Callable[[], Decisions]
    reload: Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """One feature of one control plane.

    Its routers find `services` by their classes in `AdminContext`. `run` works until it is
    cancelled, while this control plane leads; None when there is nothing to do. `web` is called
    once the first replicas are started: FastAPI takes half a second to import.
    """

    services: Mapping[type, Any]
    web: "Callable[[], FeatureWeb]"
    run: Callable[[], Coroutine[Any, Any, None]] | None = None


def build_features(plane: Plane) -> tuple[Feature, ...]:
    """Every feature that is installed."""
    found = []
    for name in FEATURES:
        try:
            module = import_module(f"{WORKBENCH}.{name}.feature")
        except ModuleNotFoundError as error:
            if not (error.name or "").startswith(WORKBENCH):
                raise
            continue
        feature: Feature = module.build(plane)
        found.append(feature)
    return tuple(found)
