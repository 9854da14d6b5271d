"""The admin API over a control plane in memory that has a history."""

import dataclasses
from pathlib import Path

from builders import ControlPlane
from fastapi import FastAPI
from listeners.admin_scene import SECRET, plane

from serve.control.history import History
from serve.control.management import Management
from serve.control.reconciling.keepers import Keepers
from serve.control.restoring import Restoring
from serve.listeners.admin.application import create
from serve.listeners.admin.context import Control


def history_scene(folder: Path) -> tuple[ControlPlane, FastAPI]:
    """Model `m`: versions 1 and 2 are ready, version 3 is loading. Nothing was changed yet."""
    one = plane(folder)
    management = Management(
        *(one.store, one.inventory, one.fleet, one.publisher, Keepers()),
        decisions=lambda: one.decisions,
        reload=one.reload,
    )
    restoring = Restoring(
        one.models,
        management,
        decisions=lambda: one.decisions,
        generation=lambda: one.publisher.snapshot.generation,
        allowing=one.pools,
    )
    absent = {row.name: None for row in dataclasses.fields(Control) if _is_needed(row)}
    parts = {
        "models": one.models,
        "publisher": one.publisher,
        "keys": one.keys,
        "pools": one.pools,
        "history": History(one.store, restoring.by_kind),
        "secret": SECRET,
        "needs_key": lambda guarded: guarded,
        "wall": one.wall,
    }
    return one, create(Control(**(absent | parts)), hosts=["localhost", "127.0.0.1"])


def _is_needed(row: "dataclasses.Field[object]") -> bool:
    return row.default is dataclasses.MISSING
