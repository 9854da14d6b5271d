"""Samples of a fleet: rates of what was counted since before, null for what is untold."""

import pytest
from builders import call, choice
from control.live.watched import Scene, readings

from serve.core.calls import Verb
from serve.triton.metrics import ReplicaScrape


def answered(scene, count, *, code="200", seconds=0.004, **about):
    of = {name: about.pop(name) for name in ("model", "version") if name in about}
    for _ in range(count):
        scene.gateway.meters.call_answered(
            call(**about), choice(**of), code, seconds, good=code == "200"
        )


# --- the gateway ----------------------------------------------------------------------------------


def test_calls_are_told_per_second_by_model_version_and_protocol() -> None:
    scene = Scene()
    answered(scene, 1)
    scene.look()
    answered(scene, 4)
    answered(scene, 2, protocol="grpc")
    tree = scene.look(after=2.0)
    assert (tree["period"], tree["gateway"]["calls"]) == (2.0, 3.0)
    (versions,) = (model["versions"] for model in tree["models"].values())
    (protocols,) = versions.values()
    assert {name: one["calls"] for name, one in protocols.items()} == {"http": 2.0, "grpc": 1.0}


def test_errors_are_told_by_their_code_and_each_is_one_call() -> None:
    scene = Scene()
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


def test_looking_at_metadata_is_no_call() -> None:
    scene = Scene()
    scene.look()
    answered(scene, 5, verb=Verb.METADATA)
    assert scene.look()["gateway"]["calls"] == 0.0


def test_latency_is_of_the_calls_since_the_sample_before() -> None:
    scene = Scene()
    answered(scene, 100, seconds=9.0)
    scene.look()
    answered(scene, 100, seconds=0.004)
    busy, idle = scene.look(), scene.look()
    assert 0.003 < busy["gateway"]["p50"] < busy["gateway"]["p99"] <= 0.005
    assert (idle["gateway"]["calls"], idle["gateway"]["p50"]) == (0.0, None)


def test_numbers_of_processes_are_of_the_workers_that_were_there_before() -> None:
    scene = Scene()
    scene.look()
    scene.gateway.cpu += 1.5
    gateway = scene.look(after=2.0)["gateway"]
    assert (gateway["cpu"], gateway["memory"], gateway["in_flight"]) == (0.75, 7e7, 5.0)
    scene.gateway.others = 'servegate_process_cpu_seconds_total{source="worker-0@b"} 9000\n'
    scene.gateway.cpu += 1.0
    assert scene.look(after=2.0)["gateway"]["cpu"] == 0.5  # which it has not used in this time


def test_a_gateway_that_does_not_answer_tells_nothing_and_its_reading_grows_old() -> None:
    scene = Scene()
    scene.look()
    scene.gateway.is_well = False
    tree = scene.look(after=3.0)
    assert {tree["gateway"][name] for name in ("calls", "p99", "in_flight", "cpu")} == {None}
    assert (tree["gateway"]["age"], tree["models"], tree["period"]) == (3.0, {}, None)
    assert tree["gateway"]["waiting"] == 0


def test_the_rate_after_a_gap_is_the_mean_of_all_of_it() -> None:
    scene = Scene()
    scene.look()
    scene.gateway.is_well = False
    scene.look()
    scene.gateway.is_well = True
    answered(scene, 6)
    tree = scene.look(after=2.0)
    assert (tree["period"], tree["gateway"]["calls"]) == (3.0, 2.0)


def test_a_gateway_that_was_started_anew_has_counted_what_it_says() -> None:
    scene = Scene()
    answered(scene, 1000)
    scene.look()
    scene.gateway.meters = type(scene.gateway.meters)()
    answered(scene, 5)
    tree = scene.look()
    assert tree["gateway"]["calls"] == 5.0
    assert tree["gateway"]["p50"] < 0.005


def test_the_first_sample_has_no_rates_and_what_is_forgotten_is_not_compared_with() -> None:
    scene = Scene()
    tree = scene.look()
    assert (tree["gateway"]["calls"], tree["gateway"]["in_flight"]) == (None, 5.0)
    one = tree["replicas"]["a"]
    assert (one["queue"], one["waiting"], one["in_flight"], one["avoided"]) == (None, 0, 2.0, 1)
    assert one["pool"] == "default"
    scene.sources.forget()
    assert scene.look(after=7200.0)["gateway"]["calls"] is None


def test_a_text_that_is_no_gateways_tells_nothing() -> None:
    scene = Scene()
    for text in ("<html>", "servegate_calls_total{", "servegate_calls_total 1"):
        scene.gateway.text = lambda text=text: text
        assert scene.look()["gateway"]["age"] is None, text


# --- replicas -------------------------------------------------------------------------------------


def test_the_queue_and_the_batches_of_a_replica_are_of_the_requests_since_before() -> None:
    scene = Scene()
    scene.told["a"] = readings(success=100, inferences=100, executions=100, queue=50.0)
    scene.look()
    scene.told["a"] = readings(
        success=120, inferences=180, executions=110, queue=50.2, compute=0.4, pending=3
    )
    one = scene.look(after=2.0)["replicas"]["a"]
    assert (one["requests"], one["batch"], one["waiting"]) == (10.0, 8.0, 3)
    assert (one["queue"], one["compute"]) == (pytest.approx(0.01), pytest.approx(0.02))
    assert {name: of["batch"] for name, of in one["models"].items()} == {"m": 8.0}


def test_an_idle_replica_has_no_queue_time_rather_than_none_at_all() -> None:
    scene = Scene()
    scene.look()
    one = scene.look()["replicas"]["a"]
    assert (one["requests"], one["queue"], one["batch"], one["cpu"]) == (0.0, None, None, 0.25)


def test_a_replica_that_tells_nothing_has_nulls_and_an_age() -> None:
    scene = Scene()
    scene.look()
    scene.told["a"] = None
    tree = scene.look(after=4.0)
    one = tree["replicas"]["a"]
    assert (one["state"], one["waiting"], one["cpu"], one["gpus"]) == ("up", None, None, {})
    assert (one["age"], tree["gateway"]["waiting"]) == (4.0, None)


def test_a_replica_that_is_not_up_is_not_asked_and_one_that_is_tells_what_it_still_lacks() -> None:
    scene = Scene()
    scene.told["b"] = readings()
    scene.missing = {"a": 3}
    a, b = (scene.look()["replicas"][name] for name in "ab")
    assert (a["state"], a["missing"]) == ("up", 3)
    assert (b["state"], b["age"], b["waiting"], b["missing"]) == ("unseen", None, None, None)


def test_a_triton_that_was_started_anew_has_counted_what_it_says() -> None:
    scene = Scene()
    scene.told["a"] = readings(success=1000, inferences=1000, executions=900, queue=60.0)
    scene.look()
    scene.told["a"] = readings(success=4, inferences=8, executions=2, queue=0.02)
    one = scene.look()["replicas"]["a"]
    assert (one["requests"], one["batch"], one["queue"]) == (4.0, 4.0, pytest.approx(0.005))


def test_what_a_gpu_does_not_tell_and_what_is_not_finite_is_null() -> None:
    scene = Scene()
    scene.told["a"] = readings(gpu=0.5)
    assert scene.look()["replicas"]["a"]["gpus"] == {
        "GPU-1": {"utilization": 0.5, "memory_used": 1e9, "memory_total": 8e9, "power": None}
    }
    scene.told["a"] = ReplicaScrape({}, {}, float("nan"))
    assert scene.look()["replicas"]["a"]["cpu"] is None
