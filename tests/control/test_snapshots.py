"""Snapshots: what is compiled from models, decisions and what the replicas hold."""

from types import MappingProxyType
from typing import Any

import pytest
from builders import Clock, replica, target

from serve.control.decisions import Decisions
from serve.control.fleet import Fleet
from serve.control.observations import Failure
from serve.control.registry import Loadable, Model
from serve.control.snapshots import compile_models
from serve.control.storing.store import Entry
from serve.core.replicas import Replica
from serve.core.snapshot import ModelView
from serve.triton import config as triton_config


def model(
    *wanted: int, name: str = "m", config: str | None = 'backend: "onnxruntime"', problem: str = ""
) -> Model:
    configuration = triton_config.parse(config) if config is not None else None
    return Model(name, (Loadable(name, wanted, wanted, configuration, "", problem),))


def fleet(*replicas: Replica, **held: tuple[int, ...]) -> Fleet:
    """A fleet whose replicas hold these versions of the model `m`."""
    made = Fleet(replicas or tuple(replica(name) for name in held), clock=Clock())
    for name, versions in held.items():
        made.saw(name, {"m": versions})
    return made


def compiled(one: Model, held: Fleet, *may_sleep: str, **decided: Any) -> ModelView:
    """The view of one model, where the pools that are named may have no replica."""
    entries = {tuple(key.split("__")): Entry(body, 1) for key, body in decided.items()}
    decisions = Decisions(MappingProxyType(entries))  # type: ignore[arg-type]
    return compile_models({one.name: one}, decisions, held, may_sleep.__contains__)[one.name]


def test_a_target_is_a_wanted_version_with_the_replicas_that_hold_it() -> None:
    made = compiled(model(1, 2, 3), fleet(a=(1, 2), b=(2, 4)))
    assert made.targets == {1: target(1, "a"), 2: target(2, "a", "b")}


def test_without_a_route_the_highest_version_that_is_held_serves() -> None:
    made = compiled(model(1, 2, 3), fleet(a=(1, 2)))
    assert (str(made.split), made.routed) == ("2=100", False)


def test_a_route_is_taken_as_it_was_set_even_where_a_version_is_lacking() -> None:
    made = compiled(model(1, 2), fleet(a=(1,)), route__m={"split": {"1": 90, "2": 10}})
    assert (str(made.split), made.routed) == ("1=90 2=10", True)


def test_a_model_that_nobody_holds_is_in_the_snapshot_without_targets() -> None:
    made = compiled(model(1), fleet(a=()))
    assert (made.targets, made.split, made.failed) == ({}, None, False)


def test_a_model_that_could_not_be_loaded_has_failed() -> None:
    held = fleet(a=())
    held.failures["a", "m"] = Failure("bad file", (), 1, 0.0)
    assert compiled(model(1), held).failed


def test_a_model_with_a_problem_is_not_in_the_snapshot() -> None:
    broken = model(problem="line 2")
    assert compile_models({"m": broken}, Decisions(), fleet(a=(1,))) == {}


def test_labels_come_along() -> None:
    decided = {"label__m:stable": {"version": 1}, "label__x:stable": {"version": 2}}
    assert compiled(model(1), fleet(a=(1,)), **decided).labels == {"stable": 1}


def test_only_the_replicas_of_the_models_pool_serve_it() -> None:
    two = fleet(replica("a"), replica("b", pool="a100"), a=(1,), b=(1,))
    assert compiled(model(1), two).targets == {1: target(1, "a")}
    assert compiled(model(1), two, model__m={"pool": "a100"}).targets == {1: target(1, "b")}


def test_the_replicas_of_all_pools_of_a_group_serve_its_models() -> None:
    three = fleet(*(replica(name, pool=name) for name in ("a", "b", "c")), a=(1,), b=(1,), c=(1,))
    grouped = {f"pool__{name}": {"group": "g"} for name in ("a", "b")}
    made = compiled(model(1), three, model__m={"pool": "a"}, **grouped)
    assert made.targets == {1: target(1, "a", "b")}


def test_a_pool_that_joins_a_group_is_not_waited_for() -> None:
    two = fleet(*(replica(name, pool=name) for name in ("a", "b")), a=(1,), b=())
    grouped = {f"pool__{name}": {"group": "g"} for name in ("a", "b")}
    made = compiled(model(1), two, model__m={"pool": "b"}, **grouped)
    assert made.targets == {1: target(1, "a")}


def test_without_a_configuration_whatever_triton_holds_counts() -> None:
    made = compiled(model(1, 2, config=None), fleet(a=(7,)))
    assert (set(made.targets), made.targets[7].flavour) == ({7}, "auto")


@pytest.mark.parametrize(
    ("config", "sequences"), [("sequence_batching { }", True), ("dynamic_batching { }", False)]
)
def test_a_model_with_sequences_is_marked(config: str, sequences: bool) -> None:
    assert compiled(model(1, config=config), fleet(a=(1,))).sequences is sequences


@pytest.mark.parametrize(
    ("config", "calls_others"),
    [
        ('backend: "onnxruntime"', False),
        ('platform: "tensorrt_plan"', False),
        ('platform: "ensemble" ensemble_scheduling { step { model_name: "n" } }', True),
        ('backend: "python"', True),
        ('platform: "onnxruntime_onnx" backend: "vendors_own"', True),
        ("max_batch_size: 8", True),  # Triton looks at the files, which may be model.py
        (None, True),
    ],
)
def test_ensembles_and_what_may_be_code_are_marked(config: str | None, calls_others: bool) -> None:
    made = compiled(model(1, config=config), fleet(a=(1,)))
    assert made.targets[1].calls_others is calls_others


def test_every_replica_is_in_the_snapshot_lost_ones_included() -> None:
    two = fleet(a=(1,), b=(1,))
    two.lost("b", "refused")
    assert two.staying == {"a": replica("a"), "b": replica("b")}


# --- pools that may have no replica ---------------------------------------------------------------


def empty() -> Fleet:
    return Fleet((), clock=Clock())


def test_a_model_is_asleep_where_its_pool_has_no_replica_and_may_have_none() -> None:
    made = compiled(model(1, 2), empty(), "default")
    assert (made.asleep, made.targets, str(made.split)) == (True, {}, "2=100")


@pytest.mark.parametrize("may_sleep", [(), ("a100",)])
def test_a_model_whose_pool_may_not_be_empty_is_not_asleep(may_sleep: tuple[str, ...]) -> None:
    made = compiled(model(1), empty(), *may_sleep)
    assert (made.asleep, made.split) == (False, None)


def test_a_model_that_waits_for_nothing_is_not_asleep() -> None:
    assert not compiled(model(), empty(), "default").asleep


def test_a_route_holds_while_a_model_is_asleep() -> None:
    made = compiled(model(1, 2), empty(), "default", route__m={"split": {"1": 100}})
    assert (made.asleep, str(made.split), made.routed) == (True, "1=100", True)


def test_a_model_is_asleep_until_its_first_replica_has_all_that_it_can_have() -> None:
    """The newest version is waited for although another can be called already."""
    one, waking = model(1, 2), empty()
    waking.join(replica("a"))
    assert compiled(one, waking, "default").asleep
    waking.saw("a", {})
    waking.joining.add("a")
    assert compiled(one, waking, "default").asleep
    waking.saw("a", {"m": (1,)})
    half = compiled(one, waking, "default")
    assert (half.asleep, half.targets, str(half.split)) == (True, {1: target(1, "a")}, "2=100")
    waking.saw("a", {"m": (1, 2)})
    whole = compiled(one, waking, "default")
    assert (whole.asleep, set(whole.targets)) == (False, {1, 2})


def test_a_model_that_is_loaded_later_by_a_replica_that_is_there_is_not_asleep() -> None:
    made = compiled(model(1, 2), fleet(a=(1,)), "default")
    assert (made.asleep, str(made.split)) == (False, "1=100")


def test_a_model_that_the_first_replica_cannot_load_has_failed_and_is_not_asleep() -> None:
    waking = fleet(a=())
    waking.joining.add("a")
    waking.failures["a", "m"] = Failure("bad file", (), 1, 0.0)
    made = compiled(model(1), waking, "default")
    assert (made.asleep, made.failed) == (False, True)


def test_a_replica_that_is_about_to_leave_does_not_keep_a_model_awake() -> None:
    leaving = fleet(a=(1,))
    leaving.retire("a")
    assert compiled(model(1), leaving, "default").asleep


def test_a_model_is_awake_while_any_pool_of_its_group_has_a_replica() -> None:
    grouped = {f"pool__{name}": {"group": "g"} for name in ("default", "l4")}
    held = fleet(replica("a", pool="l4"), a=(1,))
    assert not compiled(model(1), held, "default", **grouped).asleep
    held.remove("a")
    assert compiled(model(1), held, "default", **grouped).asleep


def test_what_only_a_lost_replica_holds_goes_on_to_be_called_there() -> None:
    held = fleet(a=(1,))
    held.lost("a", "refused")
    made = compiled(model(1), held, "default")
    assert (made.asleep, made.targets) == (False, {1: target(1, "a")})
