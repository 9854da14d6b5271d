"""What is wanted stays the same object until it changes, so that a glance is enough."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from builders import ControlPlane, replica, write_model

from serve.control.inventory import Inventory
from serve.control.models import By
from serve.control.wanted import Wanted

BY = By("tests")
HELD = {"m": (1, 2), "n": (1, 2)}


def play(folder: Path, change: Callable[[ControlPlane], Awaitable[object]]) -> tuple[object, ...]:
    """What is wanted before and after a change, of each kind."""

    async def work() -> tuple[object, ...]:
        plane = ControlPlane(folder)
        write_model(plane.repository, "m")
        write_model(plane.repository, "n")
        await plane.begin(a=HELD, b=HELD)
        before = _wanted(plane.inventory)
        await change(plane)
        return tuple(
            one is other for one, other in zip(before, _wanted(plane.inventory), strict=True)
        )

    return asyncio.run(work())


def _wanted(inventory: Inventory) -> tuple[object, ...]:
    default, removed = inventory.for_pool("default"), inventory.removed
    return default, inventory.for_pool("a100"), inventory.elsewhere("default"), removed


SAME = (True, True, True, True)


def test_a_look_at_folders_that_have_not_changed_changes_nothing(tmp_path: Path) -> None:
    async def look(plane: ControlPlane) -> None:
        await plane.inventory.scan()
        await plane.inventory.scan(settled=True)

    assert play(tmp_path, look) == SAME


def test_a_label_that_moves_changes_nothing_of_what_is_wanted(tmp_path: Path) -> None:
    async def move(plane: ControlPlane) -> None:
        await plane.models.set_label("m", "stable", 1, BY)
        assert plane.decisions.labels("m") == {"stable": 1}

    assert play(tmp_path, move) == SAME


def test_another_folder_is_wanted_in_its_pool(tmp_path: Path) -> None:
    async def add(plane: ControlPlane) -> None:
        write_model(plane.repository, "o")
        await plane.inventory.scan()
        assert set(plane.inventory.for_pool("default")) == {"m", "n", "o"}
        assert set(plane.inventory.models) == {"m", "n", "o"}

    assert play(tmp_path, add) == (False, True, True, True)


def test_a_model_that_moves_is_wanted_elsewhere(tmp_path: Path) -> None:
    async def move(plane: ControlPlane) -> None:
        plane.fleet.join(replica("c", pool="a100"))
        await plane.models.configure("m", objective=None, pool="a100", by=BY)
        assert set(plane.inventory.for_pool("a100")) == {"m"}
        assert plane.inventory.elsewhere("default") == {"m"}

    assert play(tmp_path, move) == (False, False, False, True)


def test_a_folder_that_goes_is_removed(tmp_path: Path) -> None:
    async def remove(plane: ControlPlane) -> None:
        folder = plane.repository / "n"
        for path in sorted(folder.rglob("*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()
        folder.rmdir()
        await plane.inventory.scan()
        assert plane.inventory.removed == {"n"}

    assert play(tmp_path, remove) == (False, True, True, False)


def test_what_was_wanted_once_is_remembered_while_nobody_asks(tmp_path: Path) -> None:
    async def look(plane: ControlPlane) -> None:
        for _ in range(3):  # nobody asks for the pools in between
            await plane.inventory.scan()
            assert set(plane.inventory.models) == {"m", "n"}

    assert play(tmp_path, look) == SAME
    assert repr(Wanted({}, ControlPlane(tmp_path).decisions, ())) == "<Wanted 0 removed=[]>"
