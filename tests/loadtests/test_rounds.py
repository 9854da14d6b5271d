"""Ratios of interleaved rounds."""

import pytest

from loadtests.bench.accounting import Cpu, split
from loadtests.bench.generators import Load
from loadtests.bench.rounds import Ratio, Sample, interleave, ratio, summarise


def sample(calls=1000, cpu=0.01, p50=100.0, failed=0, supervisors=0.0):
    load = Load(calls=calls, seconds=1.0, failed=failed, p50=p50, p99=2 * p50)
    return Sample(load, None if cpu is None else Cpu(cpu, supervisors))


def line(lines, target):
    return next(one for one in lines if one.target == target)


def test_every_round_measures_all_targets_and_another_one_begins():
    order = []
    samples = interleave(("a", "b", "c"), 3, lambda name: order.append(name) or sample())
    assert order == ["a", "b", "c", "b", "c", "a", "c", "a", "b"]
    assert {name: len(rows) for name, rows in samples.items()} == {"a": 3, "b": 3, "c": 3}


def test_a_ratio_is_taken_within_a_round_so_that_noise_common_to_both_cancels():
    ours = [sample(calls=500), sample(calls=50), sample(calls=5)]
    theirs = [sample(calls=1000), sample(calls=100), sample(calls=10)]
    assert ratio(ours, theirs, lambda one: one.rate) == Ratio(0.5, 0.5, 0.5)


def test_a_ratio_tells_its_median_and_its_extremes():
    ours = [sample(calls=calls) for calls in (900, 500, 700)]
    theirs = [sample()] * 3
    assert ratio(ours, theirs, lambda one: one.rate) == Ratio(0.7, 0.5, 0.9)


def test_cpu_time_is_per_call_of_the_workers_and_supervision_is_apart():
    rows = [sample(calls=1000, cpu=0.02, supervisors=0.005)]
    lines = summarise({"nginx": [sample()], "ours": rows}, reference="nginx", direct=None)
    ours = line(lines, "ours")
    assert ours.cpu == pytest.approx(20)
    assert ours.supervision == pytest.approx(5)
    assert ours.cpu_ratio.median == pytest.approx(2)


def test_latency_is_counted_from_the_target_without_a_proxy():
    samples = {
        "direct": [sample(cpu=None, p50=100)],
        "nginx": [sample(p50=150)],
        "ours": [sample(p50=200)],
    }
    lines = summarise(samples, reference="nginx", direct="direct")
    assert line(lines, "ours").added_p50 == 100
    assert line(lines, "ours").added_p50_ratio == 2
    assert line(lines, "direct").cpu is None
    assert line(lines, "direct").cpu_ratio is None
    assert line(lines, "direct").added_p50_ratio is None


def test_a_round_in_which_the_reference_did_nothing_is_left_out():
    nothing = sample(calls=0, cpu=0.0)
    found = ratio([sample(), sample()], [nothing, sample()], lambda one: one.cpu_per_call)
    assert found == Ratio(1.0, 1.0, 1.0)


def test_the_leaves_of_a_process_tree_carry_the_traffic_and_the_rest_supervises():
    tree = split(10, {11: 10, 12: 11, 13: 11, 99: 1})
    assert tree.workers == (12, 13)
    assert tree.supervisors == (10, 11)
