"""Samples of a fleet: rates of what was counted since before, null for what is untold."""

from collections.abc import Sequence
from math import inf
from typing import Any

import pytest
from builders import call, choice
from control.live.watched import Scene, readings
from hypothesis import given
from hypothesis import strategies as st

from serve.control.live.rises import add_buckets, bucket_rises, quantile, rises
from serve.control.live.samples import columns
from serve.core.calls import Verb
from serve.triton.metrics import ReplicaScrape


@pytest.fixture
def scene() -> Scene:
    """One gateway and two replicas."""
    return Scene()


def answered(scene, count, *, code="200", seconds=0.004, **about):
    of = {name: about.pop(name) for name in ("model", "version") if name in about}
    for _ in range(count):
        scene.gateway.meters.call_answered(
            call(**about), choice(**of), code, seconds, good=code == "200"
        )


# --- the gateway ----------------------------------------------------------------------------------


def test_calls_are_told_per_second_by_model_version_and_protocol(scene: Scene) -> None:
    answered(scene, 1)
    scene.look()
    answered(scene, 4)
    answered(scene, 2, protocol="grpc")
    tree = scene.look(after=2.0)
    assert (tree["period"], tree["gateway"]["calls"]) == (2.0, 3.0)
    (versions,) = (model["versions"] for model in tree["models"].values())
    (protocols,) = versions.values()
    assert {name: one["calls"] for name, one in protocols.items()} == {"http": 2.0, "grpc": 1.0}


def test_errors_are_told_by_their_code_and_each_is_one_call(scene: Scene) -> None:
    scene.look()
    answered(scene, 3)
    answered(scene, 2, code="400")
    for error in ("overloaded", "overloaded", "unknown_model"):
        known = None if error == "unknown_model" else choice()
        scene.gateway.meters.call_failed(call(), known, error, 0.001)
    tree = scene.look()
    assert tree["gateway"]["calls"] == 8.0
    assert tree["gateway"]["errors"] == 5.0
    assert tree["gateway"]["codes"] == {"400": 2.0, "overloaded": 2.0, "unknown_model": 1.0}
    assert tree["models"][""]["codes"] == {"unknown_model": 1.0}
    answered(scene, 5, verb=Verb.METADATA)  # which is no call
    assert scene.look()["gateway"]["calls"] == 0.0


def test_mirrored_calls_and_retries_are_told_per_second_and_are_no_calls(scene: Scene) -> None:
    scene.look()
    for protocol in ("http", "grpc"):
        scene.gateway.meters.mirrored(("m", "2", protocol), "200", 0.1)
        scene.gateway.meters.retried(call(), "not sent")
    tree = scene.look(after=2.0)
    for told in (tree["gateway"], tree["models"]["m"]):
        assert (told["mirrored"], told["retries"], told["calls"]) == (1.0, 1.0, 0.0)


def test_latency_is_of_the_calls_since_the_sample_before(scene: Scene) -> None:
    answered(scene, 100, seconds=9.0)
    scene.look()
    answered(scene, 100, seconds=0.004)
    busy, idle = scene.look(), scene.look()
    assert 0.003 < busy["gateway"]["p50"] < busy["gateway"]["p99"] <= 0.005
    assert (idle["gateway"]["calls"], idle["gateway"]["p50"]) == (0.0, None)


def test_numbers_of_processes_are_of_the_workers_that_were_there_before(scene: Scene) -> None:
    scene.look()
    scene.gateway.cpu += 1.5
    gateway = scene.look(after=2.0)["gateway"]
    assert (gateway["cpu"], gateway["memory"], gateway["in_flight"]) == (0.75, 7e7, 5.0)
    scene.gateway.others = 'servegate_process_cpu_seconds_total{source="worker-0@b"} 9000\n'
    scene.gateway.cpu += 1.0
    assert scene.look(after=2.0)["gateway"]["cpu"] == 0.5  # which it has not used in this time


def test_a_gateway_that_does_not_answer_tells_nothing_and_its_reading_grows_old(
    scene: Scene,
) -> None:
    scene.look()
    scene.gateway.is_well = False
    tree = scene.look(after=3.0)
    assert {tree["gateway"][name] for name in ("calls", "p99", "in_flight", "cpu")} == {None}
    assert (tree["gateway"]["age"], tree["models"], tree["period"]) == (3.0, {}, None)
    assert tree["gateway"]["waiting"] == 0


def test_the_rate_after_a_gap_is_the_mean_of_all_of_it(scene: Scene) -> None:
    scene.look()
    scene.gateway.is_well = False
    scene.look()
    scene.gateway.is_well = True
    answered(scene, 6)
    tree = scene.look(after=2.0)
    assert (tree["period"], tree["gateway"]["calls"]) == (3.0, 2.0)


def test_a_gateway_that_was_started_anew_has_counted_what_it_says(scene: Scene) -> None:
    answered(scene, 1000)
    scene.look()
    scene.gateway.meters = type(scene.gateway.meters)()
    answered(scene, 5)
    tree = scene.look()
    assert tree["gateway"]["calls"] == 5.0
    assert tree["gateway"]["p50"] < 0.005


def test_the_first_sample_has_no_rates_and_what_is_forgotten_is_not_compared_with(
    scene: Scene,
) -> None:
    tree = scene.look()
    assert (tree["gateway"]["calls"], tree["gateway"]["in_flight"]) == (None, 5.0)
    one = tree["replicas"]["a"]
    assert (one["queue"], one["waiting"], one["in_flight"], one["avoided"]) == (None, 0, 2.0, 1)
    assert one["pool"] == "default"
    scene.sources.forget()
    assert scene.look(after=7200.0)["gateway"]["calls"] is None


def test_a_text_that_is_no_gateways_tells_nothing(scene: Scene) -> None:
    for text in ("<html>", "servegate_calls_total{", "servegate_calls_total 1"):
        scene.gateway.text = lambda text=text: text
        assert scene.look()["gateway"]["age"] is None, text


# --- replicas -------------------------------------------------------------------------------------


def test_the_queue_and_the_batches_of_a_replica_are_of_the_requests_since_before(
    scene: Scene,
) -> None:
    scene.told["a"] = readings(success=100, inferences=100, executions=100, queue=50.0)
    scene.look()
    scene.told["a"] = readings(
        success=120, inferences=180, executions=110, queue=50.2, compute=0.4, pending=3
    )
    one = scene.look(after=2.0)["replicas"]["a"]
    assert (one["requests"], one["batch"], one["waiting"]) == (10.0, 8.0, 3)
    assert (one["queue"], one["compute"]) == (pytest.approx(0.01), pytest.approx(0.02))
    assert {name: of["batch"] for name, of in one["models"].items()} == {"m": 8.0}
    idle = scene.look()["replicas"]["a"]
    assert (idle["requests"], idle["cpu"]) == (0.0, 0.25)
    assert idle["queue"] is idle["batch"] is None


def test_a_replica_that_tells_nothing_has_nulls_and_an_age(scene: Scene) -> None:
    scene.look()
    scene.told["a"] = None
    tree = scene.look(after=4.0)
    one = tree["replicas"]["a"]
    assert (one["state"], one["waiting"], one["cpu"], one["gpus"]) == ("up", None, None, {})
    assert (one["age"], tree["gateway"]["waiting"]) == (4.0, None)


def test_a_replica_that_is_not_up_is_not_asked_and_one_that_is_tells_what_it_still_lacks(
    scene: Scene,
) -> None:
    scene.told["b"] = readings()
    scene.missing = {"a": 3}
    a, b = (scene.look()["replicas"][name] for name in "ab")
    assert (a["state"], a["missing"]) == ("up", 3)
    assert (b["state"], b["age"], b["waiting"], b["missing"]) == ("unseen", None, None, None)


def test_a_triton_that_was_started_anew_has_counted_what_it_says(scene: Scene) -> None:
    scene.told["a"] = readings(success=1000, inferences=1000, executions=900, queue=60.0)
    scene.look()
    scene.told["a"] = readings(success=4, inferences=8, executions=2, queue=0.02)
    one = scene.look()["replicas"]["a"]
    assert (one["requests"], one["batch"], one["queue"]) == (4.0, 4.0, pytest.approx(0.005))


def test_what_a_gpu_does_not_tell_and_what_is_not_finite_is_null(scene: Scene) -> None:
    scene.told["a"] = readings(gpu=0.5)
    assert scene.look()["replicas"]["a"]["gpus"] == {
        "GPU-1": {"utilization": 0.5, "memory_used": 1e9, "memory_total": 8e9, "power": None}
    }
    scene.told["a"] = ReplicaScrape({}, {}, float("nan"))
    assert scene.look()["replicas"]["a"]["cpu"] is None


# --- the history as columns -----------------------------------------------------------------------


def tree(seconds: float, hints: Sequence[str] = (), **more: Any) -> dict[str, Any]:
    return {"seconds": seconds, "period": 1.0, "hints": hints, **more}


def test_every_column_has_a_value_for_each_second() -> None:
    made = columns(
        [
            tree(1.0, models={}, replicas={"a": {"queue": 0.1, "gpus": {}}}, hints=["earlier"]),
            tree(2.0, models={"m": {"calls": 5.0}}, replicas={}),
            tree(
                3.0,
                hints=["now"],
                models={"m": {"calls": 7.0}},
                replicas={"a": {"gpus": {"G": {"power": 9}}}},
            ),
        ]
    )
    assert made["hints"] == ["now"]
    assert made["seconds"] == [1.0, 2.0, 3.0]
    assert made["models"] == {"m": {"calls": [None, 5.0, 7.0]}}
    assert made["replicas"] == {
        "a": {"queue": [0.1, None, None], "gpus": {"G": {"power": [None, None, 9]}}}
    }


def test_a_history_of_nothing_has_all_columns() -> None:
    made = columns([])
    assert (made["seconds"], made["gateway"]["p99"], made["gateway"]["codes"]) == ([], [], {})
    assert (made["models"], made["replicas"], made["hints"]) == ({}, {}, [])


# --- counters from reading to reading, and quantiles of buckets -----------------------------------


def test_a_counter_rises_by_what_is_new_and_begins_again_at_zero() -> None:
    assert rises({"a": 3.0, "gone": 1.0}, {"a": 5.0, "new": 2.0}) == {"a": 2.0, "new": 2.0}
    assert rises({"a": 100.0}, {"a": 4.0}) == {"a": 4.0}
    # all buckets of a histogram together
    assert bucket_rises({0.1: 5.0, inf: 100.0}, {0.1: 8.0, inf: 20.0}) == {0.1: 8.0, inf: 20.0}


def test_histograms_are_added_bound_by_bound() -> None:
    assert add_buckets([{0.1: 1.0, inf: 2.0}, {0.1: 3.0, inf: 3.0}]) == {0.1: 4.0, inf: 5.0}
    assert add_buckets([]) == {}


def test_calls_are_taken_to_lie_evenly_in_their_bucket() -> None:
    for share, seconds in ((0.5, 0.01), (0.9, 0.018), (0.99, 0.0198)):
        assert quantile(share, {0.01: 50, 0.02: 100, inf: 100}) == pytest.approx(seconds)
    # beyond the last bound a quantile is that bound, and without calls there is none
    assert quantile(0.99, {0.01: 10, 60.0: 10, inf: 1000}) == 60.0
    assert quantile(0.5, {}) is quantile(0.5, {0.01: 0.0, inf: 0.0}) is None


@given(st.lists(st.integers(0, 50), min_size=4, max_size=4), st.floats(0.01, 1.0))
def test_a_quantile_lies_in_the_bucket_of_its_call(counts: list[int], share: float) -> None:
    bounds = [0.1, 0.2, 0.4, 0.8]
    upto = [float(sum(counts[: at + 1])) for at in range(4)]
    found = quantile(share, dict(zip(bounds, upto, strict=True)))
    if not upto[-1]:
        assert found is None
        return
    at = next(at for at in range(4) if upto[at] >= share * upto[-1])
    assert found is not None
    assert (bounds[at - 1] if at else 0.0) <= found <= bounds[at] + 1e-12
