"""What is wanted stays the same object until it changes, so that a glance is enough."""

import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from builders import ControlPlane, replica, write_model

from serve.control.inventory import WantedVersions
from serve.control.models import By

BY = By("tests")
HELD = {"m": (1, 2), "n": (1, 2)}


async def look(plane: ControlPlane) -> None:
    for _ in range(3):  # nobody asks for the pools in between
        await plane.inventory.scan()
        await plane.inventory.scan(settled=True)
        assert set(plane.inventory.models) == {"m", "n"}


async def move_a_label(plane: ControlPlane) -> None:
    await plane.models.set_label("m", "stable", 1, BY)
    assert plane.decisions.labels("m") == {"stable": 1}


async def add_a_folder(plane: ControlPlane) -> None:
    write_model(plane.repository, "o")
    await plane.inventory.scan()
    assert set(plane.inventory.for_pool("default")) == {"m", "n", "o"}
    assert set(plane.inventory.models) == {"m", "n", "o"}


async def move_a_model(plane: ControlPlane) -> None:
    plane.fleet.join(replica("c", pool="a100"))
    await plane.models.configure("m", objective=None, pool="a100", by=BY)
    assert set(plane.inventory.for_pool("a100")) == {"m"}
    assert plane.inventory.elsewhere("default") == {"m"}


async def remove_a_folder(plane: ControlPlane) -> None:
    shutil.rmtree(plane.repository / "n")
    await plane.inventory.scan()
    assert plane.inventory.removed == {"n"}


@pytest.mark.parametrize(
    ("change", "same"),
    [
        (look, {"default", "a100", "elsewhere", "removed"}),
        (move_a_label, {"default", "a100", "elsewhere", "removed"}),
        (add_a_folder, {"a100", "elsewhere", "removed"}),
        (move_a_model, {"removed"}),
        (remove_a_folder, {"a100", "elsewhere"}),
    ],
)
async def test_only_what_a_change_concerns_is_another_object(
    tmp_path: Path, change: Callable[[ControlPlane], Awaitable[None]], same: set[str]
) -> None:
    plane = ControlPlane(tmp_path)
    write_model(plane.repository, "m")
    write_model(plane.repository, "n")
    await plane.begin(a=HELD, b=HELD)

    def wanted() -> dict[str, object]:
        inventory = plane.inventory
        return {
            "default": inventory.for_pool("default"),
            "removed": inventory.removed,
            "a100": inventory.for_pool("a100"),
            "elsewhere": inventory.elsewhere("default"),
        }

    before = wanted()
    await change(plane)
    assert {name for name, one in wanted().items() if one is before[name]} == same


def test_a_glance_at_nothing(tmp_path: Path) -> None:
    assert (
        repr(WantedVersions({}, ControlPlane(tmp_path).decisions, ()))
        == "<WantedVersions 0 removed=[]>"
    )
