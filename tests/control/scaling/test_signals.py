"""What is seen of pools, by script: readings go in, signals and hints come out."""

import math

import pytest
from builders import replica
from control.scaling.watched_pools import Scene

from serve.capacity.scaling.groups import UP
from serve.capacity.scaling.policy import TICK
from serve.capacity.scaling.signals import Bounds, Code
from serve.control.scaling.signals import Allowed


@pytest.fixture
def scene() -> Scene:
    """Replicas `a` and `b` hold model `m`."""
    return Scene()


def busy(scene: Scene, *, rate: float = 200.0, rounds: int = 4) -> None:
    """Both replicas share the calls; an execution takes 8 ms, and 2 ms for each row."""
    calls = rate * TICK / 2
    sizes = {"b1": (int(calls / 2), 0.010), "b2": (int(calls / 4), 0.012)}
    scene.work(rate=rate, rounds=rounds, queue=0.001, **sizes)


def test_a_capacity_is_learned_from_executions_under_the_objective(scene: Scene) -> None:
    scene.promise("m", "p99<80ms")
    scene.look()
    busy(scene)
    seen = scene.model()
    assert (seen.limit, seen.holding) == (0.08, 2)
    assert seen.capacity == pytest.approx(8 / 0.024, rel=0.05)  # all eight fit into half of 80 ms
    scene.promise("m", "p99<30ms")
    scene.look()
    assert scene.model().capacity == pytest.approx(3 / 0.014, rel=0.1)  # 2 · 14 ms < 30 ms


def test_calls_of_many_rows_need_more_of_a_replica(scene: Scene) -> None:
    scene.configurations["m"] = "max_batch_size: 8\ninstance_group [{ kind: KIND_CPU count: 2 }]\n"
    scene.look()
    scene.work(rounds=4, rate=2.0, on="a", b4=(10, 0.02), brings=4)
    assert scene.model().capacity == pytest.approx(2 / 0.02)


def test_a_model_that_is_never_executed_together_has_the_capacity_of_one_row(scene: Scene) -> None:
    scene.configurations["m"] = "max_batch_size: 0\ninstance_group [{ kind: KIND_CPU count: 1 }]\n"
    scene.look()
    scene.work(rounds=2, rate=10.0, on="a", b1=(50, 0.05))
    assert scene.model().capacity == pytest.approx(20.0)
    assert scene.model().occupancy is None


def test_an_ensemble_takes_the_time_of_all_its_parts() -> None:
    scene = Scene("whole", "first", "second")
    scene.configurations["whole"] = (
        'platform: "ensemble"\nmax_batch_size: 8\nensemble_scheduling { '
        'step { model_name: "first" model_version: -1 } '
        'step { model_name: "second" model_version: 1 } }\n'
    )
    scene.look()
    for _ in range(4):
        scene.call("whole", rate=20.0)
        scene.execute("a", "whole", b1=(100, 0.03))
        scene.execute("a", "first", b1=(100, 0.01))
        scene.execute("a", "second", b1=(100, 0.02))
        told = dict(scene.told["a"] or {})
        told["whole", 1] = type(told["whole", 1])(calls=told["whole", 1].calls, rows=100)
        scene.told["a"] = told
        scene.look()
    assert scene.model("whole").capacity == pytest.approx(1 / 0.03)
    assert {one.name for one in scene.hint().signal.models} == {"whole"}


def test_many_loaded_models_that_nobody_calls_change_nothing_of_the_one_that_is_called() -> None:
    """Triton-inference-server issue 8979: the mean of all models' ratios under-reports by them."""
    found = []
    for others in (0, 20):
        scene = Scene("m", *(f"idle-{number}" for number in range(others)))
        scene.look()
        scene.work(rounds=13, rate=100.0, b1=(250, 0.01), queue=0.02)
        seen = scene.model()
        assert seen.pressure == pytest.approx(2.0, rel=0.01)
        found.append((seen, scene.hint().hint))
    assert found[0] == found[1]


def test_a_ratio_counts_each_call_once_however_the_replicas_share_them(scene: Scene) -> None:
    scene.look()
    scene.call(rate=100.0)
    scene.execute("a", b1=(450, 0.01), queue=0.02)
    scene.execute("b", b8=(5, 0.02))
    scene.look()
    seen = scene.model()
    assert seen.pressure == pytest.approx(450 * 0.02 / (450 * 0.01 + 40 * 0.02), rel=0.01)
    assert seen.occupancy == pytest.approx(490 / (8 * 455))


def test_calls_that_wait_are_those_in_triton_or_all_where_no_replica_holds_the_model(
    scene: Scene,
) -> None:
    scene.look()
    scene.pending["m", 1] = 7
    scene.call(rate=10.0)
    scene.look()
    assert scene.model().waiting == 14.0  # on both replicas
    scene.fleet.lost("a", "it is gone")
    scene.fleet.lost("b", "it is gone")
    scene.calls.in_flight = 3
    scene.look()
    assert scene.model().waiting == 3.0


def test_where_tritons_metrics_are_off_those_wait_that_cannot_be_executing(scene: Scene) -> None:
    scene.tells_metrics = False
    scene.look()
    busy(scene)
    scene.calls.in_flight = 40
    scene.look()
    assert scene.model().waiting == 40 - 2 * 8
    assert scene.hint().hint.confidence == "low"  # for it has just begun


def test_calls_beyond_the_objective_are_counted_with_those_that_were_refused(scene: Scene) -> None:
    scene.promise("m", "p95<100ms")
    scene.look()
    scene.count(answered={0.05: 60, 0.5: 30}, overloaded=10)
    scene.look()
    seen = scene.model()
    assert seen.missed == pytest.approx(0.4)
    assert seen.allowed == pytest.approx(0.05)


def test_models_of_different_pools_are_told_apart() -> None:
    scene = Scene("m", "n", replicas=(replica("a"), replica("b", pool="large")))
    scene.place("n", "large")
    scene.look()
    scene.call("m", rate=10.0)
    scene.call("n", rate=20.0)
    scene.look()
    assert [one.name for one in scene.hint("default").signal.models] == ["m"]
    assert [one.name for one in scene.hint("large").signal.models] == ["n"]
    assert scene.model("n", "large").recent == 20.0


def test_a_replica_that_loads_its_models_is_starting_and_one_that_was_lost_is_expected_back() -> (
    None
):
    scene = Scene(replicas=(replica("a"), replica("b"), replica("c")))
    scene.fleet.joining.add("b")
    scene.fleet.lost("c", "it does not answer")
    scene.starting = {"default": 2}
    scene.look()
    assert (scene.hint().hint.ready, scene.hint().hint.starting) == (1, 4)
    for _ in range(60):
        scene.look()
    assert (scene.hint().hint.ready, scene.hint().hint.starting) == (1, 3)


def test_a_replica_is_ready_though_calls_are_steered_around_it(scene: Scene) -> None:
    scene.settle()
    busy(scene)
    with scene.fleet.steering("a"):
        scene.work(rounds=8, rate=100.0, on="b", b1=(500, 0.01))
        assert scene.hint().hint.ready == 2
        assert Code.STALE not in scene.hint().hint.codes


def test_a_pool_is_not_idle_while_a_long_call_is_under_way(scene: Scene) -> None:
    scene.look()
    scene.calls.in_flight = 1
    for _ in range(10):
        scene.look()
    assert scene.hint().signal.idle == 0.0
    scene.count(answered={0.01: 1})
    for _ in range(4):
        scene.look()
    assert scene.hint().signal.idle == 4 * TICK


def test_a_pool_is_not_idle_for_longer_than_anybody_has_looked(scene: Scene) -> None:
    scene.clock.now += 86_400.0  # another control plane has led until now
    scene.look()
    scene.look()
    assert scene.hint().signal.idle == TICK
    assert scene.hint().signal.age == 0.0


# --- groups of pools: the cheapest that can, comes first -----------------------------------------


def group(l4: Bounds, a100: Bounds, *, objective: str = "") -> Scene:
    """Pool `l4` at a price of 1 and pool `a100` at 3, of one replica each, hold model `m`."""
    made = Scene(replicas=(replica("a", pool="l4"), replica("b", pool="a100")))
    made.group("vision", "l4", "a100")
    made.decided["model", "m"] = {"pool": "l4", "objective": objective}
    made.allowed = {
        "l4": Allowed(l4, cost=1.0, group="vision"),
        "a100": Allowed(a100, cost=3.0, group="vision"),
    }
    made.settle()
    return made


def execute(one: Scene, *, rate: float, slow: float, fast: float, rounds: int = 4) -> None:
    """An execution of one call takes `slow` seconds on `l4` and `fast` ones on `a100`."""
    for _ in range(rounds):
        one.execute("b", b1=(int(rate * TICK / 2), fast))
        one.work(rate=rate, on="a", b1=(int(rate * TICK / 2), slow))


def parts(one: Scene) -> dict[str, float]:
    return {pool: one.model("m", pool).recent for pool in ("l4", "a100")}


WIDE = Bounds(1, 20, to_zero=True)


def test_the_cheapest_pool_bears_all_calls_unless_it_is_too_slow_for_the_objective() -> None:
    one = group(WIDE, WIDE, objective="p99<100ms")
    execute(one, rate=80.0, slow=0.06, fast=0.03)
    assert parts(one) == pytest.approx({"l4": 0.0, "a100": 80.0})
    assert one.hint("l4").hint.desired == 1
    assert one.hint("a100").hint.desired == math.ceil(80 * 0.03 / UP)
    one.decided["model", "m"] = {"pool": "l4", "objective": "p99<200ms"}
    one.look()
    assert parts(one)["a100"] == 0.0


def test_what_the_cheapest_has_no_gpus_for_is_borne_by_the_next() -> None:
    one = group(Bounds(1, 20, budget=2, to_zero=True), WIDE, objective="p99<200ms")
    execute(one, rate=80.0, slow=0.05, fast=0.025)
    room = 2 * UP / 0.05
    assert parts(one) == pytest.approx({"l4": room, "a100": 80.0 - room})
    assert one.hint("l4").hint.desired == 2
    assert one.hint("a100").hint.desired == math.ceil((80 - room) * 0.025 / UP)


def test_the_cheaper_pool_bears_what_comes_even_while_it_sleeps() -> None:
    one = group(WIDE, WIDE)
    one.work(rounds=4, rate=100.0, b1=(250, 0.01))
    assert parts(one) == pytest.approx({"l4": 100.0, "a100": 0.0})
    assert one.hint("a100").signal.idle > 60.0
    one.fleet.remove("a")
    one.call(rate=100.0)
    one.look()
    assert one.model(pool="l4").capacity == pytest.approx(100.0)
    assert one.model(pool="l4").lately > 0
    assert one.model(pool="a100").lately == 0
