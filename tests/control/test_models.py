"""Models, labels and routes: what people may ask, and what they are shown."""

import asyncio
from pathlib import Path

import pytest
from builders import ControlPlane, replica, write_model

from serve.control.inventory import Inventory
from serve.control.models import By, Models
from serve.control.observations import LoadFailure
from serve.control.placement import Placement, Rules
from serve.control.statuses import ModelStatus
from serve.core.errors import (
    Conflict,
    Invalid,
    PreconditionFailed,
    UnknownLabel,
    UnknownModel,
    UnknownVersion,
    VersionNotReady,
)
from serve.core.routes import Mirror, Route, RouteMatch, Split

from .versions_scene import decided, version

ADA = By("ada", "because")
HALVES = Split.parse(["1=1", "2=1"])
ALL = "version_policy { all {} }"


@pytest.fixture
async def one(tmp_path: Path) -> ControlPlane:
    """Model `m`: versions 1 and 2 are ready on `a`, 3 is loading, 4 is left out by the policy."""
    made = ControlPlane(tmp_path, replicas=[replica("a"), replica("b", pool="a100")])
    policy = "version_policy { specific { versions: [ 1, 2, 3 ] } }"
    write_model(made.repository, "m", 1, 2, 3, 4, config=f'backend: "x" {policy}')
    return await made.begin(a={"m": (1, 2)})


def status(one: ControlPlane) -> ModelStatus:
    return one.models.get("m")


async def test_a_route_is_written_with_who_and_why_published_and_kept_over_a_restart(
    one: ControlPlane, tmp_path: Path
) -> None:
    before = one.publisher.snapshot.generation
    written = await one.models.set_route("m", HALVES, ADA)
    assert written.generation == before + 1
    assert one.publisher.snapshot.models["m"].route == Route(HALVES)
    assert (status(one).split, status(one).route) == (HALVES, Route(HALVES))
    [row] = await one.store.history()
    change = (row["kind"], row["key"], row["author"], row["reason"])
    assert change == ("route", "m", "ada", "because")
    await one.models.set_label("m", "stable", 1, ADA)
    again = await ControlPlane(tmp_path).begin(a={"m": (1, 2)})
    view = again.publisher.snapshot.models["m"]
    assert (view.route, view.labels, view.routed) == (Route(HALVES), {"stable": 1}, True)
    assert again.publisher.snapshot.generation > one.publisher.snapshot.generation


async def test_new_weights_leave_the_other_rules_of_a_route(one: ControlPlane) -> None:
    blue = RouteMatch.parse("header:x-team=blue 2=1")
    await one.models.set_route("m", HALVES, ADA, sticky="key", matches=(blue,))
    await one.models.set_route("m", Split.of({1: 1}), ADA)
    changed = Route(Split.of({1: 1}), "key", (blue,))
    assert one.publisher.snapshot.models["m"].route == status(one).route == changed
    assert changed.called == {1, 2}
    await one.models.set_route("m", HALVES, ADA, sticky="", matches=())
    assert status(one).route == Route(HALVES)


UNREADY = {9: UnknownVersion, 3: VersionNotReady, 4: VersionNotReady}


async def test_what_cannot_answer_gets_neither_route_nor_label(one: ControlPlane) -> None:
    before = one.publisher.snapshot
    for number, error in UNREADY.items():
        with pytest.raises(error):
            await one.models.set_route("m", Split.of({1: 1, number: 1}), ADA)
        with pytest.raises(error):
            await one.models.set_label("m", "stable", number, ADA)
    for label in ("7", "latest", "a b"):
        with pytest.raises(Invalid):
            await one.models.set_label("m", label, 1, ADA)
    with pytest.raises(UnknownLabel):
        await one.models.remove_label("m", "stable", ADA)
    assert one.publisher.snapshot is before
    assert await one.store.read() == {}
    await one.models.set_route("m", Split.parse(["1=1", "3=0"]), ADA)  # which gets no calls
    assert str(status(one).split) == "1=1 3=0"


async def test_calls_are_not_mirrored_to_code_or_sequences_unless_it_is_allowed(
    tmp_path: Path,
) -> None:
    plane = ControlPlane(tmp_path)
    write_model(plane.repository, "code", config=f'backend: "python" {ALL}')
    write_model(
        plane.repository, "states", config=f'backend: "onnxruntime" {ALL} sequence_batching {{}}'
    )
    await plane.begin(a={"code": (1, 2), "states": (1, 2)})
    for model in ("code", "states"):
        with pytest.raises(Invalid):
            await plane.models.set_route(model, Split.of({1: 1}), ADA, mirror=Mirror(2, 10))
    mirror = Mirror(2, 10, code=True)
    await plane.models.set_route("code", Split.of({1: 1}), ADA, mirror=mirror)
    assert plane.publisher.snapshot.models["code"].route == Route(Split.of({1: 1}), mirror=mirror)
    with pytest.raises(UnknownVersion):
        await plane.models.set_route("code", Split.of({1: 1}), ADA, mirror=Mirror(9, 10, code=True))


async def test_nothing_can_be_set_for_a_model_that_does_not_exist(one: ControlPlane) -> None:
    for command in (
        one.models.set_route("nope", HALVES, ADA),
        one.models.set_label("nope", "stable", 1, ADA),
        one.models.remove_label("nope", "stable", ADA),
        one.models.configure("nope", objective="p99<5ms", pool=None, by=ADA),
    ):
        with pytest.raises(UnknownModel):
            await command


async def test_labels_are_moved_and_removed_and_a_route_is_set_only_as_it_was_seen(
    one: ControlPlane,
) -> None:
    for step, labels in (
        (one.models.set_label("m", "stable", 1, ADA), {"stable": 1}),
        (one.models.set_label("m", "stable", 2, ADA), {"stable": 2}),
        (one.models.remove_label("m", "stable", ADA), {}),
    ):
        await step
        assert one.publisher.snapshot.models["m"].labels == labels
    await one.models.set_route("m", HALVES, By("ada", if_match='"0"'))
    with pytest.raises(PreconditionFailed):
        await one.models.set_route("m", Split.of({1: 1}), By("bob", if_match='"0"'))
    assert status(one).split == HALVES


async def test_objective_and_pool_are_set_apart_and_empty_texts_remove(one: ControlPlane) -> None:
    for objective, pool, seen in (
        (" p99 < 0.05s ", None, ("p99<50ms", "default")),
        (None, "a100", ("p99<50ms", "a100")),
        ("", None, ("", "a100")),
        (None, "", ("", "default")),
    ):
        await one.models.configure("m", objective=objective, pool=pool, by=ADA)
        assert (status(one).objective, status(one).pool) == seen
    with pytest.raises(Invalid):
        await one.models.configure("m", objective="fast", pool=None, by=ADA)
    with pytest.raises(Invalid, match="there is no pool 'h100'"):
        await one.models.configure("m", objective=None, pool="h100", by=ADA)
    await asyncio.gather(  # two people who set different things at once both get them
        one.models.configure("m", objective="p99<50ms", pool=None, by=ADA),
        one.models.configure("m", objective=None, pool="a100", by=By("bob")),
    )
    assert (status(one).objective, status(one).pool) == ("p99<50ms", "a100")


async def test_a_model_is_told_with_all_pools_of_its_group(one: ControlPlane) -> None:
    assert status(one).pools == ("default",)
    for pool in ("default", "a100", "l4"):
        await one.pools.set(pool, {"group": "g"}, ADA)
    assert status(one).pools == ("a100", "default", "l4")
    one.fleet.waiting["b"] = "b waits for its turn"  # another pool may still load it
    assert one.models.version("m", 3).reason == "b waits for its turn"
    one.fleet.saw("b", {})  # a label moves when enough replicas of the whole group hold it
    assert not one.models.ready_enough("m", 1)
    one.fleet.saw("b", {"m": (1,)})
    await one.publisher.refresh()
    assert one.models.ready_enough("m", 1)
    await one.models.configure("m", objective=None, pool="l4", by=ADA)  # which has no replica
    assert one.models.version("m", 1).replicas == ("a", "b")
    assert one.models.version("m", 3).state == "loading"


async def test_each_version_is_shown_with_its_state_and_the_reason(one: ControlPlane) -> None:
    for label in ("stable", "best"):
        await one.models.set_label("m", label, 1, ADA)
    shown = [(v.number, v.state, v.replicas, v.labels, v.reason) for v in status(one).versions]
    assert shown == [
        (1, "ready", ("a",), ("best", "stable"), ""),
        (2, "ready", ("a",), (), ""),
        (3, "loading", (), (), "no replica has loaded it yet"),
        (4, "not wanted", (), (), "the version_policy in config.pbtxt excludes it"),
    ]
    write_model(one.repository, "a-first")
    await one.inventory.scan()
    assert [each.model.name for each in one.models.all()] == ["a-first", "m"]


async def test_the_state_of_a_model_sums_up_its_versions(one: ControlPlane) -> None:
    for held, failure, state in (
        ((1, 2, 3), "", "ready"),
        ((1,), "", "partial"),
        ((), "", "loading"),
        ((1,), "bad file", "partial"),
        ((), "bad file", "failed"),
    ):
        one.fleet.saw("a", {"m": held})
        if failure:
            one.fleet.failures["a", "m"] = LoadFailure(failure, (), 1, 0.0)
        await one.publisher.refresh()
        assert status(one).state == state, (held, failure)
        assert list(status(one).problems) == ([failure] if failure else [])


async def test_a_model_that_cannot_be_read_is_shown_with_its_problem(tmp_path: Path) -> None:
    one = ControlPlane(tmp_path)
    write_model(one.repository, "m", 1, config="nonsense: 1")
    await one.begin()
    assert (status(one).state, [v.state for v in status(one).versions]) == ("failed", ["failed"])
    assert "line 1" in status(one).problems[0]


async def test_a_lost_version_is_a_problem_of_its_route_unless_asleep(one: ControlPlane) -> None:
    await one.models.set_route("m", HALVES, ADA)
    await one.models.set_label("m", "new", 2, ADA)
    one.fleet.saw("a", {"m": (1,)})
    await one.publisher.refresh()
    assert status(one).problems == (
        "the route sends calls to version 2, which is not ready",
        "label 'new' points to version 2, which is not ready",
    )
    await one.pools.set("default", {"to_zero": True}, ADA)
    one.fleet.remove("a")
    await one.publisher.refresh()
    assert status(one).problems == ()


async def test_a_model_moves_to_no_pool_where_one_would_have_no_room(one: ControlPlane) -> None:
    one.inventory = Inventory(
        None,
        one.fleet,
        decisions=lambda: one.decisions,
        placement=Placement(Rules(budgets={"a100": 150}), clock=one.clock),
        publishes=True,
    )
    one.decisions = decided(
        version("m", 1), version("n", 1, times={"published": 2.0}), model__n={"pool": "a100"}
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
        await models.configure("m", objective=None, pool="a100", by=ADA)
    assert "n@1 could no longer be served" in caught.value.why


async def test_a_model_whose_pool_has_no_replica_is_asleep_or_has_failed(one: ControlPlane) -> None:
    for name in ("a", "b"):
        one.fleet.remove(name)
    await one.publisher.refresh()
    assert status(one).state == "failed"
    assert "has no replica" in status(one).versions[0].reason
    await one.pools.set("default", {"to_zero": True}, ADA)
    assert (status(one).state, status(one).problems) == ("asleep", ())
    states = ["asleep", "asleep", "asleep", "not wanted"]
    assert [version.state for version in status(one).versions] == states
    assert "the first call wakes it" in status(one).versions[0].reason
