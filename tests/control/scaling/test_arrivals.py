"""What came at the gateway, from its own texts."""

import pytest
from builders import call, choice
from control.scaling.watched_pools import Calls, text

from serve.control.scaling.arrivals import ModelArrivals, beyond
from serve.telemetry import Meters


def test_the_first_reading_tells_of_no_arrivals() -> None:
    arrivals = ModelArrivals()
    arrivals.tell(text({"m": Calls(answered={0.01: 1e6}, in_flight=3)}), 10.0)
    came = arrivals.of("m")
    assert (came.recent, came.lately, came.in_flight, came.seconds) == (0.0, 0.0, 3.0, None)
    assert came.missed(0.1) is None


def test_calls_count_when_they_come_and_not_again_when_they_end() -> None:
    arrivals = ModelArrivals()
    for at, calls in enumerate((Calls(), Calls(in_flight=50), Calls(answered={2.0: 50}))):
        arrivals.tell(text({"m": calls}), at * 5.0)
    came = arrivals.of("m")
    assert (came.recent, came.lately) == (0.0, 5.0)
    assert came.minute.came == 50


def test_a_worker_that_ends_takes_its_calls_along_and_nothing_comes_of_that() -> None:
    arrivals = ModelArrivals()
    arrivals.tell(text({"m": Calls(in_flight=90)}), 0.0)
    arrivals.tell(text({"m": Calls(answered={0.01: 10})}), 5.0)
    assert arrivals.of("m").recent == 0.0
    assert not arrivals.fault


def test_rates_hold_however_long_a_step_takes() -> None:
    arrivals = ModelArrivals()
    counts = ((0.0, 0), (5.0, 50), (6.0, 60), (8.0, 80), (28.0, 480))
    for at, count in counts:
        arrivals.tell(text({"m": Calls(answered={0.01: count})}), at)
    assert arrivals.of("m").recent == 20.0
    arrivals.tell(text({"m": Calls(answered={0.01: 490})}), 29.0)
    assert arrivals.of("m").recent == pytest.approx(410 / 21)  # one second is too short


def test_a_model_is_known_to_be_called_from_its_first_call_on() -> None:
    arrivals = ModelArrivals()
    arrivals.tell(text({"n": Calls()}), 0.0)
    arrivals.tell(text({"m": Calls(answered={0.01: 1}), "n": Calls()}), 5.0)
    arrivals.tell(text({"m": Calls(answered={0.01: 1}), "n": Calls()}), 10.0)
    assert arrivals.called == {"m": 5.0}


def test_the_real_meters_can_be_read_and_calls_for_unknown_models_are_left_out() -> None:
    meters, arrivals = Meters(), ModelArrivals()
    arrivals.tell(meters.text().decode(), 0.0)
    meters.call_answered(call(), choice(), "200", 0.25, good=True)
    meters.call_failed(call(), choice(), "overloaded", 0.0)
    meters.passed_on(call(), choice())
    meters.mirrored(("m", "2", "grpc"), "not_sent", 0.0)
    meters.call_failed(call(model="who"), None, "unknown_model", 0.0)
    arrivals.tell(meters.text().decode(), 5.0)
    came = arrivals.of("m")
    assert came.minute.came == 4.0, "a copy is work for replicas, too"
    assert came.seconds == pytest.approx(0.125)
    assert came.missed(0.1) == pytest.approx(2 / 3)
    assert came.missed(None) == pytest.approx(1 / 3)
    assert set(arrivals.called) == {"m"}


def test_a_minute_is_kept_and_no_more() -> None:
    arrivals = ModelArrivals()
    for at in range(0, 300, 5):
        arrivals.tell(text({"m": Calls(answered={0.01: at})}), float(at))
    assert arrivals.of("m").minute.came == 60.0
    assert repr(arrivals) == "<ModelArrivals steps=12 models=1>"


def test_calls_within_a_bucket_are_taken_to_lie_evenly() -> None:
    buckets = {0.05: 50.0, 0.1: 60.0, 1.0: 90.0, float("inf"): 100.0}
    for limit, late in ((0.05, 50.0), (0.1, 40.0), (0.55, 25.0), (1.0, 10.0), (7.0, 10.0)):
        assert beyond(limit, buckets) == pytest.approx(late)
    assert beyond(0.1, {}) == 0.0
