"""Samples of a fleet: rates of what was counted since before, null for what is untold."""

import asyncio

import pytest
from builders import call, choice
from control.live.watched import Scene, readings

from serve.core.calls import Verb
from serve.triton.metrics import Readings


def play(scenario, scene=None):
    """What happens in a scene, and what came of it."""
    scene = scene or Scene()
    return asyncio.run(scenario(scene))


def answered(scene, count, *, code="200", seconds=0.004, **about):
    of = {name: about.pop(name) for name in ("model", "version") if name in about}
    for _ in range(count):
        scene.gateway.meters.call_answered(
            call(**about), choice(**of), code, seconds, good=code == "200"
        )


# --- the gateway ----------------------------------------------------------------------------------


def test_calls_are_told_per_second_by_model_version_and_protocol() -> None:
    async def scenario(scene):
        answered(scene, 1)
        await scene.sample()
        answered(scene, 4)
        answered(scene, 2, protocol="grpc")
        return await scene.sample(after=2.0)

    tree = play(scenario)
    assert (tree["period"], tree["gateway"]["calls"]) == (2.0, 3.0)
    (versions,) = (model["versions"] for model in tree["models"].values())
    (protocols,) = versions.values()
    assert {name: one["calls"] for name, one in protocols.items()} == {"http": 2.0, "grpc": 1.0}


def test_errors_are_told_by_their_code_and_each_is_one_call() -> None:
    async def scenario(scene):
        await scene.sample()
        answered(scene, 3)
        answered(scene, 2, code="400")
        for error in ("overloaded", "overloaded", "unknown_model"):
            known = None if error == "unknown_model" else choice()
            scene.gateway.meters.call_failed(call(), known, error, 0.001)
        return await scene.sample()

    tree = play(scenario)
    assert tree["gateway"]["calls"] == 8.0
    assert tree["gateway"]["errors"] == 5.0
    assert tree["gateway"]["codes"] == {"400": 2.0, "overloaded": 2.0, "unknown_model": 1.0}
    assert tree["models"][""]["codes"] == {"unknown_model": 1.0}


def test_looking_at_metadata_is_no_call() -> None:
    async def scenario(scene):
        await scene.sample()
        answered(scene, 5, verb=Verb.METADATA)
        return await scene.sample()

    assert play(scenario)["gateway"]["calls"] == 0.0


def test_latency_is_of_the_calls_since_the_sample_before() -> None:
    async def scenario(scene):
        answered(scene, 100, seconds=9.0)
        await scene.sample()
        answered(scene, 100, seconds=0.004)
        busy = await scene.sample()
        return busy, await scene.sample()

    busy, idle = play(scenario)
    assert 0.003 < busy["gateway"]["p50"] < busy["gateway"]["p99"] <= 0.005
    assert (idle["gateway"]["calls"], idle["gateway"]["p50"]) == (0.0, None)


def test_numbers_of_processes_are_of_the_workers() -> None:
    async def scenario(scene):
        await scene.sample()
        scene.gateway.cpu += 1.5
        return await scene.sample(after=2.0)

    gateway = play(scenario)["gateway"]
    assert (gateway["cpu"], gateway["memory"], gateway["in_flight"]) == (0.75, 7e7, 5.0)


def test_a_gateway_that_does_not_answer_tells_nothing_and_its_reading_grows_old() -> None:
    async def scenario(scene):
        await scene.sample()
        scene.gateway.is_well = False
        return await scene.sample(after=3.0)

    tree = play(scenario)
    assert {tree["gateway"][name] for name in ("calls", "p99", "in_flight", "cpu")} == {None}
    assert (tree["gateway"]["age"], tree["models"], tree["period"]) == (3.0, {}, None)
    assert tree["gateway"]["waiting"] == 0


def test_the_rate_after_a_gap_is_the_mean_of_all_of_it() -> None:
    async def scenario(scene):
        await scene.sample()
        scene.gateway.is_well = False
        await scene.sample()
        scene.gateway.is_well = True
        answered(scene, 6)
        return await scene.sample(after=2.0)

    tree = play(scenario)
    assert (tree["period"], tree["gateway"]["calls"]) == (3.0, 2.0)


def test_a_gateway_that_was_started_anew_has_counted_what_it_says() -> None:
    async def scenario(scene):
        answered(scene, 1000)
        await scene.sample()
        scene.gateway.meters = type(scene.gateway.meters)()
        answered(scene, 5)
        return await scene.sample()

    tree = play(scenario)
    assert tree["gateway"]["calls"] == 5.0
    assert tree["gateway"]["p50"] < 0.005


def test_the_first_sample_has_no_rates() -> None:
    tree = play(lambda scene: scene.sample())
    assert (tree["gateway"]["calls"], tree["gateway"]["in_flight"]) == (None, 5.0)
    assert (tree["replicas"]["a"]["queue"], tree["replicas"]["a"]["waiting"]) == (None, 0)


def test_what_is_forgotten_is_not_compared_with() -> None:
    async def scenario(scene):
        await scene.sample()
        scene.sources.forget()
        return await scene.sample(after=7200.0)

    assert play(scenario)["gateway"]["calls"] is None


@pytest.mark.parametrize("text", ["<html>", "servegate_calls_total{", "servegate_calls_total 1"])
def test_a_text_that_is_no_gateways_tells_nothing(text: str) -> None:
    async def scenario(scene):
        scene.gateway.text = lambda: text
        return await scene.sample()

    assert play(scenario)["gateway"]["age"] is None


# --- replicas -------------------------------------------------------------------------------------


def test_the_queue_and_the_batches_of_a_replica_are_of_the_requests_since_before() -> None:
    async def scenario(scene):
        scene.told["a"] = readings(success=100, inferences=100, executions=100, queue=50.0)
        await scene.sample()
        scene.told["a"] = readings(
            success=120, inferences=180, executions=110, queue=50.2, compute=0.4, pending=3
        )
        return await scene.sample(after=2.0)

    one = play(scenario)["replicas"]["a"]
    assert (one["requests"], one["batch"], one["waiting"]) == (10.0, 8.0, 3)
    assert (one["queue"], one["compute"]) == (pytest.approx(0.01), pytest.approx(0.02))


def test_work_is_told_by_the_name_that_people_know() -> None:
    async def scenario(scene):
        await scene.sample()
        scene.told["a"] = readings(success=5, inferences=5, executions=1)
        return await scene.sample()

    models = play(scenario)["replicas"]["a"]["models"]
    assert {name: one["batch"] for name, one in models.items()} == {"m": 5.0}


def test_an_idle_replica_has_no_queue_time_rather_than_none_at_all() -> None:
    async def scenario(scene):
        await scene.sample()
        return await scene.sample()

    one = play(scenario)["replicas"]["a"]
    assert (one["requests"], one["queue"], one["batch"], one["cpu"]) == (0.0, None, None, 0.25)


def test_a_replica_that_tells_nothing_has_nulls_and_an_age() -> None:
    async def scenario(scene):
        await scene.sample()
        scene.told["a"] = None
        return await scene.sample(after=4.0)

    tree = play(scenario)
    one = tree["replicas"]["a"]
    assert (one["state"], one["waiting"], one["cpu"], one["gpus"]) == ("up", None, None, {})
    assert (one["age"], tree["gateway"]["waiting"]) == (4.0, None)


def test_a_replica_that_is_not_up_is_not_asked() -> None:
    async def scenario(scene):
        scene.told["b"] = readings()
        return await scene.sample()

    one = play(scenario)["replicas"]["b"]
    assert (one["state"], one["age"], one["waiting"]) == ("unseen", None, None)


def test_a_replica_that_answers_again_tells_what_it_still_lacks() -> None:
    async def scenario(scene):
        scene.missing = {"a": 3}
        return await scene.sample()

    tree = play(scenario)
    assert (tree["replicas"]["a"]["state"], tree["replicas"]["a"]["missing"]) == ("up", 3)
    assert tree["replicas"]["b"]["missing"] is None


def test_a_triton_that_was_started_anew_has_counted_what_it_says() -> None:
    async def scenario(scene):
        scene.told["a"] = readings(success=1000, inferences=1000, executions=900, queue=60.0)
        await scene.sample()
        scene.told["a"] = readings(success=4, inferences=8, executions=2, queue=0.02)
        return await scene.sample()

    one = play(scenario)["replicas"]["a"]
    assert (one["requests"], one["batch"], one["queue"]) == (4.0, 4.0, pytest.approx(0.005))


def test_what_a_gpu_does_not_tell_is_null() -> None:
    async def scenario(scene):
        scene.told["a"] = readings(gpu=0.5)
        return await scene.sample()

    assert play(scenario)["replicas"]["a"]["gpus"] == {
        "GPU-1": {"utilization": 0.5, "memory_used": 1e9, "memory_total": 8e9, "power": None}
    }


def test_a_number_that_is_not_finite_is_null() -> None:
    async def scenario(scene):
        scene.told["a"] = Readings({}, {}, float("nan"))
        return await scene.sample()

    assert play(scenario)["replicas"]["a"]["cpu"] is None


def test_the_gateway_tells_what_is_in_flight_and_who_avoids_a_replica() -> None:
    one = play(lambda scene: scene.sample())["replicas"]["a"]
    assert (one["in_flight"], one["avoided"], one["pool"]) == (2.0, 1, "default")


def test_a_process_that_was_not_there_before_has_not_used_all_its_cpu_in_this_second() -> None:
    async def scenario(scene):
        await scene.sample()
        scene.gateway.others = 'servegate_process_cpu_seconds_total{source="worker-0@b"} 9000\n'
        scene.gateway.cpu += 1.0
        return await scene.sample(after=2.0)

    assert play(scenario)["gateway"]["cpu"] == 0.5
