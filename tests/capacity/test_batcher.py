"""The simulation of Triton's batcher, against what mathematics says and what Triton does."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serve.capacity.batcher import Instances, saturation, simulate
from serve.capacity.service import ServiceTime
from serve.capacity.setup import BatchSetup
from serve.core.errors import Invalid

SERVICE = ServiceTime(0.004, 0.001)
MANY = 40_000

setups = st.builds(
    BatchSetup,
    max_batch_size=st.integers(1, 16),
    instances=st.integers(1, 3),
    batches=st.booleans(),
    delay=st.sampled_from([0.0, 0.001, 0.02]),
    preferred=st.sampled_from([(), (1,)]),
)
services = st.builds(
    ServiceTime,
    fixed=st.floats(0.0, 0.01),
    per_row=st.floats(1e-4, 0.005),
    scatter=st.floats(0.0, 0.5),
    slowdown=st.sampled_from([{1: 1.0}, {1: 1.0, 2: 1.7}]),
)
arrival_gaps = st.lists(st.floats(0.0, 0.05), min_size=2, max_size=60)


def mean_wait(setup: BatchSetup, service: ServiceTime, rate: float) -> float:
    """Seconds in the queue, on average."""
    seen = simulate(setup, service, rate, calls=MANY, seed=3)
    return float(seen.latencies.mean()) - service.time(1)


@pytest.mark.parametrize("load", [0.3, 0.6, 0.85])
def test_scatter_lengthens_the_wait_as_pollaczek_and_khinchine_say(load: float) -> None:
    service = ServiceTime(0.004, 0.001, scatter=1.0)
    rate = load / service.time(1)
    expected = load / (1 - load) * service.time(1)  # as long as in M/M/1, of the same scatter
    assert mean_wait(BatchSetup(0), service, rate) == pytest.approx(expected, rel=0.15)


@pytest.mark.parametrize(
    ("instances", "load"), [(1, 0.3), (1, 0.6), (1, 0.85), (2, 0.6), (2, 0.85), (4, 0.85)]
)
def test_without_batching_and_scatter_calls_wait_as_in_an_m_d_k_queue(
    instances: int, load: float
) -> None:
    rate = load * instances / SERVICE.time(1)
    expected = wait_in_m_d_k(instances, load) * SERVICE.time(1)
    assert mean_wait(BatchSetup(0, instances), SERVICE, rate) == pytest.approx(expected, rel=0.1)


def wait_in_m_d_k(servers: int, load: float) -> float:
    """Mean wait in service times: M/M/k halved, with Cosmetatos' correction (1976)."""
    offered = servers * load
    terms = [offered**n / math.factorial(n) for n in range(servers)]
    last = offered**servers / math.factorial(servers) / (1 - load)
    m_m_k = last / (sum(terms) + last) / (servers * (1 - load))
    more = (1 - load) * (servers - 1) * (math.sqrt(4 + 5 * servers) - 2) / (16 * load * servers)
    return m_m_k / 2 * (1 + more)


@pytest.mark.parametrize("instances", [1, 2, 3])
@pytest.mark.parametrize("delay", [0.0, 0.002])
def test_a_flood_is_worked_off_at_saturation(instances: int, delay: float) -> None:
    setup = BatchSetup(8, instances, delay=delay)
    service = ServiceTime(0.004, 0.001, slowdown={1: 1.0, 2: 1.5})
    seen = simulate(setup, service, np.zeros(24_000))
    assert seen.rate == pytest.approx(saturation(setup, service), rel=0.01)
    expected = instances * 8 / (0.012 * service.slowed(instances))
    assert saturation(setup, service) == pytest.approx(expected)


def test_calls_that_wait_when_an_instance_is_free_are_one_batch_and_none_is_split() -> None:
    waiting = simulate(BatchSetup(8), SERVICE, [0, 0.001, 0.002, 0.003, 0.5])
    assert dict(waiting.executions) == {1: 2, 3: 1}
    whole = simulate(BatchSetup(8), SERVICE, [0] * 5, rows=[3, 3, 3, 8, 1])
    assert dict(whole.executions) == {1: 1, 3: 1, 6: 1, 8: 1}


def test_a_batch_waits_for_the_delay_unless_it_is_large_enough() -> None:
    for setup, arrivals, longest in (
        (BatchSetup(8, delay=0.01), [0, 1, 2], 0.015),  # alone: it waits for company
        (BatchSetup(4, delay=0.5), [0, 0, 0, 0], 0.008),  # full: it does not wait
        (BatchSetup(8, delay=0.5, preferred=(2,)), [0, 0.1], 0.106),  # nor if preferred
    ):
        assert simulate(setup, SERVICE, arrivals).quantile(100) == pytest.approx(longest)


def test_a_call_by_itself_takes_its_execution_and_the_overhead() -> None:
    seen = simulate(BatchSetup(8), SERVICE, [0.0, 1.0, 2.0], overhead=0.0005)
    assert seen.p50 == pytest.approx(0.0055)
    assert dict(seen.executions) == {1: 3}


def test_without_a_delay_a_preferred_size_cuts_the_batch_short() -> None:
    assert max(simulate(BatchSetup(8, preferred=(4,)), SERVICE, [0.0] * 7).executions) == 4


def test_with_a_delay_calls_behind_a_busy_instance_wait_for_one_execution_more() -> None:
    """Triton wakes for them only when the preferred size is reached (see `forming.py`)."""
    rate = 0.6 * saturation(BatchSetup(16), SERVICE)
    eager = simulate(BatchSetup(16), SERVICE, rate)
    patient = simulate(BatchSetup(16, delay=0.0001), SERVICE, rate)
    assert patient.p50 - eager.p50 > 0.3 * SERVICE.time(eager.rows_per_execution)


def test_too_many_calls_are_not_kept_up_with_and_too_large_ones_are_refused() -> None:
    most = saturation(BatchSetup(8), SERVICE)
    assert simulate(BatchSetup(8), SERVICE, 0.95 * most).stable
    assert not simulate(BatchSetup(8), SERVICE, 1.3 * most).stable
    with pytest.raises(Invalid, match="a call of 9 rows is too large: max_batch_size is 8"):
        simulate(BatchSetup(8), SERVICE, 10.0, rows=9)


def test_the_same_seed_meets_the_same_luck() -> None:
    service = ServiceTime(0.004, 0.001, scatter=0.3)
    first, second = (simulate(BatchSetup(8), service, 300.0, seed=5) for _ in range(2))
    assert first.latencies.tolist() == second.latencies.tolist()


@given(setup=setups, service=services, gaps=arrival_gaps)
@settings(max_examples=100)
def test_all_calls_are_answered_once_in_batches_of_at_most_the_largest(
    setup: BatchSetup, service: ServiceTime, gaps: list[float]
) -> None:
    seen = simulate(setup, service, np.cumsum(gaps))
    assert sum(rows * count for rows, count in seen.executions.items()) == len(gaps)
    assert max(seen.executions) <= (setup.max_batch_size if setup.batches else 1)
    assert seen.latencies.size == len(gaps) - int(len(gaps) * 0.1)
    assert seen.latencies[0] > 0


@given(size=st.integers(1, 16), delay=st.floats(0.0, 0.05), gaps=arrival_gaps)
def test_where_an_instance_is_always_free_no_call_waits_longer_than_the_delay(
    size: int, delay: float, gaps: list[float]
) -> None:
    setup = BatchSetup(size, instances=len(gaps), delay=delay)
    seen = simulate(setup, SERVICE, np.cumsum(gaps))
    assert seen.latencies[-1] <= delay + SERVICE.time(size) + 1e-9


@given(setup=setups, service=services, share=st.floats(0.1, 0.7))
@settings(max_examples=20)
def test_without_a_delay_more_calls_never_make_the_median_shorter(
    setup: BatchSetup, service: ServiceTime, share: float
) -> None:
    eager = BatchSetup(setup.max_batch_size, setup.instances, setup.batches)
    steady = ServiceTime(service.fixed, service.per_row)
    most = saturation(eager, steady)
    low = simulate(eager, steady, share * most, calls=2000)
    high = simulate(eager, steady, 1.3 * share * most, calls=2000)
    assert high.p50 >= low.p50 * 0.99


@given(setup=setups, service=services, delay=st.floats(1e-4, 0.05))
@settings(max_examples=20)
def test_a_delay_never_makes_a_flood_go_faster(
    setup: BatchSetup, service: ServiceTime, delay: float
) -> None:
    steady = ServiceTime(service.fixed, service.per_row, 0.0, service.slowdown)
    eager = BatchSetup(setup.max_batch_size, setup.instances)
    patient = BatchSetup(setup.max_batch_size, setup.instances, delay=delay)
    first, second = (simulate(each, steady, np.zeros(500)) for each in (eager, patient))
    assert second.rate <= first.rate * (1 + 1e-9)


# --- instances that slow each other down ---------------------------------------------------------


SHARED = ServiceTime(1.0, 0.0, slowdown={1: 1.0, 2: 2.0})  # two of them on one processor


def test_two_that_share_a_processor_take_twice_as_long() -> None:
    both = Instances(2, SHARED)
    both.start(1.0, 0, 1)
    both.start(1.0, 1, 2)
    assert both.finish() == (0, 1)
    assert both.now == pytest.approx(2.0)
    assert both.finish() == (1, 2)
    assert both.now == pytest.approx(2.0)


def test_who_is_joined_halfway_is_slow_from_then_on() -> None:
    both = Instances(2, SHARED)
    both.start(1.0, 0, 1)
    both.advance(0.5)
    both.start(1.0, 1, 2)
    both.finish()
    assert both.now == pytest.approx(1.5)  # half of it alone, half of it at half the pace
    both.finish()
    assert both.now == pytest.approx(2.0)  # alone again for its second half


def test_a_short_one_that_starts_later_may_end_first() -> None:
    both = Instances(2, ServiceTime(1.0, 0.0))
    both.start(1.0, 0, 1)
    both.advance(0.25)
    both.start(0.5, 1, 2)
    assert both.finish() == (1, 2)
    assert both.now == pytest.approx(0.75)


def test_when_nothing_runs_nothing_ends() -> None:
    idle = Instances(1, SHARED)
    assert (idle.next_end, idle.is_free) == (math.inf, True)
    assert repr(idle) == "<Instances 0 of 1 busy at 0.000000 s>"
