"""Nothing wrong above the stated size passes the gate, and nothing right is refused."""

import pytest

from loadtests.bench import gate_curve
from loadtests.bench.gate_curve import SIZES, STATED
from loadtests.bench.gate_graphs import Fault, Session, Style
from loadtests.bench.gate_models import CLASSES, MODELS, build

SEEDS = (1,)


@pytest.fixture(scope="module")
def wrong():
    return tuple(gate_curve.wrong_ones(SEEDS))


@pytest.fixture(scope="module")
def right():
    return tuple(gate_curve.right_ones(SEEDS))


def test_every_class_has_ten_sizes_and_more_from_gross_to_subtle(wrong):
    assert len(SIZES) >= 10 and SIZES[0] == 1 and SIZES[-1] < 1e-6
    for kind in CLASSES:
        mine = [one for one in wrong if one.kind == kind]
        assert {one.size for one in mine} == set(SIZES)
        assert max(one.felt for one in mine) > 0.1 and min(one.felt for one in mine) < 1e-5


def test_nothing_that_is_felt_above_the_stated_size_passes(wrong):
    above = [one for one in wrong if one.felt >= STATED]
    assert len(above) > 50
    assert [one for one in above if not one.refused] == []


def test_right_models_that_add_in_another_order_are_not_refused(right):
    assert len(right) > 15 and any(one.felt > 0 for one in right)
    assert [one for one in right if one.refused] == []


def test_what_is_as_small_as_rounding_is_not_refused(wrong):
    assert [one for one in wrong if one.felt < 5e-6 and one.refused] == []


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_the_same_whatever_fault_or_style_it_has(name):
    assert build(name, 3) == build(name, 3, Fault("weights", 0.0), Style())
    session = Session(build(name, 3, style=Style(is_shuffled=True, is_split=True)))
    inputs = gate_curve.held_out(session.signature, 0)
    assert gate_curve.felt(Session(build(name, 3))(inputs), session(inputs)) < 1e-5
