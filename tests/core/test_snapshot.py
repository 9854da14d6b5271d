"""Snapshots: the form in which they travel, and everything that is checked when they arrive."""

import dataclasses
import functools
import json
import math
import operator
from collections.abc import Iterable
from types import MappingProxyType
from typing import Any

import pytest
from builders import replica, snapshot, target, view
from refusals import refusal

from serve.core.access import ApiKey, Role
from serve.core.errors import Invalid
from serve.core.snapshot import Snapshot

KEYS = (
    ApiKey("abcd", "0" * 64, Role.PREDICTOR, ("digits*", "m"), 2e9),
    ApiKey("efgh", "f" * 64, Role.ADMIN),
)


def full() -> Snapshot:
    digits = view(
        target(1, "a", "b", model="digits"),
        target(2, "b", model="digits", physical="digits--01234567"),
        name="digits",
        split="1=90 2=10",
        labels={"stable": 1},
        sequences=True,
    )
    models = digits, view(name="empty"), view(name="sleeping", asleep=True)
    served = snapshot(*models, generation=7, replicas=["c"])
    keys = MappingProxyType({key.id: key for key in KEYS})
    return dataclasses.replace(served, keys=keys, guarded=True)


def test_a_snapshot_survives_the_journey_as_json() -> None:
    elsewhere = MappingProxyType({"a": replica("a", http=9, pool="a100")})
    calling = dataclasses.replace(target(1), calls_others=True)
    for one in (full(), Snapshot(1), Snapshot(1, replicas=elsewhere), snapshot(view(calling))):
        assert Snapshot.from_json(json.loads(json.dumps(one.to_json()))) == one
    arrived = Snapshot.from_json(full().to_json())
    with pytest.raises(TypeError):
        arrived.models["digits"].targets[3] = target(3)  # type: ignore[index]


def by_name(data: Any) -> Any:
    """The same in format 2, in which each target names its holders."""
    page = json.loads(json.dumps(data))
    holders = page.pop("holders")
    for model in page["models"].values():
        for one in model["targets"].values():
            one["replicas"] = holders[one["replicas"]]
    return page | {"format": 2}


def test_holders_that_are_the_same_are_written_once_and_read_once() -> None:
    names = [f"replica-{number}" for number in range(50)]
    models = (view(target(1, *names, model=name), name=name) for name in ("a", "b", "c"))
    data = json.loads(json.dumps(snapshot(*models).to_json()))
    assert data["holders"] == [names]
    assert json.dumps(data["models"]).count("replica-7") == 0
    read = Snapshot.from_json(data).models
    assert read["a"].targets[1].replicas is read["c"].targets[1].replicas


def test_a_snapshot_of_the_format_before_can_still_be_read() -> None:
    assert Snapshot.from_json(by_name(full().to_json())) == full()


def test_in_the_format_before_holders_are_checked_too() -> None:
    for named in (["nobody"], ["a", "a"], None, 0):
        data = by_name(full().to_json())
        data["models"]["digits"]["targets"]["1"]["replicas"] = named
        refusal(Invalid, Snapshot.from_json, data)


def test_same_content_leaves_the_generation_out() -> None:
    one, two = snapshot(view(target()), generation=1), snapshot(view(target()), generation=2)
    assert one.same_content(two)
    assert not one.same_content(snapshot(view(target(2)), generation=1))
    assert not one.same_content(snapshot(view(target()), generation=1, replicas=["z"]))
    keyed = full()
    assert not keyed.same_content(dataclasses.replace(keyed, keys=MappingProxyType({})))
    assert not Snapshot(1).same_content(Snapshot(1, guarded=True))


def test_a_snapshot_that_says_nothing_of_sleep_was_written_where_nobody_slept() -> None:
    data = full().to_json()
    assert data["models"]["sleeping"].pop("asleep")
    assert not Snapshot.from_json(data).models["sleeping"].asleep


def test_a_target_that_does_not_say_so_may_call_others() -> None:
    for said in ({}, {"calls_others": None}, {"calls_others": 0}):
        data = snapshot(view(target(1))).to_json()
        del data["models"]["m"]["targets"]["1"]["calls_others"]
        data["models"]["m"]["targets"]["1"] |= said
        assert Snapshot.from_json(data).models["m"].targets[1].calls_others, said


def test_a_gateway_that_has_keys_or_had_one_is_guarded() -> None:
    assert Snapshot.from_json(Snapshot(1, guarded=True).to_json()).guarded
    assert Snapshot.from_json(full().to_json() | {"guarded": False}).guarded
    assert not Snapshot.from_json(Snapshot(1).to_json()).guarded


def test_parts_that_are_not_known_are_passed_over_so_that_formats_can_grow() -> None:
    data = full().to_json()
    data["later"] = data["models"]["digits"]["later"] = 1
    assert Snapshot.from_json(data) == full()


def test_what_is_no_snapshot_at_all_is_refused() -> None:
    for data in (None, [], "x", 1, {}, {"format": 1}):
        refusal(Invalid, Snapshot.from_json, data)


MODEL = ("models", "digits")
TARGET = (*MODEL, "targets", "1")
KEY = ("keys", "abcd")


def read_with(*path: Any) -> Snapshot:
    """A good snapshot in which the last of these stands at the place that the others name."""
    data = json.loads(json.dumps(full().to_json()))
    *way, last, value = path
    functools.reduce(operator.getitem, way, data)[last] = value
    return Snapshot.from_json(data)


WRONG: dict[tuple[Any, ...], Iterable[Any]] = {
    ("format",): [4],
    ("generation",): ["seven", None, math.inf, -1],
    ("models",): [[]],
    ("replicas",): [["a"]],
    ("replicas", "a", "address"): ["10.0.0.1", 5],
    MODEL: [None],
    (*MODEL, "labels"): [{"stable": "one"}, ["stable"]],
    (*MODEL, "split"): [{"1": -1}, {"1": 0}, {"x": 1}, [1]],
    (*MODEL, "targets", "one"): [{}],
    ("holders", 0): [["nobody"], ["a", "a"], None],
    ("holders",): [{}],
    (*TARGET, "replicas"): [2, -1, True, ["a", "b"], None],
    (*TARGET, "physical_version"): ["new"],
    (*TARGET, "physical_name"): [""],
    ("guarded",): [None, "false"],
    ("keys",): [[]],
    ("keys", "abcd"): [None],
    ("keys", "ab"): [{}],
    (*KEY, "digest"): ["0" * 63, None],
    (*KEY, "role"): ["owner"],
    (*KEY, "models"): [[], "*", [""]],
    (*KEY, "expires"): ["never", math.nan, math.inf],
}


def test_a_snapshot_that_does_not_hold_together_is_refused() -> None:
    for path, values in WRONG.items():
        for value in values:
            refusal(Invalid, read_with, *path, value)


PARTS = {
    (): ("generation", "models", "holders", "replicas", "format", "guarded", "keys"),
    ("replicas", "a"): ("pool", "address"),
    MODEL: ("labels", "split", "routed", "sequences", "targets"),
    TARGET: ("physical_name", "physical_version", "flavour", "replicas"),
    KEY: ("digest", "role", "models", "expires"),
}


def test_a_snapshot_that_lacks_a_part_is_refused() -> None:
    for way, names in PARTS.items():
        for name in names:
            data = json.loads(json.dumps(full().to_json()))
            del functools.reduce(operator.getitem, way, data)[name]
            refusal(Invalid, Snapshot.from_json, data)
