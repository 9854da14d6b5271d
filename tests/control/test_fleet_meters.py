"""What Prometheus is told of replicas: whether they answer, and what they lack."""

import asyncio
from pathlib import Path

from builders import ControlPlane, write_model

from serve.control.fleet import LOADING
from serve.control.fleet_meters import FleetMeters
from serve.control.missing import missing_versions
from serve.control.observations import Choice, Failure


def told(plane: ControlPlane) -> dict[str, dict[str, float]]:
    """By the metric's name and the replica."""
    found: dict[str, dict[str, float]] = {}
    for family in FleetMeters(plane.fleet, plane.inventory).collect():
        assert all(sample.labels["pool"] == "default" for sample in family.samples)
        name = family.name.removeprefix("servegate_replica_")
        found[name] = {sample.labels["replica"]: sample.value for sample in family.samples}
    return found


def begun(folder: Path, **held: dict[str, tuple[int, ...]]) -> ControlPlane:
    """A model with versions 1 and 2, which replicas a and b should hold."""
    plane = ControlPlane(folder)
    write_model(plane.repository)
    return asyncio.run(plane.begin(**held))


def test_a_replica_that_holds_everything_lacks_nothing(tmp_path: Path) -> None:
    plane = begun(tmp_path, a={"m": (1, 2)}, b={"m": (2,)})
    assert told(plane) == {"up": {"a": 1, "b": 1}, "missing_versions": {"a": 0, "b": 1}}


def test_one_that_does_not_answer_is_down_and_nobody_knows_what_it_lacks(tmp_path: Path) -> None:
    plane = begun(tmp_path, a={"m": (1, 2)})
    assert told(plane) == {"up": {"a": 1, "b": 0}, "missing_versions": {"a": 0}}


def test_a_version_that_is_held_and_may_not_be_called_is_missing(tmp_path: Path) -> None:
    plane = begun(tmp_path, a={"m": (1, 2)}, b={"m": (1, 2)})
    plane.fleet.bar("a", "m", [2], LOADING)
    plane.fleet.bar("b", "m", [1, 2], "it answers wrongly")
    assert told(plane)["missing_versions"] == {"a": 1, "b": 2}


def test_what_could_not_be_loaded_is_missing_and_is_not_waited_for(tmp_path: Path) -> None:
    plane = begun(tmp_path, a={"m": (1,)}, b={"m": (2,)})
    plane.fleet.failures["a", "m"] = Failure("it is broken", (), 1, 0.0)
    assert told(plane)["missing_versions"] == {"a": 1, "b": 1}
    assert missing_versions(plane.fleet, plane.inventory, failed=False) == {"a": 0, "b": 1}


def test_nothing_is_missing_on_who_leaves_loads_for_itself_or_cannot_run_it(tmp_path: Path) -> None:
    plane = begun(tmp_path, a={}, b={})
    assert told(plane)["missing_versions"] == {"a": 2, "b": 2}
    plane.fleet.retire("a")
    plane.fleet.choose("b", {"m": Choice("", {"tensorrt": "a GPU"}, {})})
    assert told(plane)["missing_versions"] == {"b": 0}
    plane.fleet.manages_itself("b")
    assert told(plane)["missing_versions"] == {}
