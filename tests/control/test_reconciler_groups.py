"""Pools of one group: each of their replicas takes the models of all, and gives them up again."""

import asyncio
from pathlib import Path
from typing import Any

from builders import replica

from .keeping import Scene, nothing
from .test_reconciler_published import Registry, targets
from .versions_scene import version

GROUP: dict[str, Any] = {"pool__default": {"group": "g"}, "pool__other": {"group": "g"}}
OTHER: dict[str, Any] = {"model__m": {"pool": "other"}}


def two_pools(folder: Path) -> tuple[Scene, Registry]:
    """Replica `a` of pool `default` is kept; `b` of pool `other` holds the model of its pool."""
    scene = Scene(folder, replica("b", pool="other"))
    registry = Registry(scene)
    registry.publish(version("m", 1), **OTHER)
    scene.fleet.saw("b", {"m": (1,)})
    return scene, registry


def test_a_replica_loads_the_models_of_the_group_that_its_pool_joins(tmp_path: Path) -> None:
    scene, registry = two_pools(tmp_path)
    assert (scene.play(), targets(scene)) == ([], {1: ("m", ("b",))})
    joined = scene.play(lambda: registry.publish(version("m", 1), **OTHER, **GROUP), nothing)
    assert (joined, scene.triton.held) == (["load m"], {"m": {1}})
    assert targets(scene) == {1: ("m", ("a", "b"))}


def test_a_replica_gives_them_up_when_its_pool_leaves_the_group(tmp_path: Path) -> None:
    scene, registry = two_pools(tmp_path)
    registry.publish(version("m", 1), **OTHER, **GROUP)
    scene.play(nothing)
    assert scene.triton.held == {"m": {1}}
    registry.publish(version("m", 1), **OTHER)
    asyncio.run(scene.plane.publisher.refresh())
    assert targets(scene) == {1: ("m", ("b",))}
    assert (scene.play()[-1], scene.triton.held) == ("unload m", {})
    assert targets(scene) == {1: ("m", ("b",))}


def test_a_model_that_moves_within_its_group_stays_everywhere(tmp_path: Path) -> None:
    scene, registry = two_pools(tmp_path)
    registry.publish(version("m", 1), **OTHER, **GROUP)
    scene.play(nothing)
    scene.triton.asked.clear()
    assert scene.play(lambda: registry.publish(version("m", 1), **GROUP), nothing) == []
    assert targets(scene) == {1: ("m", ("a", "b"))}
