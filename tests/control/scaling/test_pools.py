"""Pool settings and schedules: how they are read, and which bounds hold when."""

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st
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
from serve.control.scaling.schedules import Schedule
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


# --- schedules, over midnight and changes of the clocks too ---------------------------------------

BERLIN = "Europe/Berlin"
WORKDAYS = "mon-fri 08:00-18:00 Europe/Berlin least=4"


def at(text: str, zone: str = BERLIN, fold: int = 0) -> float:
    """Seconds of the epoch when a clock of the zone shows this; `fold` 1 is the second time."""
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold).timestamp()


def holds(schedule: str, *moments: str, zone: str = BERLIN) -> list[bool]:
    read = Schedule.parse(schedule)
    return [read.holds(at(moment, zone)) for moment in moments]


def test_a_schedule_is_read_as_people_write_it_and_told_in_one_form() -> None:
    expected = Schedule(frozenset(range(5)), 480, 1080, BERLIN, 4, None)
    assert Schedule.parse(WORKDAYS) == expected
    for text, told in (
        ("08:00-18:00 least=4", "mon-sun 08:00-18:00 UTC least=4"),
        ("daily 22:00-06:00 most=2", "mon-sun 22:00-06:00 UTC most=2"),
        ("weekend 00:00-24:00 UTC least=1 most=3", "sat-sun 00:00-24:00 UTC least=1 most=3"),
        ("fri-mon 10:00-11:00 UTC least=2", "mon,fri-sun 10:00-11:00 UTC least=2"),
        ("Tue,thu 10:00-11:00 UTC least=2", "tue,thu 10:00-11:00 UTC least=2"),
        ("mon,tue-wed 10:00-11:00 UTC least=2", "mon-wed 10:00-11:00 UTC least=2"),
    ):
        assert str(Schedule.parse(text)) == told


@given(
    st.sets(st.integers(0, 6), min_size=1),
    st.integers(0, 1439),
    st.integers(0, 1440),
    st.sampled_from([(4, None), (None, 2), (3, 9)]),
)
def test_every_schedule_survives_being_told_and_written(
    days: set[int], begins: int, ends: int, bounds: tuple[int | None, int | None]
) -> None:
    if begins == ends:
        return
    made = Schedule(frozenset(days), begins, ends, "UTC", *bounds)
    assert Schedule.parse(str(made)) == made == Schedule.of(made.to_json())


def test_what_is_no_schedule_is_refused_with_its_reason() -> None:
    for text, why in (
        ("", "hours FROM-TO are missing"),
        ("mon-fri least=4", "hours FROM-TO are missing"),
        ("08:00 least=4", "hours FROM-TO are missing"),
        ("8:00-18:00 least=4", "'8:00' is not a time of day"),
        ("08:00-25:00 least=4", "'25:00' is not a time of day"),
        ("08:00-08:00 least=4", "a whole day is 00:00-24:00"),
        ("24:00-08:00 least=4", "a schedule cannot start at 24:00"),
        ("monday 08:00-18:00 least=4", "'monday' is not a day"),
        ("mon-fry 08:00-18:00 least=4", "'mon-fry' is not a day"),
        ("08:00-18:00", "neither 'least' nor 'most'"),
        ("08:00-18:00 least=0", "'least' is not an integer of 1 or more"),
        ("08:00-18:00 least=-1", "'least=-1' is not in the form"),
        ("08:00-18:00 least=4 least=5", "'least=5' sets the same value again"),
        ("mon tue 08:00-18:00 least=4", "'tue' sets the same value again"),
        ("08:00-12:00 14:00-18:00 least=4", "'14:00-18:00' sets the same value again"),
        ("08:00-18:00 Europe Berlin least=4", "'Berlin' sets the same value again"),
        ("08:00-18:00 budget=4", "'budget=4' is not in the form"),
    ):
        error = refusal(Invalid, Schedule.parse, text)
        assert "schedule" in str(error) and why in str(error), text
        assert "mon-fri 08:00-18:00" in error.try_this, text


def test_a_body_with_other_types_or_fields_is_refused() -> None:
    hours = {"from": "08:00", "to": "18:00", "least": 1}
    for name, wrong in (
        *(("from", 8), ("least", True), ("least", 1.5), ("days", 3), ("zone", 3)),
        ("until", "2030"),
    ):
        refusal(Invalid, Schedule.of, hours | {name: wrong})


def test_it_holds_from_its_beginning_until_before_its_end_on_its_days() -> None:
    friday, saturday = "2026-11-20", "2026-11-21"
    moments = [f"{friday}T{time}" for time in ("07:59:59", "08:00", "17:59:59", "18:00")]
    assert holds(WORKDAYS, *moments, f"{saturday}T12:00") == [False, True, True, False, False]
    # its hours are those of its zone
    assert holds(WORKDAYS, "2026-11-20T07:30", "2026-11-20T16:59", zone="UTC") == [True, True]
    assert holds(WORKDAYS, "2026-11-20T06:59", "2026-11-20T17:00", zone="UTC") == [False, False]


def test_a_night_belongs_to_the_day_on_which_it_begins() -> None:
    moments = ["2026-11-20T21:59", "2026-11-20T22:00", "2026-11-21T05:59", "2026-11-21T06:00"]
    assert holds("fri 22:00-06:00 Europe/Berlin least=2", *moments) == [False, True, True, False]
    assert holds("sat 22:00-06:00 Europe/Berlin least=2", *moments) == [False] * 4


def test_a_night_that_ends_at_midnight_ends_there_and_a_whole_day_is_from_there_to_there() -> None:
    days = [f"2026-11-{day}" for day in (20, 21, 22)]
    moments = [f"{days[0]}T23:59", f"{days[1]}T00:00", f"{days[1]}T23:59:59", f"{days[2]}T00:00"]
    assert holds("fri 22:00-00:00 Europe/Berlin least=2", *moments[:2]) == [True, False]
    assert holds("fri 22:00-24:00 Europe/Berlin least=2", *moments[:2]) == [True, False]
    assert holds("sat 00:00-24:00 Europe/Berlin least=2", *moments) == [False, True, True, False]


# In Berlin clocks go from 02:00 to 03:00 on 2026-03-29, and from 03:00 back to 02:00 on 2026-10-25.


def hours_of(schedule: str, day: str) -> float:
    """For how many hours it holds from noon before a day until noon on the next, by minutes."""
    read, middle = Schedule.parse(schedule), at(f"{day}T12:00")
    return sum(read.holds(middle + 60 * step) for step in range(-24 * 60, 24 * 60)) / 60


def test_a_span_begins_or_ends_at_the_change_where_its_beginning_or_end_is_skipped() -> None:
    read = Schedule.parse("sun 02:30-06:00 Europe/Berlin least=2")
    change = at("2026-03-29T03:00")
    assert (read.holds(change - 1), read.holds(change)) == (False, True)
    assert hours_of(str(read), "2026-03-29") == 3
    ends = Schedule.parse("sun 00:00-02:30 Europe/Berlin least=2")
    assert (ends.holds(change - 1), ends.holds(change)) == (True, False)


def test_a_span_within_the_skipped_hour_does_not_come_that_day() -> None:
    assert hours_of("sun 02:15-02:45 Europe/Berlin least=2", "2026-03-29") == 0
    assert hours_of("sun 02:15-02:45 Europe/Berlin least=2", "2026-03-22") == 0.5


def test_a_span_begins_at_the_first_and_ends_at_the_last_of_equal_times() -> None:
    begins = Schedule.parse("sun 02:30-06:00 Europe/Berlin least=2")
    first = at("2026-10-25T02:30")
    assert (begins.holds(first - 1), begins.holds(first)) == (False, True)
    assert begins.holds(at("2026-10-25T02:15", fold=1))  # after the clock was put back
    ends = Schedule.parse("sun 00:00-02:30 Europe/Berlin least=2")
    last = at("2026-10-25T02:30", fold=1)
    assert ends.holds(at("2026-10-25T02:45"))  # before it is put back
    assert (ends.holds(last - 1), ends.holds(last)) == (True, False)


def test_a_night_over_a_change_is_as_long_as_that_night() -> None:
    assert hours_of("sat 22:00-06:00 Europe/Berlin least=2", "2026-03-29") == 7
    assert hours_of("sat 22:00-06:00 Europe/Berlin least=2", "2026-10-25") == 9


@given(st.integers(0, 400 * 24 * 4))
def test_in_utc_a_day_and_its_complement_never_hold_together(quarter: int) -> None:
    wall = at("2026-01-01T00:00", "UTC") + quarter * 900
    day, night = (
        Schedule.parse(f"daily {hours} UTC least=1") for hours in ("07:15-19:30", "19:30-07:15")
    )
    assert day.holds(wall) is not night.holds(wall)


def test_a_zone_that_this_machine_does_not_know_is_told_and_never_holds() -> None:
    read = Schedule.parse("08:00-18:00 Europe/Atlantis least=4")
    assert not read.holds(at("2026-11-20T12:00"))
    assert "'Europe/Atlantis' is not a time zone" in str(refusal(Invalid, read.require_zone))
    body = {"from": "08:00", "to": "18:00", "least": 4}
    for path in ("../etc/passwd", "/etc/passwd", "Europe", "a\0b", "."):
        refusal(Invalid, lambda path=path: Schedule.of(body | {"zone": path}).require_zone())
