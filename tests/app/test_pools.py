"""Pools of which nobody has set anything, and which of them may have no replica."""

from serve.app.discovery import may_all_sleep, may_begin_empty
from serve.app.pools import usual_pools
from serve.control.decisions import MODEL, POOL, Decisions
from serve.control.scaling.pools import PoolSettings
from serve.control.storage.store import StoredEntry
from serve.settings import Settings

SLEEPS = {"to_zero": True}


def test_the_pool_of_local_tritons_has_the_range_that_they_scale_in() -> None:
    for autoscale, usual in (
        ("", {}),
        ("1..4", {"default": PoolSettings(1, 4)}),
        ("0..2", {"default": PoolSettings(1, 2, to_zero=True)}),
    ):
        assert usual_pools(Settings(autoscale=autoscale)) == usual


def test_a_control_plane_may_begin_without_a_replica_where_some_may_come() -> None:
    assert not may_begin_empty(Settings())
    assert may_begin_empty(Settings(autoscale="1..4"))
    assert may_begin_empty(Settings(discover=("kubernetes",)))


def decisions(**pools: dict[str, bool]) -> Decisions:
    """Model b is in pool large, all others are in the default one."""
    placed = {(MODEL, "b"): StoredEntry({"pool": "large"}, 1)}
    return Decisions(placed | {(POOL, name): StoredEntry(body, 2) for name, body in pools.items()})


def test_there_may_be_none_at_all_where_every_pool_of_a_known_model_may_sleep() -> None:
    settings, both = Settings(), decisions(default=SLEEPS, large=SLEEPS)
    assert may_all_sleep(settings, both, ["a", "b"])
    assert may_all_sleep(settings, decisions(default=SLEEPS), ["a"])
    assert not may_all_sleep(settings, decisions(default=SLEEPS), ["a", "b"])
    assert not may_all_sleep(settings, decisions(), ["a"])
    assert may_all_sleep(Settings(autoscale="0..2"), decisions(), ["a"])
    assert not may_all_sleep(settings, decisions(default=SLEEPS), [])
