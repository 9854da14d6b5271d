"""The courier: what is wanted is brought, and nothing taken away that a Triton may still read."""

import asyncio
from collections.abc import Collection
from pathlib import Path

from builders import ControlPlane

from serve.control.deliveries.courier import Courier
from serve.control.deliveries.folder import Slot
from serve.control.fleet import LOADING
from serve.control.versions import PublishedVersion


class Notes:
    """Stands for a delivery: notes which versions' files have to stay."""

    def __init__(self) -> None:
        self.kept: set[Slot] = set()

    async def deliver(self, wanted: Collection[PublishedVersion], held: Collection[Slot]) -> None:
        self.kept = set(held)

    def has(self, replica: str, version: PublishedVersion) -> bool:
        return True

    def problem(self, replica: str, version: PublishedVersion) -> str:
        return ""


def test_the_files_of_what_a_replica_holds_or_just_loads_stay_although_it_is_wanted_no_more(
    tmp_path: Path,
) -> None:
    plane, notes = ControlPlane(tmp_path), Notes()
    courier = Courier(plane.inventory, plane.fleet, notes, arrived=lambda: None, pause=1.0)
    plane.fleet.saw("a", {"m": (1,)})
    plane.fleet.bar("b", "m", [2], LOADING)
    plane.fleet.bar("b", "m", [3], "it answers wrongly")
    asyncio.run(courier.round())
    assert notes.kept == {("m", 1), ("m", 2)}
