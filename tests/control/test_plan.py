"""The plan: every row of the reconciler's table, and the order of the steps."""

import pytest

from serve.control.reconciliation.plan import Load, Step, Unload, held_of, plan
from serve.control.registry import Loadable
from serve.triton import config as triton_config
from serve.triton.control import IndexEntry

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


ONE, BOTH, SECOND = model("m", 1), model("m", 1, 2), model("m", 2)
BROKEN = model("m", config=None, problem="line 2: nonsense")
BARE = model("m", 2, config=None)  # Triton chooses the version


@pytest.mark.parametrize(
    ("wanted", "held", "planned"),
    [
        (BOTH, (1, 2), None),
        (BOTH, None, Load(BOTH, (1, 2), removes=False)),
        (BOTH, (), Load(BOTH, (1, 2), removes=False)),
        (BOTH, (1,), Load(BOTH, (1, 2), removes=False)),
        (SECOND, (1, 2), Load(SECOND, (2,), removes=True, adds=False)),
        (SECOND, (1,), Load(SECOND, (2,), removes=True)),
        (BROKEN, None, None),  # neither loaded nor taken away
        (BROKEN, (1,), None),
        (BARE, None, Load(BARE, (), removes=False)),
        (BARE, (1,), None),
    ],
)
def test_what_is_wanted_and_not_ready_is_loaded_and_what_is_not_wanted_goes_with_the_same_load(
    wanted: Loadable, held: tuple[int, ...] | None, planned: Load | None
) -> None:
    found = steps(wanted, held={} if held is None else {"m": held})
    assert found == ([] if planned is None else [planned])


def test_a_changed_configuration_is_loaded_and_one_that_nobody_knows_is_taken_as_it_is() -> None:
    assert ONE.configuration is not None
    again = Load(ONE, (1,), removes=False)
    for applied, planned in (
        ({"m": "another digest"}, [again]),
        ({"m": ONE.configuration.digest}, []),
        ({}, []),  # it was loaded before this process began
    ):
        assert steps(ONE, held={"m": (1,)}, applied=applied) == planned


def test_a_model_whose_folder_has_gone_is_unloaded_last_where_it_is_held() -> None:
    removed = frozenset({"gone", "never loaded"})
    planned = steps(ONE, held={"gone": (1,), "foreign": (1,)}, removed=removed)
    assert planned == [Load(ONE, (1,), removes=False), Unload("gone")]


def test_an_ensemble_follows_the_models_it_is_made_of() -> None:
    parts = (ensemble("a-all", "b-two", "z-one"), ensemble("b-two", "z-one"), model("z-one", 1))
    names = [step.model.name for step in steps(*parts) if isinstance(step, Load)]
    assert names == ["z-one", "b-two", "a-all"]
    circle = (ensemble("a", "b"), ensemble("b", "a"), ensemble("c", "unknown"))
    assert {step.model.name for step in steps(*circle) if isinstance(step, Load)} == {*"abc"}


def test_only_ready_versions_are_held() -> None:
    states = (("m", 2, "READY"), ("m", 1, "READY"), ("m", 3, "LOADING"), ("x", 1, "UNAVAILABLE"))
    assert held_of([IndexEntry(*one, "") for one in states]) == {"m": (1, 2)}


def test_the_same_failure_would_happen_again_until_something_changes() -> None:
    one = Load(model("m", 1), (1,), removes=False)
    assert one.about == Load(model("m", 1), (1,), removes=True).about
    assert one.about != Load(model("m", 1, 2), (1, 2), removes=False).about
    assert one.about != Load(model("m", 1, config='backend: "y"'), (1,), removes=False).about
