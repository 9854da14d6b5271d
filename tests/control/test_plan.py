"""The plan: every row of the reconciler's table, and the order of the steps."""

from types import MappingProxyType

import pytest

from serve.control.reconciling.planning import Load, Step, Unload, held_of, plan
from serve.control.registry import Loadable
from serve.triton import config as triton_config
from serve.triton.control import Entry

NOTHING: frozenset[str] = frozenset()


def model(
    name: str = "m", *wanted: int, config: str | None = 'backend: "x"', problem: str = ""
) -> Loadable:
    configuration = triton_config.parse(config) if config is not None else None
    return Loadable(name, wanted, wanted, configuration, "fingerprint", problem)


def ensemble(name: str, *parts: str) -> Loadable:
    steps = ", ".join(f'{{ model_name: "{part}" }}' for part in parts)
    return model(name, 1, config=f"ensemble_scheduling {{ step [ {steps} ] }}")


def steps(
    *models: Loadable,
    held: dict[str, tuple[int, ...]] | None = None,
    applied: dict[str, str] | None = None,
    removed: frozenset[str] = NOTHING,
) -> list[Step]:
    return plan({one.name: one for one in models}, held or {}, applied or {}, removed)


def test_a_replica_that_holds_what_is_wanted_is_left_alone() -> None:
    assert steps(model("m", 1, 2), held={"m": (1, 2)}) == []


@pytest.mark.parametrize("held", [{}, {"m": ()}, {"m": (1,)}])
def test_a_wanted_version_that_is_not_ready_is_loaded_with_all_others(
    held: dict[str, tuple[int, ...]],
) -> None:
    wanted = model("m", 1, 2)
    assert steps(wanted, held=held) == [Load(wanted, (1, 2), removes=False)]


def test_a_version_that_is_not_wanted_goes_with_the_same_load() -> None:
    wanted = model("m", 2)
    assert steps(wanted, held={"m": (1, 2)}) == [Load(wanted, (2,), removes=True, adds=False)]


def test_a_version_may_go_while_another_comes() -> None:
    wanted = model("m", 2)
    assert steps(wanted, held={"m": (1,)}) == [Load(wanted, (2,), removes=True)]


def test_a_changed_configuration_is_loaded() -> None:
    wanted = model("m", 1)
    assert steps(wanted, held={"m": (1,)}, applied={"m": "another digest"}) == [
        Load(wanted, (1,), removes=False)
    ]


def test_the_same_configuration_is_not_loaded_again() -> None:
    wanted = model("m", 1)
    assert wanted.configuration is not None
    assert steps(wanted, held={"m": (1,)}, applied={"m": wanted.configuration.digest}) == []


def test_what_was_loaded_before_this_process_began_is_taken_as_it_is() -> None:
    assert steps(model("m", 1), held={"m": (1,)}, applied={}) == []


def test_a_model_with_a_problem_is_neither_loaded_nor_taken_away() -> None:
    broken = model("m", config=None, problem="line 2: nonsense")
    assert steps(broken) == steps(broken, held={"m": (1,)}) == []


def test_without_a_configuration_triton_chooses_the_version() -> None:
    bare = model("m", 2, config=None)
    assert steps(bare) == [Load(bare, (), removes=False)]
    assert steps(bare, held={"m": (1,)}) == []


def test_a_model_whose_folder_has_gone_is_unloaded_where_it_is_held() -> None:
    removed = frozenset({"gone", "never loaded"})
    assert steps(held={"gone": (1,), "foreign": (1,)}, removed=removed) == [Unload("gone")]


def test_an_ensemble_follows_the_models_it_is_made_of() -> None:
    parts = (ensemble("a-all", "b-two", "z-one"), ensemble("b-two", "z-one"), model("z-one", 1))
    names = [step.model.name for step in steps(*parts) if isinstance(step, Load)]
    assert names == ["z-one", "b-two", "a-all"]


def test_ensembles_that_name_each_other_or_nobody_are_planned_all_the_same() -> None:
    circle = (ensemble("a", "b"), ensemble("b", "a"), ensemble("c", "unknown"))
    names = {step.model.name for step in steps(*circle) if isinstance(step, Load)}
    assert names == {"a", "b", "c"}


def test_unloads_come_last() -> None:
    planned = steps(model("m", 1), held={"gone": (1,)}, removed=frozenset({"gone"}))
    assert [type(step) for step in planned] == [Load, Unload]


def test_only_ready_versions_are_held() -> None:
    index = [
        Entry("m", 2, "READY", ""),
        Entry("m", 1, "READY", ""),
        Entry("m", 3, "LOADING", ""),
        Entry("x", 1, "UNAVAILABLE", "unloaded"),
    ]
    assert held_of(index) == MappingProxyType({"m": (1, 2)})


def test_the_same_failure_would_happen_again_until_something_changes() -> None:
    one = Load(model("m", 1), (1,), removes=False)
    assert one.about == Load(model("m", 1), (1,), removes=True).about
    assert one.about != Load(model("m", 1, 2), (1, 2), removes=False).about
    assert one.about != Load(model("m", 1, config='backend: "y"'), (1,), removes=False).about
