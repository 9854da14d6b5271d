"""The statistics of benchmarks: ratios of interleaved rounds, intervals, shares, and growth."""

import pytest

from loadtests.bench import fleet_growth, hint_cost
from loadtests.bench.accounting import Cpu, split
from loadtests.bench.against_checkout import Compared, interval
from loadtests.bench.generators import Load
from loadtests.bench.hint_cost import Cost
from loadtests.bench.rounds import Ratio, Sample, interleave, ratio, summarise
from loadtests.bench.verifying import Wrong, check_shares


def sample(
    calls: int = 1000, cpu: float | None = 0.01, p50: float = 100.0, supervisors: float = 0.0
) -> Sample:
    load = Load(calls=calls, seconds=1.0, failed=0, p50=p50, p99=2 * p50)
    return Sample(load, None if cpu is None else Cpu(cpu, supervisors))


# --- rounds ---------------------------------------------------------------------------------------


def test_every_round_measures_all_targets_and_another_one_begins() -> None:
    order: list[str] = []
    samples = interleave(("a", "b", "c"), 3, lambda name: order.append(name) or sample())
    assert order == ["a", "b", "c", "b", "c", "a", "c", "a", "b"]
    assert {name: len(rows) for name, rows in samples.items()} == {"a": 3, "b": 3, "c": 3}


@pytest.mark.parametrize(
    ("ours", "theirs", "found"),
    [
        ((500, 50, 5), (1000, 100, 10), Ratio(0.5, 0.5, 0.5)),  # noise common to both cancels
        ((900, 500, 700), (1000, 1000, 1000), Ratio(0.7, 0.5, 0.9)),  # median and extremes
    ],
)
def test_a_ratio_is_taken_within_each_round(
    ours: tuple[int, ...], theirs: tuple[int, ...], found: Ratio
) -> None:
    sides = ([sample(calls) for calls in side] for side in (ours, theirs))
    assert ratio(*sides, lambda one: one.rate) == found


def test_a_round_in_which_the_reference_did_nothing_is_left_out() -> None:
    nothing = sample(calls=0, cpu=0.0)
    found = ratio([sample(), sample()], [nothing, sample()], lambda one: one.cpu_per_call)
    assert found == Ratio(1.0, 1.0, 1.0)


def test_cpu_is_that_of_workers_per_call_and_latency_is_above_the_target_without_a_proxy() -> None:
    samples = {
        "direct": [sample(cpu=None, p50=100)],
        "nginx": [sample(p50=150)],
        "ours": [sample(cpu=0.02, p50=200, supervisors=0.005)],
    }
    lines = {one.target: one for one in summarise(samples, reference="nginx", direct="direct")}
    ours, direct = lines["ours"], lines["direct"]
    assert (ours.cpu, ours.supervision) == (pytest.approx(20), pytest.approx(5))
    assert ours.cpu_ratio.median == pytest.approx(2)
    assert (ours.added_p50, ours.added_p50_ratio) == (100, 2)
    assert (direct.cpu, direct.cpu_ratio, direct.added_p50_ratio) == (None, None, None)


def test_the_leaves_of_a_process_tree_carry_the_traffic_and_the_rest_supervises() -> None:
    tree = split(10, {11: 10, 12: 11, 13: 11, 99: 1})
    assert tree.workers == (12, 13)
    assert tree.supervisors == (10, 11)


# --- intervals and shares -------------------------------------------------------------------------


def test_the_interval_is_students_on_logarithms() -> None:
    assert interval([1.1] * 5) == pytest.approx((1.1, 1.1, 1.1))
    # logarithms -0.1, 0, 0, 0, 0.1: standard deviation 0.0707, standard error 0.0316, t = 2.776
    mean, low, high = interval([0.904837, 1.0, 1.0, 1.0, 1.105171])
    assert mean == pytest.approx(1.0, abs=1e-5)
    assert (low, high) == pytest.approx((0.916, 1.092), abs=1e-3)


def test_a_row_is_slower_only_where_its_whole_interval_is() -> None:
    assert Compared("http", 1.05, 1.031, 1.07, 10, {}).is_slower
    assert not Compared("http", 1.05, 1.029, 1.07, 10, {}).is_slower


def test_shares_that_no_fair_draw_gives_are_wrong() -> None:
    check_shares({1: 9050, 2: 950}, {1: 90, 2: 10})
    with pytest.raises(Wrong, match="version 1 got 8500 of 10000 calls, not 9000"):
        check_shares({1: 8500, 2: 1500}, {1: 90, 2: 10})


# --- growth ---------------------------------------------------------------------------------------

FLEETS = (50, 100, 200, 500, 1000, 5000)
POOLS = (10, 100, 1000, 10_000)


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0, 2.0])
def test_a_power_of_the_fleets_size_is_found(power: float) -> None:
    found = fleet_growth.growth([(size, 3.0 * size**power) for size in FLEETS])
    assert found is not None
    assert found.exponent == pytest.approx(power, abs=1e-9)
    assert found.explained == pytest.approx(1.0)


def test_sizes_whose_costs_do_not_grow_yet_or_were_not_measured_do_not_count() -> None:
    flat = [(size, max(200.0, float(size))) for size in FLEETS]
    found = fleet_growth.growth(flat, least=200)
    assert found is not None and found.exponent == pytest.approx(1.0)
    assert fleet_growth.growth(flat, least=1000) is None  # two sizes
    assert fleet_growth.growth([(200, 0.0), (500, 0.0), (1000, 0.0)]) is None


def test_costs_of_hints_that_are_linear_or_quadratic_are_seen() -> None:
    found = hint_cost.growth([Cost(pools, (9.0, 2e-5 * pools, 0.0)) for pools in POOLS])
    assert found.per_pool == pytest.approx(2e-5)
    assert found.fixed == pytest.approx(0.0, abs=1e-9)
    assert (found.exponent, found.explained) == (pytest.approx(1.0), pytest.approx(1.0))
    squares = hint_cost.growth([Cost(pools, (1e-8 * pools**2,)) for pools in POOLS])
    assert squares.exponent == pytest.approx(2.0)
