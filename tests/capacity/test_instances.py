"""Instances that slow each other down."""

import math

import pytest

from serve.capacity.batcher import Instances
from serve.capacity.service import ServiceTime

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
    assert idle.next_end == math.inf
    assert idle.is_free
    assert repr(idle) == "<Instances 0 of 1 busy at 0.000000 s>"
