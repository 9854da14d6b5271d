"""Snapshots: what is compiled from models, decisions and what the replicas hold."""

from types import MappingProxyType
from typing import Any

from builders import Clock, replica, target

from serve.control.decisions import Decisions
from serve.control.fleet import Fleet
from serve.control.observations import LoadFailure
from serve.control.registry import Loadable, Model
from serve.control.snapshots import compile_models
from serve.control.storage.store import StoredEntry
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
    entries = {tuple(key.split("__")): StoredEntry(body, 1) for key, body in decided.items()}
    decisions = Decisions(MappingProxyType(entries))  # type: ignore[arg-type]
    return compile_models({one.name: one}, decisions, held, may_sleep.__contains__)[one.name]


def split_of(view: ModelView) -> str:
    return str(view.route and view.route.split)


def test_a_target_is_a_wanted_version_with_the_replicas_that_hold_it() -> None:
    made = compiled(model(1, 2, 3), fleet(a=(1, 2), b=(2, 4)))
    assert made.targets == {1: target(1, "a"), 2: target(2, "a", "b")}
    assert (split_of(made), made.routed) == ("2=100", False)  # the highest that is held
    bare = compiled(model(1, 2, config=None), fleet(a=(7,)))  # whatever Triton holds counts
    assert (set(bare.targets), bare.targets[7].flavour) == ({7}, "auto")


def test_a_route_and_labels_are_taken_as_they_were_set_even_where_a_version_is_lacking() -> None:
    labels = {"label__m:stable": {"version": 1}, "label__x:stable": {"version": 2}}
    route = {"split": {"1": 90, "2": 10}}
    made = compiled(model(1, 2), fleet(a=(1,)), route__m=route, **labels)
    assert (split_of(made), made.routed, made.labels) == ("1=90 2=10", True, {"stable": 1})


def test_a_model_that_nobody_holds_has_no_targets_and_one_that_cannot_be_read_is_left_out() -> None:
    held = fleet(a=())
    made = compiled(model(1), held)
    assert (made.targets, made.route, made.failed) == ({}, None, False)
    held.failures["a", "m"] = LoadFailure("bad file", (), 1, 0.0)
    assert compiled(model(1), held).failed
    assert compile_models({"m": model(problem="line 2")}, Decisions(), fleet(a=(1,))) == {}


def grouped(*pools: str) -> dict[str, Any]:
    return {f"pool__{name}": {"group": "g"} for name in pools}


def test_the_replicas_of_the_models_pool_and_of_its_group_serve_it() -> None:
    three = fleet(*(replica(name, pool=name) for name in ("a", "b", "c")), a=(1,), b=(1,), c=(1,))
    in_a = {"model__m": {"pool": "a"}}
    assert compiled(model(1), three, **in_a).targets == {1: target(1, "a")}
    made = compiled(model(1), three, **in_a, **grouped("a", "b"))
    assert made.targets == {1: target(1, "a", "b")}
    two = fleet(*(replica(name, pool=name) for name in ("a", "b")), a=(), b=(1,))
    made = compiled(model(1), two, **in_a, **grouped("a", "b"))
    assert made.targets == {1: target(1, "b")}  # a pool that joins a group is not waited for


def test_sequences_ensembles_and_what_may_be_code_are_marked() -> None:
    for batching in ("sequence_batching", "dynamic_batching"):
        made = compiled(model(1, config=f"{batching} {{ }}"), fleet(a=(1,)))
        assert made.sequences is (batching == "sequence_batching")
    for config, calls_others in (
        ('backend: "onnxruntime"', False),
        ('platform: "tensorrt_plan"', False),
        ('platform: "ensemble" ensemble_scheduling { step { model_name: "n" } }', True),
        ('backend: "python"', True),
        ('platform: "onnxruntime_onnx" backend: "vendors_own"', True),
        ("max_batch_size: 8", True),  # Triton looks at the files, which may be model.py
        (None, True),
    ):
        made = compiled(model(1, config=config), fleet(a=(1,)))
        assert made.targets[1].calls_others is calls_others, config


# --- pools that may have no replica ---------------------------------------------------------------


def test_a_model_is_asleep_where_its_pool_has_no_replica_and_may_have_none() -> None:
    route = {"route__m": {"split": {"1": 100}}}
    rows: list[tuple[Model, tuple[str, ...], dict[str, Any], bool, str]] = [
        (model(1, 2), ("default",), {}, True, "2=100"),
        (model(1, 2), ("default",), route, True, "1=100"),
        (model(1), (), {}, False, "None"),  # its pool should have a replica
        (model(1), ("a100",), {}, False, "None"),
        (model(), ("default",), {}, False, "None"),  # it waits for nothing
    ]
    for one, may_sleep, decided, asleep, split in rows:
        made = compiled(one, Fleet((), clock=Clock()), *may_sleep, **decided)
        assert (made.asleep, made.targets, split_of(made)) == (asleep, {}, split)
        assert made.routed is bool(decided)


def test_a_model_is_asleep_until_its_first_replica_has_all_that_it_can_have() -> None:
    """The newest version is waited for although another can be called already."""
    one, waking = model(1, 2), Fleet((), clock=Clock())
    waking.join(replica("a"))
    assert compiled(one, waking, "default").asleep
    waking.saw("a", {})
    waking.joining.add("a")
    assert compiled(one, waking, "default").asleep
    waking.saw("a", {"m": (1,)})
    half = compiled(one, waking, "default")
    assert (half.asleep, half.targets, split_of(half)) == (True, {1: target(1, "a")}, "2=100")
    waking.failures["a", "m"] = LoadFailure("bad file", (), 1, 0.0)
    made = compiled(one, waking, "default")
    assert (made.asleep, made.failed) == (False, True)
    waking.failures.clear()
    waking.saw("a", {"m": (1, 2)})
    whole = compiled(one, waking, "default")
    assert (whole.asleep, set(whole.targets)) == (False, {1, 2})


def test_a_model_is_awake_while_a_replica_is_there_that_stays() -> None:
    held = fleet(a=(1,))
    made = compiled(model(1, 2), held, "default")  # which will load the other later
    assert (made.asleep, split_of(made)) == (False, "1=100")
    held.lost("a", "refused")  # what only a lost replica holds goes on to be called there
    assert held.staying == {"a": replica("a")}
    made = compiled(model(1), held, "default")
    assert (made.asleep, made.targets) == (False, {1: target(1, "a")})
    held.retire("a")
    assert compiled(model(1), held, "default").asleep
    other = fleet(replica("a", pool="l4"), a=(1,))  # of a pool of the same group
    assert not compiled(model(1), other, "default", **grouped("default", "l4")).asleep
    other.remove("a")
    assert compiled(model(1), other, "default", **grouped("default", "l4")).asleep
