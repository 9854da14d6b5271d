"""Pool settings: how they are read, and which bounds hold when."""

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from refusals import refusal

from serve.capacity.scaling.signals import Bounds
from serve.control.decisions import POOL, Decisions
from serve.control.scaling.pools import (
    PoolSettings,
    check_pool_name,
    known_pools,
    settings_of,
    usual_of,
)
from serve.control.storage.store import StoredEntry
from serve.core.errors import Invalid

DAY = {"days": "mon-fri", "from": "08:00", "to": "18:00", "zone": "Europe/Berlin", "least": 4}
NOON, NIGHT = (
    datetime(2026, 11, 20, hour, tzinfo=ZoneInfo("Europe/Berlin")).timestamp() for hour in (12, 23)
)


def decided(**pools: Any) -> Decisions:
    return Decisions({(POOL, name): StoredEntry(body, 3) for name, body in pools.items()})


def bounds(wall: float = NIGHT, **body: Any) -> Bounds:
    return PoolSettings.of(body).bounds(wall)[0]


def test_settings_are_written_as_they_are_read_and_what_is_missing_is_as_usual() -> None:
    assert PoolSettings.of({}) == PoolSettings()
    assert bounds() == Bounds(1, 8, None, False)
    body = {"least": 2, "most": 9, "budget": 5, "to_zero": True, "group": "g", "cost": 0.5}
    settings = PoolSettings.of({**body, "schedules": [DAY, {**DAY, "days": "sat"}]})
    assert PoolSettings.of(settings.to_json()) == settings
    assert settings.to_json() == {
        **body,
        "schedules": [{**DAY, "most": None}, {**DAY, "days": "sat", "most": None}],
    }


def test_a_schedule_that_holds_has_its_bounds_and_is_told() -> None:
    settings = PoolSettings.of({"least": 1, "most": 6, "budget": 5, "schedules": [DAY]})
    told = "mon-fri 08:00-18:00 Europe/Berlin least=4"
    assert settings.bounds(NOON) == (Bounds(4, 6, 5), told)
    assert settings.bounds(NIGHT) == (Bounds(1, 6, 5), "")


def test_the_first_schedule_that_holds_counts() -> None:
    both = [{**DAY, "least": 3}, {**DAY, "days": "daily", "to": "24:00", "least": 2, "most": 5}]
    assert bounds(NOON, schedules=both) == Bounds(3, 8)
    assert bounds(NIGHT, schedules=both) == Bounds(2, 5)


def test_what_a_schedule_demands_stands_while_nobody_calls() -> None:
    assert bounds(NOON, to_zero=True, schedules=[DAY]) == Bounds(4, 8, to_zero=False)
    assert bounds(NIGHT, to_zero=True, schedules=[DAY]) == Bounds(1, 8, to_zero=True)
    only_most = {**DAY, "least": None, "most": 3}
    assert bounds(NOON, to_zero=True, schedules=[only_most]) == Bounds(1, 3, to_zero=True)


def test_what_cannot_be_is_refused_with_its_reason() -> None:
    for body, told in (
        ({"leest": 1}, "unknown field 'leest'"),
        ({"least": 0}, "use 'to_zero' to allow no replicas"),
        ({"least": -1}, "'least' cannot be -1"),
        ({"least": True}, "'least' cannot be True"),
        ({"least": 1.0}, "'least' cannot be 1.0"),
        ({"most": "8"}, "'most' cannot be '8'"),
        ({"most": 10**9}, "from 1 to 100000"),
        ({"least": 5, "most": 4}, "'least' is above 'most'"),
        ({"least": 5, "budget": 4}, "'least' is above 'budget'"),
        ({"budget": 0}, "'budget' cannot be 0"),
        ({"to_zero": 1}, "true or false"),
        ({"group": "a b"}, "'a b' is not a valid group name"),
        ({"group": 3}, "'group' is not a string"),
        ({"cost": -1}, "it has to be 0 or more"),
        ({"cost": float("nan")}, "it has to be 0 or more"),
        ({"cost": "1"}, "a number, per replica and hour"),
        ({"schedules": {"a": 1}}, "'schedules' is not a valid list"),
        ({"schedules": ["x"]}, "'schedules' is not an object"),
        ({"schedules": [DAY] * 51}, "at most 50"),
        ({"schedules": [{**DAY, "least": 9}]}, "in 'mon-fri 08:00-18:00 Europe/Berlin least=9'"),
        ({"budget": 3, "schedules": [DAY]}, "'least' is above 'budget'"),
        ({"schedules": [{**DAY, "zone": "Mars"}]}, "'Mars' is not a time zone"),
    ):
        error = refusal(Invalid, PoolSettings.of, body)
        assert told in str(error) and error.try_this, body


def test_a_pool_has_what_was_decided_or_else_what_is_usual_for_it() -> None:
    usual = usual_of("default", 1, 4)
    decisions = decided(a100={"most": 3})
    assert settings_of(decisions, "a100", usual) == PoolSettings(most=3)
    assert settings_of(decisions, "default", usual) == PoolSettings(1, 4)
    assert settings_of(decisions, "other", usual) == PoolSettings()
    assert usual_of("default", 0, 2)["default"] == PoolSettings(1, 2, to_zero=True)


def test_a_stored_zone_that_is_not_known_here_does_not_hide_the_bounds() -> None:
    stored = {"least": 2, "schedules": [{**DAY, "zone": "Europe/Atlantis"}]}
    assert settings_of(decided(a=stored), "a").bounds(NOON) == (Bounds(2, 8), "")


def test_pools_of_a_group_hold_each_others_models() -> None:
    decisions = Decisions(
        {
            (POOL, "b"): StoredEntry({"group": "g"}, 1),
            (POOL, "a"): StoredEntry({"group": "g"}, 2),
            (POOL, "c"): StoredEntry({"group": ""}, 3),
            ("model", "m"): StoredEntry({"pool": "b"}, 4),
            ("model", "n"): StoredEntry({"pool": "c"}, 5),
        }
    )
    assert decisions.pools("m") == decisions.beside("a") == ("a", "b")
    assert (decisions.pools("n"), decisions.pools("other")) == (("c",), ("default",))
    assert decisions.groups == {"g": ("a", "b")}


def test_all_pools_are_known_with_replicas_models_or_settings() -> None:
    decisions = Decisions(
        {(POOL, "set"): StoredEntry({}, 1), ("model", "m"): StoredEntry({"pool": "wished"}, 2)}
    )
    known = known_pools(decisions, ["present"], ["m", "n"], usual_of("usual", 1, 2))
    assert known == ("default", "present", "set", "usual", "wished")


def test_which_names_a_pool_may_have() -> None:
    for name in ("default", "a100-80gb", "_x", "L4.2"):
        assert check_pool_name(name) == name
    for name in ("", "a b", "-x", ".x", "a/b", "a" * 64, "é"):
        refusal(Invalid, check_pool_name, name)
