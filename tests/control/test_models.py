"""Models, labels and routes: what people may ask, and what they are shown."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from builders import ControlPlane, replica, write_model

from serve.control.inventory import Inventory
from serve.control.models import By, Models
from serve.control.observations import Failure
from serve.control.placement import Placement, Rules
from serve.control.statuses import ModelStatus
from serve.core.errors import (
    Conflict,
    Invalid,
    PreconditionFailed,
    ServegateError,
    UnknownLabel,
    UnknownModel,
    UnknownVersion,
    VersionNotReady,
)
from serve.core.routes import Split

from .versions_scene import decided, version

ADA = By("ada", "because")
HALVES = Split.parse(["1=1", "2=1"])


def plane(folder: Path) -> ControlPlane:
    """Model `m`: versions 1 and 2 are ready on `a`, 3 is loading, 4 is left out by the policy."""
    made = ControlPlane(folder, replicas=[replica("a"), replica("b", pool="a100")])
    policy = "version_policy { specific { versions: [ 1, 2, 3 ] } }"
    write_model(made.repository, "m", 1, 2, 3, 4, config=f'backend: "x" {policy}')
    return asyncio.run(made.begin(a={"m": (1, 2)}))


def do(*steps: Coroutine[Any, Any, int]) -> list[int]:
    async def all_in_turn() -> list[int]:
        return [await step for step in steps]

    return asyncio.run(all_in_turn())


def status(one: ControlPlane) -> ModelStatus:
    return one.models.get("m")


def test_a_route_is_written_and_published(tmp_path: Path) -> None:
    one = plane(tmp_path)
    before = one.publisher.snapshot.generation
    [written] = do(one.models.set_route("m", HALVES, ADA))
    assert written.generation == before + 1
    assert one.publisher.snapshot.models["m"].split == HALVES
    assert (status(one).split, status(one).routed) == (HALVES, True)


def test_who_changed_what_and_why_is_kept(tmp_path: Path) -> None:
    one = plane(tmp_path)
    do(one.models.set_route("m", HALVES, ADA))
    [row] = asyncio.run(one.store.history())
    assert (row["kind"], row["key"], row["author"], row["reason"]) == (
        "route",
        "m",
        "ada",
        "because",
    )


def test_what_was_decided_is_in_force_after_a_restart(tmp_path: Path) -> None:
    one = plane(tmp_path)
    do(one.models.set_route("m", HALVES, ADA), one.models.set_label("m", "stable", 1, ADA))
    again = asyncio.run(ControlPlane(tmp_path).begin(a={"m": (1, 2)}))
    view = again.publisher.snapshot.models["m"]
    assert (view.split, view.labels, view.routed) == (HALVES, {"stable": 1}, True)
    assert again.publisher.snapshot.generation > one.publisher.snapshot.generation


@pytest.mark.parametrize(
    ("split", "error"),
    [
        ("1=1 9=1", UnknownVersion),
        ("1=1 3=1", VersionNotReady),
        ("1=1 4=1", VersionNotReady),
    ],
)
def test_a_route_to_a_version_that_cannot_answer_is_refused_and_changes_nothing(
    tmp_path: Path, split: str, error: type[ServegateError]
) -> None:
    one = plane(tmp_path)
    before = one.publisher.snapshot
    with pytest.raises(error):
        do(one.models.set_route("m", Split.parse(split.split()), ADA))
    assert one.publisher.snapshot is before
    assert asyncio.run(one.store.read()) == {}


def test_a_version_that_gets_no_calls_need_not_be_ready(tmp_path: Path) -> None:
    one = plane(tmp_path)
    do(one.models.set_route("m", Split.parse(["1=1", "3=0"]), ADA))
    assert str(status(one).split) == "1=1 3=0"


def test_a_route_that_someone_else_has_changed_is_not_overwritten(tmp_path: Path) -> None:
    one = plane(tmp_path)
    do(one.models.set_route("m", HALVES, By("ada", if_match='"0"')))
    with pytest.raises(PreconditionFailed):
        do(one.models.set_route("m", Split.of({1: 1}), By("bob", if_match='"0"')))
    assert status(one).split == HALVES


@pytest.mark.parametrize(
    "command",
    [
        lambda models: models.set_route("nope", HALVES, ADA),
        lambda models: models.set_label("nope", "stable", 1, ADA),
        lambda models: models.remove_label("nope", "stable", ADA),
        lambda models: models.configure("nope", objective="p99<5ms", pool=None, by=ADA),
    ],
)
def test_nothing_can_be_set_for_a_model_that_does_not_exist(tmp_path: Path, command: Any) -> None:
    one = plane(tmp_path)
    with pytest.raises(UnknownModel):
        do(command(one.models))


def test_a_label_is_moved_and_removed(tmp_path: Path) -> None:
    one = plane(tmp_path)
    seen = []
    for step in (
        one.models.set_label("m", "stable", 1, ADA),
        one.models.set_label("m", "stable", 2, ADA),
        one.models.remove_label("m", "stable", ADA),
    ):
        do(step)
        seen.append(dict(one.publisher.snapshot.models["m"].labels))
    assert seen == [{"stable": 1}, {"stable": 2}, {}]


@pytest.mark.parametrize(
    ("label", "version", "error"),
    [
        ("stable", 9, UnknownVersion),
        ("stable", 3, VersionNotReady),
        ("stable", 4, VersionNotReady),
        ("7", 1, Invalid),
        ("latest", 1, Invalid),
        ("a b", 1, Invalid),
    ],
)
def test_a_label_that_cannot_be_is_refused(
    tmp_path: Path, label: str, version: int, error: type[ServegateError]
) -> None:
    one = plane(tmp_path)
    with pytest.raises(error):
        do(one.models.set_label("m", label, version, ADA))
    assert asyncio.run(one.store.read()) == {}


def test_a_label_that_does_not_exist_cannot_be_removed(tmp_path: Path) -> None:
    one = plane(tmp_path)
    with pytest.raises(UnknownLabel):
        do(one.models.remove_label("m", "stable", ADA))


def test_objective_and_pool_are_set_apart_and_an_empty_text_removes(tmp_path: Path) -> None:
    one = plane(tmp_path)
    seen = []
    for objective, pool in ((" p99 < 0.05s ", None), (None, "a100"), ("", None), (None, "")):
        do(one.models.configure("m", objective=objective, pool=pool, by=ADA))
        seen.append((status(one).objective, status(one).pool))
    assert seen == [
        ("p99<50ms", "default"),
        ("p99<50ms", "a100"),
        ("", "a100"),
        ("", "default"),
    ]


@pytest.mark.parametrize("change", [{"objective": "fast", "pool": None}])
def test_an_objective_that_says_nothing_is_refused(tmp_path: Path, change: Any) -> None:
    with pytest.raises(Invalid):
        do(plane(tmp_path).models.configure("m", by=ADA, **change))


def test_a_pool_that_has_no_replica_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="there is no pool 'h100'"):
        do(plane(tmp_path).models.configure("m", objective=None, pool="h100", by=ADA))


def grouped(folder: Path) -> ControlPlane:
    """The pools of `a` and `b` are one group, and only `a` holds versions 1 and 2."""
    one = plane(folder)
    do(*(one.pools.set(pool, {"group": "g"}, ADA) for pool in ("default", "a100")))
    return one


def test_a_model_is_told_with_all_pools_of_its_group(tmp_path: Path) -> None:
    one = plane(tmp_path)
    assert status(one).pools == ("default",)
    do(*(one.pools.set(pool, {"group": "g"}, ADA) for pool in ("default", "a100")))
    assert status(one).pools == ("a100", "default")


def test_a_version_is_loading_while_another_pool_of_the_group_may_still_load_it(
    tmp_path: Path,
) -> None:
    one = grouped(tmp_path)
    one.fleet.waiting["b"] = "b waits for its turn"
    assert one.models.version("m", 3).reason == "b waits for its turn"


def test_a_model_of_a_pool_without_replicas_is_served_by_the_others_of_its_group(
    tmp_path: Path,
) -> None:
    one = plane(tmp_path)
    do(*(one.pools.set(pool, {"group": "g"}, ADA) for pool in ("default", "l4")))
    do(one.models.configure("m", objective=None, pool="l4", by=ADA))
    assert one.models.version("m", 1).replicas == ("a",)
    assert one.models.version("m", 3).state == "loading"


def test_a_label_moves_when_enough_replicas_of_the_whole_group_hold_its_version(
    tmp_path: Path,
) -> None:
    one = grouped(tmp_path)
    one.fleet.saw("b", {})
    assert not one.models.ready_enough("m", 1)
    one.fleet.saw("b", {"m": (1,)})
    do(one.publisher.refresh())
    assert one.models.ready_enough("m", 1)


def test_two_people_who_set_different_things_at_once_both_get_them(tmp_path: Path) -> None:
    one = plane(tmp_path)

    async def both() -> None:
        await asyncio.gather(
            one.models.configure("m", objective="p99<50ms", pool=None, by=ADA),
            one.models.configure("m", objective=None, pool="a100", by=By("bob")),
        )

    asyncio.run(both())
    assert (status(one).objective, status(one).pool) == ("p99<50ms", "a100")


def test_each_version_is_shown_with_its_state_and_the_reason(tmp_path: Path) -> None:
    one = plane(tmp_path)
    do(one.models.set_label("m", "stable", 1, ADA), one.models.set_label("m", "best", 1, ADA))
    shown = [(v.number, v.state, v.replicas, v.labels, v.reason) for v in status(one).versions]
    assert shown == [
        (1, "ready", ("a",), ("best", "stable"), ""),
        (2, "ready", ("a",), (), ""),
        (3, "loading", (), (), "no replica has loaded it yet"),
        (4, "not wanted", (), (), "config.pbtxt's version_policy leaves it out"),
    ]


@pytest.mark.parametrize(
    ("held", "failure", "state"),
    [
        ((1, 2, 3), "", "ready"),
        ((1,), "", "partial"),
        ((), "", "loading"),
        ((1,), "bad file", "partial"),
        ((), "bad file", "failed"),
    ],
)
def test_the_state_of_a_model_sums_up_its_versions(
    tmp_path: Path, held: tuple[int, ...], failure: str, state: str
) -> None:
    one = plane(tmp_path)
    one.fleet.saw("a", {"m": held})
    if failure:
        one.fleet.failures["a", "m"] = Failure(failure, (), 1, 0.0)
    do(one.publisher.refresh())
    assert status(one).state == state
    assert list(status(one).problems) == ([failure] if failure else [])


def test_a_model_that_cannot_be_read_is_shown_with_its_problem(tmp_path: Path) -> None:
    one = ControlPlane(tmp_path)
    write_model(one.repository, "m", 1, config="nonsense: 1")
    asyncio.run(one.begin())
    assert (status(one).state, [v.state for v in status(one).versions]) == ("failed", ["failed"])
    assert "line 1" in status(one).problems[0]


def test_a_route_or_label_whose_version_was_lost_is_a_problem(tmp_path: Path) -> None:
    one = plane(tmp_path)
    do(one.models.set_route("m", HALVES, ADA), one.models.set_label("m", "new", 2, ADA))
    one.fleet.saw("a", {"m": (1,)})
    do(one.publisher.refresh())
    assert status(one).problems == (
        "the route sends calls to version 2, which is not ready",
        "label 'new' names version 2, which is not ready",
    )


def test_all_models_are_listed_by_name(tmp_path: Path) -> None:
    one = plane(tmp_path)
    write_model(one.repository, "a-first")
    asyncio.run(one.inventory.scan())
    assert [each.model.name for each in one.models.all()] == ["a-first", "m"]


def test_a_model_moves_to_no_pool_where_it_or_another_would_have_no_room(tmp_path: Path) -> None:
    one = plane(tmp_path)
    rules = Rules(budgets={"a100": 150})
    one.inventory = Inventory(
        None,
        one.fleet,
        decisions=lambda: one.decisions,
        placement=Placement(rules, clock=one.clock),
        publishes=True,
    )
    other = {"published": 2.0}
    one.decisions = decided(
        version("m", 1), version("n", 1, times=other), model__n={"pool": "a100"}
    )
    models = Models(
        one.store,
        one.inventory,
        one.fleet,
        one.publisher,
        one.steering,
        decisions=lambda: one.decisions,
        reload=one.reload,
    )
    with pytest.raises(Conflict, match="cannot move to pool 'a100'") as caught:
        do(models.configure("m", objective=None, pool="a100", by=ADA))
    assert "n@1 would not be served" in caught.value.why


# --- pools without replicas -----------------------------------------------------------------------


def emptied(folder: Path, *, to_zero: bool) -> ControlPlane:
    """No replica is left, in a pool that may have none, or not."""
    one = plane(folder)
    do(one.pools.set("default", {"to_zero": to_zero}, ADA))
    for name in ("a", "b"):
        one.fleet.remove(name)
    do(one.publisher.refresh())
    return one


def test_a_model_whose_pool_was_scaled_to_zero_is_asleep_and_has_no_problem(
    tmp_path: Path,
) -> None:
    one = emptied(tmp_path, to_zero=True)
    told = status(one)
    assert (told.state, told.problems) == ("asleep", ())
    assert {one.number: one.state for one in told.versions} == {
        1: "asleep",
        2: "asleep",
        3: "asleep",
        4: "not wanted",
    }
    assert "the first call wakes it" in told.versions[0].reason


def test_labels_and_routes_of_a_model_that_is_asleep_are_no_problem(tmp_path: Path) -> None:
    one = plane(tmp_path)
    do(one.models.set_label("m", "stable", 1, ADA), one.models.set_route("m", HALVES, ADA))
    do(one.pools.set("default", {"to_zero": True}, ADA))
    one.fleet.remove("a")
    do(one.publisher.refresh())
    assert status(one).problems == ()


def test_a_model_whose_pool_has_no_replica_and_should_have_one_has_failed(tmp_path: Path) -> None:
    told = status(emptied(tmp_path, to_zero=False))
    assert told.state == "failed"
    assert "has no replica" in told.versions[0].reason
