"""Live: the snapshot in force is swapped whole and never goes backwards."""

import pytest
from builders import snapshot

from serve.core.errors import NoSnapshot
from serve.proxy.gateway import LiveSnapshot


def test_before_the_first_snapshot_there_is_none() -> None:
    live = LiveSnapshot()
    assert live.generation == 0
    with pytest.raises(NoSnapshot):
        _ = live.snapshot


def test_a_newer_snapshot_comes_into_force_whole() -> None:
    live, newer = LiveSnapshot(), snapshot(generation=5)
    assert live.swap(snapshot(generation=2))
    assert live.swap(newer)
    assert live.snapshot is newer


def test_an_older_snapshot_or_the_same_changes_nothing() -> None:
    for generation in (5, 4, 1, 0, -1):
        live, present = LiveSnapshot(), snapshot(generation=5)
        live.swap(present)
        assert not live.swap(snapshot(generation=generation)), generation
        assert live.snapshot is present, generation
