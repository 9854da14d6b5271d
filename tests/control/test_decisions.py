"""Decisions: what is stored, read as values."""

from pathlib import Path
from types import MappingProxyType

import pytest
from builders import ControlPlane, write_model
from control.publishing import CONFIG, Scene, files

from serve.control.configurations import DiffLine, compared, configured
from serve.control.decisions import UNSET, Decisions, label_key
from serve.control.storage.store import StoredEntry
from serve.core.errors import UnknownModel, UnknownVersion
from serve.core.routes import Route, Split
from serve.tensors.signature import ModelTensor


def test_what_nobody_has_set_is_unset() -> None:
    nothing = Decisions()
    assert nothing.entry("route", "m") is UNSET
    assert UNSET.etag == '"0"'
    assert (nothing.route("m"), nothing.labels("m")) == (None, {})
    assert (nothing.objective("m"), nothing.pool("m")) == ("", "default")


def test_what_was_set_is_read_of_each_model_by_itself() -> None:
    entries = {
        ("route", "m"): StoredEntry({"split": {"10": 1, "2": 9}}, 7),
        ("route", label_key("m", "x")): StoredEntry({"split": {"1": 1}}, 4),
        ("label", label_key("m", "stable")): StoredEntry({"version": 1}, 1),
        ("label", label_key("m", "new")): StoredEntry({"version": 2}, 2),
        ("label", label_key("mm", "stable")): StoredEntry({"version": 3}, 3),
        ("model", "m"): StoredEntry({"objective": "p99<50ms"}, 5),
        ("model", "x"): StoredEntry({"pool": "a100"}, 6),
    }
    decisions = Decisions(MappingProxyType(entries))
    assert decisions.route("m") == Route(Split(((2, 9), (10, 1))))
    assert decisions.labels("m") == {"new": 2, "stable": 1}
    assert (decisions.objective("m"), decisions.pool("m")) == ("p99<50ms", "default")
    assert (decisions.objective("x"), decisions.pool("x")) == ("", "a100")
    assert decisions.entry("route", "m").etag == '"7"'


# --- how a version is configured, and what differs between two ------------------------------------


async def test_a_published_version_is_told_from_its_record(scene: Scene) -> None:
    await scene.publish("m", files())
    found = configured(scene.plane.models, "m", 1)
    assert (found.published, found.config) == (True, CONFIG)
    assert found.inputs == (ModelTensor("x", "FP32", (-1, 4)),)
    assert found.outputs == (ModelTensor("y", "FP32", (-1, 2)),)


async def test_a_plain_folders_version_is_told_from_its_configuration(tmp_path: Path) -> None:
    plane = ControlPlane(tmp_path)
    text = 'backend: "python"\ninput { name: "t" data_type: TYPE_STRING dims: [ -1, 2 ] }\n'
    write_model(plane.repository, "m", 1, config=text)
    await plane.begin(a={"m": (1, 7)})
    found = configured(plane.models, "m", 1)
    assert (found.published, found.outputs) == (False, ())
    assert found.inputs == (ModelTensor("t", "BYTES", (-1, 2)),)
    assert 'name: "t"' in found.config
    held = configured(plane.models, "m", 7)  # by a replica, and there is no folder
    assert (held.config, held.inputs, held.published) == ("", (), False)
    with pytest.raises(UnknownVersion):
        configured(plane.models, "m", 2)
    with pytest.raises(UnknownModel):
        configured(plane.models, "x", 1)


def test_lines_are_numbered_where_they_are_and_a_changed_one_is_there_twice() -> None:
    assert compared("a\nb\nc\n", "a\nc\nd\n") == (
        DiffLine(" ", "a", 1, 1),
        DiffLine("-", "b", 2, None),
        DiffLine(" ", "c", 3, 2),
        DiffLine("+", "d", None, 3),
    )
    assert [line.sign for line in compared("a", "b")] == ["-", "+"]
    assert [line.sign for line in compared("a\nb", "a\nb")] == [" ", " "]
