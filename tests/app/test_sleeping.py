"""Which pools may have no replica, and when there may be none at all."""

import pytest

from serve.app.discovery import may_all_sleep, may_begin_empty
from serve.control.decisions import MODEL, POOL, Decisions
from serve.control.storage.store import StoredEntry
from serve.settings import Settings

SLEEPS = {"to_zero": True}


@pytest.mark.parametrize(
    ("settings", "may"),
    [
        (Settings(), False),
        (Settings(autoscale="1..4"), True),
        (Settings(discover=("kubernetes",)), True),
    ],
)
def test_a_control_plane_may_begin_without_a_replica_where_some_may_come(
    settings: Settings, may: bool
) -> None:
    assert may_begin_empty(settings) == may


def decisions(**pools: dict[str, bool]) -> Decisions:
    """Model b is in pool large, all others are in the default one."""
    placed = {(MODEL, "b"): StoredEntry({"pool": "large"}, 1)}
    return Decisions(placed | {(POOL, name): StoredEntry(body, 2) for name, body in pools.items()})


def test_there_may_be_none_at_all_where_every_pool_of_a_model_may_sleep() -> None:
    settings, both = Settings(), decisions(default=SLEEPS, large=SLEEPS)
    assert may_all_sleep(settings, both, ["a", "b"])
    assert may_all_sleep(settings, decisions(default=SLEEPS), ["a"])
    assert not may_all_sleep(settings, decisions(default=SLEEPS), ["a", "b"])
    assert not may_all_sleep(settings, decisions(), ["a"])
    assert may_all_sleep(Settings(autoscale="0..2"), decisions(), ["a"])


def test_where_no_model_is_known_nothing_says_that_there_may_be_none() -> None:
    assert not may_all_sleep(Settings(), decisions(default=SLEEPS), [])
