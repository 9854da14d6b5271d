"""What people set of pools: what is written, what is told, and what is refused."""

from pathlib import Path
from typing import Any

import pytest
from builders import ControlPlane, replica, write_model

from serve.capacity.scaling.signals import Bounds
from serve.control.decisions import POOL
from serve.control.history import History
from serve.control.inventory import Inventory
from serve.control.models import By
from serve.control.placement import Placement, Rules
from serve.control.restoration import RestoreCommands
from serve.control.scaling.permissions import Pools, PoolStatus
from serve.control.scaling.pools import PoolSettings, usual_of
from serve.core.errors import Conflict, Invalid, NotFound, PreconditionFailed

from ..versions_scene import decided, version

ADA = By("ada", "a budget")


@pytest.fixture
async def one(tmp_path: Path) -> ControlPlane:
    """Model `m` of pool `default`, which `a` holds; `b` is of pool `a100`."""
    made = ControlPlane(tmp_path, replicas=[replica("a"), replica("b", pool="a100")])
    write_model(made.repository, "m", 1)
    return await made.begin(a={"m": (1,)}, b={})


def told(one: ControlPlane, name: str) -> PoolStatus:
    return one.pools.get(name)


def pools(one: ControlPlane, inventory: Inventory, **more: Any) -> Pools:
    return Pools(
        *(one.store, inventory, one.fleet),
        decisions=lambda: one.decisions,
        reload=one.reload,
        publish=one.publisher.committed,
        wall=one.wall,
        **more,
    )


async def test_every_pool_is_told_with_its_replicas_and_models(one: ControlPlane) -> None:
    assert [(each.name, each.replicas, each.models) for each in one.pools.all()] == [
        ("a100", ("b",), ()),
        ("default", ("a",), ("m",)),
    ]
    assert not told(one, "default").is_set
    assert told(one, "default").bounds == Bounds(1, 8)


async def test_what_is_set_holds_at_once_in_place_of_all_that_was_set(one: ControlPlane) -> None:
    await one.pools.set("default", {"least": 2, "most": 3}, ADA)
    assert told(one, "default").bounds == Bounds(2, 3)
    written = await one.pools.set("default", {"budget": 4}, ADA)
    status = told(one, "default")
    assert (status.bounds, status.is_set, status.etag) == (Bounds(1, 8, 4), True, written.etag)


async def test_a_schedule_that_holds_now_is_told(one: ControlPlane) -> None:
    # its clock shows 22:13 in UTC, a Tuesday
    evening = {"days": "tue", "from": "22:00", "to": "23:00", "zone": "UTC", "least": 3}
    await one.pools.set("default", {"schedules": [evening]}, ADA)
    assert told(one, "default").schedule == "tue 22:00-23:00 UTC least=3"
    assert told(one, "default").bounds.least == 3


async def test_a_pool_may_be_set_before_it_has_a_replica_and_a_model_may_move_there(
    one: ControlPlane,
) -> None:
    await one.pools.set("l4", {"to_zero": True}, ADA)
    await one.models.configure("m", objective=None, pool="l4", by=ADA)
    assert (told(one, "l4").replicas, told(one, "l4").models) == ((), ("m",))


async def test_a_change_of_something_else_than_was_read_is_refused(one: ControlPlane) -> None:
    first = told(one, "default").etag
    await one.pools.set("default", {"most": 3}, By("ada", "", first))
    late = By("bob", "", first)
    for change in (one.pools.set("default", {"most": 4}, late), one.pools.clear("default", late)):
        with pytest.raises(PreconditionFailed):
            await change
    assert told(one, "default").bounds.most == 3


async def test_what_is_cleared_is_as_usual_and_again_is_no_mistake(one: ControlPlane) -> None:
    await one.pools.set("default", {"most": 3}, ADA)
    await one.pools.clear("default", ADA)
    cleared = told(one, "default")
    assert (cleared.settings, cleared.is_set) == (PoolSettings(), False)
    await one.pools.clear("default", ADA)
    assert told(one, "default").etag == cleared.etag
    with pytest.raises(PreconditionFailed):
        await one.pools.clear("default", By("bob", "", '"1"'))


async def test_a_pool_that_nobody_knows_is_not_found(one: ControlPlane) -> None:
    with pytest.raises(NotFound, match="there is no pool 'h100'") as refused:
        one.pools.get("h100")
    assert "a100, default" in refused.value.why
    with pytest.raises(NotFound, match="there is no pool 'h100'"):
        await one.pools.clear("h100", ADA)


async def test_what_cannot_be_is_not_written(one: ControlPlane) -> None:
    with pytest.raises(Invalid, match="is not a valid pool name"):
        await one.pools.set("a b", {}, ADA)
    with pytest.raises(Invalid):
        await one.pools.set("default", {"least": 3, "most": 2}, ADA)
    assert not told(one, "default").is_set


async def test_a_range_for_local_tritons_is_what_is_usual(one: ControlPlane) -> None:
    local = pools(one, one.inventory, usual=usual_of("default", 0, 2))
    assert local.get("default").bounds == Bounds(1, 2, to_zero=True)
    await local.set("default", {"most": 5}, ADA)
    assert local.get("default").bounds == Bounds(1, 5)


async def test_pools_of_one_group_hold_each_others_models(one: ControlPlane) -> None:
    for pool in ("default", "a100"):
        await one.pools.set(pool, {"group": "vision"}, ADA)
    assert told(one, "a100").beside == ("a100", "default")
    assert told(one, "a100").models == ("m",)
    assert set(one.inventory.for_pool("a100")) == {"m"}
    await one.pools.set("a100", {}, ADA)
    assert told(one, "a100").beside == ("a100",)
    assert set(one.inventory.for_pool("a100")) == set()
    assert one.inventory.elsewhere("a100") == {"m"}


async def test_no_pool_joins_a_group_where_something_needed_would_lose_its_place(
    tmp_path: Path,
) -> None:
    one = ControlPlane(tmp_path, replicas=[replica("a"), replica("b", pool="a100")])
    both = [version("m", 1, memory=60), version("n", 1, memory=60)]
    named = {"model__n": {"pool": "a100"}, "pool__default": {"group": "g"}, "pool__a100": {}}
    one.decisions = decided(*both, **named)
    rules = Rules(budgets={"default": 100, "a100": 100})
    inventory = Inventory(
        *(None, one.fleet),
        decisions=lambda: one.decisions,
        placement=Placement(rules, clock=one.clock),
        publishes=True,
    )
    with pytest.raises(Conflict, match="pool 'a100' cannot join group 'g'") as refused:
        await pools(one, inventory).set("a100", {"group": "g"}, ADA)
    assert "would not be served: pool 'a100' has too little memory" in refused.value.why


async def test_history_tells_what_was_set_and_leads_back(one: ControlPlane) -> None:
    nothing: Any = None
    restoring = RestoreCommands(
        *(nothing, nothing),
        decisions=lambda: one.decisions,
        generation=lambda: 0,
        allowing=one.pools,
    )
    history = History(one.store, restoring.by_kind)
    for most in (3, 5):
        await one.pools.set("default", {"most": most}, ADA)
    newest, first = await history.all(kind=POOL, key="default")
    assert [str(each) for each in await history.diff(newest.number)] == ["most: 3 → 5"]
    await history.restore(first.number, By("bob"))
    assert told(one, "default").bounds.most == 3
    await one.pools.clear("default", ADA)
    await history.restore(newest.number, By("bob"))
    assert told(one, "default").bounds.most == 5
    _, cleared, *_ = await history.all(kind=POOL, key="default")
    assert cleared.after is None
    await history.restore(cleared.number, By("bob"))
    assert not told(one, "default").is_set
