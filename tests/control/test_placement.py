"""Placement: which published versions are held, and which give way."""

from collections.abc import Mapping
from typing import Any

import pytest
from builders import Clock

from serve.control.decisions import Decisions
from serve.control.placement import Placed, Placement, Rules
from serve.core.versions import VersionState

from .versions_scene import decided, split, version

ROUTE = {"route__m": split(v1=100)}
ENSEMBLE = """
ensemble_scheduling { step [
  { model_name: "part" model_version: 1 },
  { model_name: "part--0badcafe" model_version: 2 }
] }
"""


def placed(
    decisions: Decisions, *, plain: Mapping[str, tuple[int, ...]] | None = None, **rules: Any
) -> Placed:
    return Placement(Rules(**({"keep_loaded": 0} | rules)), clock=Clock()).place(
        decisions, plain or {}
    )


def numbers(result: Placed, model: str = "m") -> list[int]:
    return sorted(number for name, number in result.wanted if name == model)


def versions(*given: int, **more: Any) -> list[Any]:
    return [version("m", number, **more) for number in given]


@pytest.mark.parametrize(
    ("decisions", "options", "needed"),
    [
        (decided(*versions(1, 2, 3)), {}, [3]),  # without a route only the newest
        (decided(*versions(1, 2)), {"plain": {"m": (7,)}}, []),  # below one in the plain folder
        (
            decided(
                *versions(1, 2, 3, 4), route__m=split(v1=90, v2=10), label__m__old={"version": 3}
            ),
            {},
            [1, 2, 3],
        ),
        (decided(*versions(1), version("m", 2, labels=("new",)), **ROUTE), {}, [1, 2]),
        (decided(*versions(1), version("m", 2, live=True), **ROUTE), {}, [1, 2]),
        (decided(*versions(1, 2, 3, 4), **ROUTE), {"keep_loaded": 2}, [1, 3, 4]),
        (
            decided(
                *versions(1, state=VersionState.RETIRED), *versions(2, state=VersionState.FAILED)
            ),
            {},
            [],
        ),
        (decided(*versions(1), serving__m={"unloaded": True}), {}, []),
    ],
)
def test_what_a_route_a_label_or_nobody_names_is_needed_and_the_newest_stay(
    decisions: Decisions, options: dict[str, Any], needed: list[int]
) -> None:
    assert numbers(placed(decisions, **options)) == needed


def test_the_parts_of_a_needed_ensemble_are_needed_whatever_their_own_routes_say() -> None:
    parts = [version("part", 1), version("part", 2, physical="part--0badcafe"), version("part", 3)]
    whole = version("whole", 1, config=ENSEMBLE)
    result = placed(decided(*parts, whole, route__part=split(v3=100)))
    assert numbers(result, "part") == [1, 2, 3]


def test_what_was_needed_or_kept_stays_for_a_while() -> None:
    clock = Clock()
    placement = Placement(Rules(keep_loaded=0, unload_after=300.0), clock=clock)
    needed = decided(*versions(1, 2), **ROUTE)
    kept = decided(version("m", 1, keep=True), version("m", 2))
    free = decided(*versions(1, 2), route__m=split(v2=100))
    for before in (needed, kept):
        clock.now += 1000
        assert 1 in numbers(placement.place(before, {}))
        clock.now += 299
        assert numbers(placement.place(free, {})) == [1, 2]
        clock.now += 300
        assert numbers(placement.place(free, {})) == [2]


def test_what_is_not_needed_gives_way_when_memory_is_short_the_oldest_first() -> None:
    decisions = decided(*versions(1, 2, 3, 4, memory=100), **ROUTE)
    kept = placed(decisions, keep_loaded=3, budgets={"default": 200})
    assert numbers(kept) == [1, 4]
    assert kept.problems == {}


def test_what_is_needed_and_finds_no_room_is_told_and_displaces_nobody() -> None:
    old = version("m", 1, memory=150, times={"published": 1.0})
    new = version("m", 2, memory=100, times={"published": 2.0})
    result = placed(decided(old, new, route__m=split(v1=50, v2=50)), budgets={"default": 200})
    assert numbers(result) == [1]
    why = "pool 'default' has too little memory for it: it needs 100 bytes, and 50 of 200 are free"
    assert result.problems == {("m", 2): why}


def old_and_serving(**waiting: Any) -> Decisions:
    """The second version is called, the first was published before it and `waiting` says more."""
    old = version("m", 1, memory=150, times={"published": 1.0}, **waiting)
    new = version("m", 2, memory=100, times={"published": 2.0})
    return decided(old, new, route__m=split(v2=100))


@pytest.mark.parametrize("waiting", [{"labels": ("old",)}, {"live": True}, {"keep": True}])
def test_what_is_asked_for_displaces_nothing_that_is_called(waiting: dict[str, Any]) -> None:
    result = placed(old_and_serving(**waiting), budgets={"default": 200})
    assert (numbers(result), set(result.problems)) == ([2], {("m", 1)})
    assert numbers(placed(old_and_serving(**waiting), budgets={"default": 250})) == [1, 2]


def test_an_old_part_of_a_new_ensemble_displaces_nothing_that_is_called() -> None:
    parts = [
        version("part", 1, memory=150, times={"published": 1.0}),
        version("part", 3, memory=100, times={"published": 2.0}),
    ]
    whole = version("whole", 1, config=ENSEMBLE, times={"published": 3.0}, memory=0)
    result = placed(decided(*parts, whole), budgets={"default": 200})
    assert numbers(result, "part") == [3]
    assert set(result.problems) == {("part", 1)}


def test_each_pool_has_its_own_budget_and_a_version_takes_what_was_measured_or_its_files() -> None:
    big = version("big", 1, memory=500)
    decisions = decided(big, version("m", 1, size=100), model__big={"pool": "a100"})
    for budget, wanted in ((100, {("big", 1), ("m", 1)}), (99, {("big", 1)})):
        result = placed(decisions, budgets={"default": budget, "a100": 500})
        assert result.wanted == wanted


def test_pools_of_one_group_each_need_room_for_what_the_group_holds() -> None:
    both = versions(1, 2, memory=100), {"pool__default": {"group": "g"}, "pool__l4": {"group": "g"}}
    decisions = decided(*both[0], route__m=split(v1=50, v2=50), **both[1])
    assert numbers(placed(decisions, budgets={"default": 200, "l4": 200})) == [1, 2]
    result = placed(decisions, budgets={"default": 200, "l4": 150})
    assert numbers(result) == [1]
    assert list(result.problems) == [("m", 2)]
    assert "pool 'l4' has too little memory" in result.problems["m", 2]
