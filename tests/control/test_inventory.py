"""The inventory: models of a folder, or of the replicas where there is none."""

import asyncio
from pathlib import Path
from typing import Any

from builders import Clock, ControlPlane, replica, write_model

from serve.control.decisions import Decisions
from serve.control.fleet import Fleet
from serve.control.inventory import Inventory
from serve.control.storage.store import StoredEntry
from serve.core.errors import TritonFailed
from serve.triton import config as triton_config
from serve.triton.config import Configuration


class FakeTriton:
    """Stands for `TritonControl` where only configurations are asked for."""

    def __init__(self, **configs: str) -> None:
        self.configs = configs
        self.asked: list[str] = []

    async def config(self, model: str) -> Any:
        self.asked.append(model)
        if model not in self.configs:
            raise TritonFailed("not found")
        return triton_config.parse(self.configs[model]).message


async def test_a_model_whose_folder_has_gone_is_removed_until_it_comes_back(tmp_path: Path) -> None:
    plane = ControlPlane(tmp_path)
    inventory, repository = plane.inventory, plane.repository
    write_model(repository)
    await inventory.scan()
    (repository / "m").rename(repository / ".gone")
    await inventory.scan()
    assert (inventory.models, inventory.removed) == ({}, {"m"})
    (repository / ".gone").rename(repository / "m")
    await inventory.scan()
    assert (set(inventory.models), inventory.removed) == ({"m"}, frozenset())
    repository.rename(tmp_path / "elsewhere")  # one that cannot be read removes nothing
    await inventory.scan()
    assert (set(inventory.models), inventory.removed) == ({"m"}, frozenset())


async def test_a_pool_wants_the_models_assigned_to_it_or_to_its_group(tmp_path: Path) -> None:
    plane = ControlPlane(tmp_path)
    write_model(plane.repository, "small")
    write_model(plane.repository, "big")
    bodies: dict[tuple[str, str], dict[str, str]] = {("model", "big"): {"pool": "a100"}}
    plane.decisions = Decisions({key: StoredEntry(body, 1) for key, body in bodies.items()})
    await plane.inventory.scan()
    assert set(plane.inventory.for_pool("a100")) == {"big"}
    assert set(plane.inventory.for_pool("default")) == {"small"}
    for pool, group in (("a100", "g"), ("default", "g"), ("h100", "other")):
        bodies["pool", pool] = {"group": group}
    plane.decisions = Decisions({key: StoredEntry(body, 1) for key, body in bodies.items()})
    await plane.inventory.scan()
    for pool in ("a100", "default"):
        assert set(plane.inventory.for_pool(pool)) == {"big", "small"}
        assert plane.inventory.elsewhere(pool) == set()
    assert plane.inventory.elsewhere("h100") == {"big", "small"}


def discovering() -> tuple[Inventory, Fleet]:
    fleet = Fleet((replica("a"), replica("b")), clock=Clock())
    return Inventory(None, fleet, decisions=Decisions), fleet


def test_without_a_folder_what_any_replica_holds_exists() -> None:
    inventory, fleet = discovering()
    fleet.saw("a", {"m": (1, 2)})
    fleet.saw("b", {"m": (3,), "x": (1,)})
    assert inventory.is_discovering
    versions = {name: model.versions for name, model in inventory.models.items()}
    assert versions == {"m": (1, 2, 3), "x": (1,)}


def learned(inventory: Inventory, triton: FakeTriton, *names: str) -> dict[str, Any]:
    held = dict.fromkeys(names, (1,))
    asyncio.run(inventory.learn(triton, held))  # type: ignore[arg-type]
    return {name: one.configuration for name, one in inventory.loadables.items()}


def test_the_configuration_of_what_was_discovered_is_asked_once_unless_it_cannot_be_read() -> None:
    inventory, fleet = discovering()
    fleet.saw("a", {"m": (1,), "x": (1,)})
    triton = FakeTriton(x='backend: "x" sequence_batching { }')
    known = learned(inventory, triton, "m", "x")
    assert known["m"] is None
    assert isinstance(known["x"], Configuration) and known["x"].batches_sequences
    triton.configs["m"] = 'backend: "m"'
    assert learned(inventory, triton, "m", "x")["m"] is not None
    assert triton.asked == ["m", "x", "m"]
