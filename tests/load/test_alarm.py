"""The alarm clock of a driver's greenlet."""

import time
from collections.abc import Iterator

import gevent
import pytest

from serve.load.engine.alarm import Alarm


@pytest.fixture
def alarm() -> Iterator[Alarm]:
    made = Alarm(time.monotonic)
    yield made
    made.close()


def test_it_does_not_ring_early(alarm: Alarm) -> None:
    for wait in (0.0, 0.0003, 0.02):
        until = time.monotonic() + wait
        alarm.wait(until)
        assert time.monotonic() >= until


def test_others_run_while_somebody_waits_even_if_it_is_late(alarm: Alarm) -> None:
    done: list[int] = []
    gevent.spawn(done.append, 1)
    alarm.wait(time.monotonic() - 5)
    assert done == [1]


def test_it_can_be_hastened(alarm: Alarm) -> None:
    far = time.monotonic() + 3600
    gevent.spawn(alarm.hasten, time.monotonic() + 0.01)
    alarm.wait(far)
    assert time.monotonic() < far


def test_it_is_not_put_off_and_a_past_hurry_does_not_count(alarm: Alarm) -> None:
    until = time.monotonic() + 0.01
    alarm.hasten(time.monotonic() - 1)
    gevent.spawn(alarm.hasten, until + 3600)
    alarm.wait(until)
    assert until <= time.monotonic() < until + 3600
