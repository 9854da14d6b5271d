"""Hints that are only held, and what was asked for before."""

from pathlib import Path

from builders import Clock

from serve.capacity.scaling.signals import Bounds, Code, Reason, ReplicaHint
from serve.control.scaling.held_hints import Lasting

BOUNDS = Bounds(1, 10)


def hint(desired: int, code: Code, pool: str = "p") -> ReplicaHint:
    return ReplicaHint(pool, desired, desired, 0, 1.0, (Reason(code, "so it is"),))


def test_a_hint_that_is_held_is_no_less_than_the_one_before() -> None:
    lasting = Lasting(Path("/nowhere/hints.json"), wall=Clock())
    for given, code, told in (
        (6, Code.DEMAND, 6),
        (2, Code.STALE, 6),
        (2, Code.INVALID, 6),
        (8, Code.STALE, 8),
        (4, Code.FALLING, 4),
        (1, Code.RESTARTED, 4),
    ):
        assert lasting.hold(hint(given, code), BOUNDS).desired == told


def test_pools_are_told_apart_and_bounds_hold() -> None:
    lasting = Lasting(Path("/nowhere/hints.json"), wall=Clock())
    lasting.hold(hint(6, Code.DEMAND), BOUNDS)
    assert lasting.hold(hint(2, Code.STALE, pool="q"), BOUNDS).desired == 2
    assert lasting.hold(hint(2, Code.STALE), Bounds(1, 10, budget=5)).desired == 5


def test_another_process_goes_on_where_this_one_has_ended(tmp_path: Path) -> None:
    wall, file = Clock(), tmp_path / "hints.json"
    first = Lasting(file, wall=wall)
    first.hold(hint(6, Code.DEMAND), BOUNDS)
    first.write()
    wall.now += 200.0
    later = Lasting(file, wall=wall)
    later.read()
    assert later.hold(hint(2, Code.RESTARTED), BOUNDS).desired == 6


def test_numbers_are_written_when_they_change_and_once_a_minute(tmp_path: Path) -> None:
    wall, file = Clock(), tmp_path / "hints.json"
    lasting = Lasting(file, wall=wall)
    lasting.hold(hint(6, Code.DEMAND), BOUNDS)
    lasting.write()
    file.unlink()
    lasting.write()
    assert not file.exists()
    wall.now += 60.0
    lasting.write()
    assert file.exists()
    file.unlink()
    lasting.hold(hint(7, Code.DEMAND), BOUNDS)
    lasting.write()
    assert file.exists()


def test_a_folder_that_is_not_there_ends_nothing() -> None:
    lasting = Lasting(Path("/nowhere/hints.json"), wall=Clock())
    lasting.read()
    lasting.write()
    assert lasting.hold(hint(2, Code.DEMAND), BOUNDS).desired == 2
