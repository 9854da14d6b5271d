"""Decisions: what is stored, read as values."""

from types import MappingProxyType
from typing import Any

from serve.control.decisions import UNSET, Decisions, label_key, split_of
from serve.control.storing.store import Entry
from serve.core.routes import Split


def decided(**bodies: Any) -> Decisions:
    """`kind__key=body`, with keys as the store writes them."""
    entries = {tuple(name.split("__")): Entry(body, 7) for name, body in bodies.items()}
    return Decisions(MappingProxyType(entries))  # type: ignore[arg-type]


def test_what_nobody_has_set_is_unset() -> None:
    nothing = Decisions()
    assert nothing.entry("route", "m") is UNSET
    assert UNSET.etag == '"0"'
    assert (nothing.split("m"), nothing.labels("m")) == (None, {})
    assert (nothing.objective("m"), nothing.pool("m")) == ("", "default")


def test_a_route_is_read_as_a_split() -> None:
    route = decided(route__m={"split": {"10": 1, "2": 9}})
    assert route.split("m") == Split(((2, 9), (10, 1)))
    assert split_of({"split": {"1": 100}}) == Split(((1, 100),))


def test_labels_belong_to_their_model_alone() -> None:
    two = {
        ("label", label_key("m", "stable")): Entry({"version": 1}, 1),
        ("label", label_key("m", "new")): Entry({"version": 2}, 2),
        ("label", label_key("mm", "stable")): Entry({"version": 3}, 3),
        ("route", label_key("m", "x")): Entry({"split": {"1": 1}}, 4),
    }
    assert Decisions(MappingProxyType(two)).labels("m") == {"new": 2, "stable": 1}


def test_settings_of_a_model_are_read_one_by_one() -> None:
    model = decided(model__m={"objective": "p99<50ms"}, model__x={"pool": "a100"})
    assert (model.objective("m"), model.pool("m")) == ("p99<50ms", "default")
    assert (model.objective("x"), model.pool("x")) == ("", "a100")


def test_the_etag_of_a_thing_is_its_revision() -> None:
    assert decided(model__m={}).entry("model", "m").etag == '"7"'
