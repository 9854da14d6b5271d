"""Groups: what each pool bears, by hand and by properties that any division has to have."""

import itertools
import math
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serve.capacity.scaling.groups import UP, Offer, Shares, part_of, shares
from serve.capacity.scaling.signals import ModelSignal


def offer(
    pool: str,
    cost: float = 1.0,
    *,
    least: int = 0,
    most: int = 10,
    ready: int = 0,
    **capacities: float | None,
) -> Offer:
    return Offer(pool, cost, least, most, capacities or {"m": 100.0}, ready)


def told(found: Shares, model: str = "m") -> dict[str, float]:
    """The parts of one model by pool, those without any left out."""
    parts = {pool: round(of.get(model, 0.0), 6) for pool, of in found.items()}
    return {pool: part for pool, part in parts.items() if part}


def used(demand: Mapping[str, float], one: Offer, found: Shares) -> float:
    """Replicas of a pool that what it gets keeps as busy as they may be."""
    return sum(
        demand[model] * part / (UP * (one.capacities.get(model) or math.inf))
        for model, part in found[one.pool].items()
    )


def price(demand: Mapping[str, float], offers: Sequence[Offer], found: Shares) -> float:
    """What the replicas cost per hour, in fractions; those that must run are paid anyway."""
    return sum(one.cost * max(one.least, used(demand, one, found)) for one in offers)


# --- by hand --------------------------------------------------------------------------------


def test_the_pool_where_a_call_is_cheapest_bears_all_that_it_has_room_for() -> None:
    slow, fast = offer("slow", 1.0, m=100.0), offer("fast", 3.0, m=400.0)
    assert told(shares({"m": 500.0}, [slow, fast])) == {"fast": 1.0}
    assert told(shares({"m": 500.0}, [slow, offer("fast", 5.0, m=400.0)])) == {"slow": 1.0}


def test_what_has_no_room_in_the_cheapest_goes_to_the_next() -> None:
    cheap, dear = offer("cheap", 1.0, most=2), offer("dear", 2.0)
    room = 2 * UP * 100
    found = told(shares({"m": 400.0}, [cheap, dear]))
    assert found == {"cheap": round(room / 400, 6), "dear": round(1 - room / 400, 6)}


def test_a_pool_that_cannot_or_may_not_bear_anything_gets_nothing_however_cheap() -> None:
    new = offer("new", 9.0)
    for cheap in (
        offer("old", 0.01, m=0.0),  # it cannot meet the objective
        offer("old", 0.1, most=0),
        offer("old", 0.1, m=math.nan),
        offer("old", 0.1, m=-5.0),
    ):
        assert told(shares({"m": 5.0}, [cheap, new])) == {"new": 1.0}


def test_replicas_that_run_anyway_are_used_before_cheaper_ones_are_bought() -> None:
    forced, cheap = offer("forced", 5.0, least=1), offer("cheap", 1.0)
    room = UP * 100
    found = told(shares({"m": 200.0}, [forced, cheap]))
    assert found == {"forced": round(room / 200, 6), "cheap": round(1 - room / 200, 6)}


def test_the_model_for_which_going_elsewhere_costs_more_has_the_room() -> None:
    best = offer("best", 1.0, most=2, big=50.0, small=100.0)
    other = offer("other", 1.0, big=5.0, small=95.0)
    found = shares({"big": 85.0, "small": 170.0}, [best, other])
    assert told(found, "big") == {"best": 1.0} and told(found, "small") == {"other": 1.0}


def test_what_nobody_has_room_for_goes_to_the_cheapest_beyond_what_it_may_have() -> None:
    found = shares({"m": 10_000.0}, [offer("a", 1.0, most=1), offer("b", 2.0, most=1)])
    assert told(found)["a"] > 0.98 and told(found)["b"] == round(85 / 10_000, 6)


def test_what_nobody_has_room_for_goes_where_nothing_is_known_so_that_it_becomes_known() -> None:
    offers = [offer("known", 1.0, most=1), offer("new", 3.0, m=None), offer("dear", 4.0, m=None)]
    assert told(shares({"m": 85.0}, offers)) == {"known": 1.0}
    assert told(shares({"m": 170.0}, offers)) == {"known": 0.5, "new": 0.5}


def test_while_nothing_is_known_at_all_calls_count_where_replicas_are() -> None:
    offers = [offer("a", ready=3, m=None), offer("b", ready=1, m=None), offer("c", m=None)]
    assert told(shares({"m": 5.0}, offers)) == {"a": 0.75, "b": 0.25}


def test_the_first_call_wakes_the_cheapest_pool_to_which_a_model_belongs_that_nobody_calls() -> (
    None
):
    unknown = [offer("a", 2.0, m=None), offer("b", 1.0, m=None)]
    assert told(shares({"m": 0.2}, unknown)) == {"b": 1.0}
    assert told(shares({"m": 0.0}, [offer("a", 2.0), offer("b", 1.0)])) == {"b": 1.0}
    assert told(shares({"m": 0.0}, [offer("a", 2.0), offer("b", 1.0, most=0)])) == {"a": 1.0}
    assert shares({"m": 1.0}, []) == {}


def test_readings_that_waver_move_nobody() -> None:
    before = shares({"m": 300.0}, [offer("a", 1.0), offer("b", 1.05)])
    now_b = [offer("a", 1.05), offer("b", 1.0)]
    assert told(before) == {"a": 1.0}
    assert told(shares({"m": 300.0}, now_b, before)) == {"a": 1.0}
    assert told(shares({"m": 300.0}, now_b)) == {"b": 1.0}
    assert told(shares({"m": 300.0}, [offer("a", 1.2), offer("b", 1.0)], before)) == {"b": 1.0}


def test_a_rate_that_cannot_be_is_divided_all_the_same() -> None:
    for rate in (math.nan, -1.0, math.inf):
        found = told(shares({"m": rate}, [offer("a"), offer("b", 2.0)]))
        assert sum(found.values()) == pytest.approx(1.0)


def test_a_pool_sees_its_part_of_what_comes_and_all_else_as_it_is() -> None:
    model = ModelSignal("m", 10.0, 8.0, 6.0, 50.0, 2, missed=0.1, age=1.0)
    assert part_of(model, 0.25) == ModelSignal("m", 2.5, 2.0, 1.5, 50.0, 2, missed=0.1, age=1.0)
    # which need not grow because calls are too slow where it bears none
    assert part_of(model, 0.0) == ModelSignal("m", 0.0, 0.0, 0.0, 50.0, 2, missed=None, age=1.0)


# --- whatever comes -------------------------------------------------------------------------

MODELS = ("m", "n", "o")
capacities = st.one_of(st.none(), st.just(0.0), st.floats(0.5, 5000.0))
pools = st.builds(
    Offer,
    pool=st.just(""),
    cost=st.floats(0.0, 10.0),
    least=st.integers(0, 4),
    most=st.integers(0, 40),
    capacities=st.fixed_dictionaries(dict.fromkeys(MODELS, capacities)),
    ready=st.integers(0, 4),
)
groups = st.lists(pools, min_size=1, max_size=5).map(
    lambda found: [
        Offer(f"p{at}", one.cost, one.least, one.most, one.capacities, one.ready)
        for at, one in enumerate(found)
    ]
)
demands = st.fixed_dictionaries(dict.fromkeys(MODELS, st.floats(0.0, 20_000.0)))


@given(demands, groups)
def test_every_call_is_borne_once(demand: dict[str, float], offers: list[Offer]) -> None:
    found = shares(demand, offers)
    for model in demand:
        parts = [of.get(model, 0.0) for of in found.values()]
        assert all(0 <= part <= 1 + 1e-9 for part in parts)
        assert sum(parts) == pytest.approx(1.0, abs=1e-6)


@given(demands, groups)
def test_no_pool_needs_more_than_it_may_have_while_another_has_room(
    demand: dict[str, float], offers: list[Offer]
) -> None:
    found = shares(demand, offers)
    over = [one for one in offers if used(demand, one, found) > one.most + 1e-6]
    for one in over:
        for other in offers:
            room = other.most - used(demand, other, found)
            beyond = [m for m in demand if demand[m] and found[one.pool].get(m, 0.0) > 1e-6]
            able = [m for m in beyond if (other.capacities.get(m) or 0.0) > 0]
            assert other is one or not able or len(beyond) > len(able) or room < 1e-6


@given(demands, groups)
def test_what_was_answered_is_answered_again(demand: dict[str, float], offers: list[Offer]) -> None:
    once = shares(demand, offers)
    twice = shares(demand, offers, once)
    thrice = shares(demand, offers, twice)
    for one in offers:
        for model in demand:
            again = thrice[one.pool].get(model, 0.0)
            assert again == pytest.approx(twice[one.pool].get(model, 0.0), abs=1e-6)


known = st.floats(1.0, 500.0)
two = st.tuples(
    *(
        st.builds(
            Offer,
            pool=st.just(name),
            cost=st.floats(0.1, 10.0),
            least=st.just(0),
            most=st.integers(1, 20),
            capacities=st.fixed_dictionaries({"m": known, "n": known}),
        )
        for name in ("a", "b")
    )
)


@settings(max_examples=100)
@given(two, st.floats(0.0, 3000.0), st.floats(0.0, 3000.0))
def test_of_two_pools_that_may_be_empty_no_other_division_is_cheaper(
    offers: tuple[Offer, Offer], m: float, n: float
) -> None:
    demand = {"m": m, "n": n}
    found = shares(demand, offers)
    if any(used(demand, one, found) > one.most + 1e-6 for one in offers):
        return  # there is no room for all
    steps = [step / 10 for step in range(11)]
    for x, y in itertools.product(steps, steps):
        other = {"a": {"m": x, "n": y}, "b": {"m": 1 - x, "n": 1 - y}}
        if all(used(demand, one, other) <= one.most for one in offers):
            mine, theirs = price(demand, offers, found), price(demand, offers, other)
            assert mine <= theirs * (1 + 1e-6) + 1e-6
