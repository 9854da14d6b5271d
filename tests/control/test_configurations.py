"""How a version is configured, and what differs between two."""

import asyncio
from pathlib import Path

import pytest
from builders import ControlPlane, write_model
from control.publishing import CONFIG, Scene, files, play

from serve.control.configurations import Line, compared, configured
from serve.core.errors import UnknownModel, UnknownVersion
from serve.tensors.signature import TensorSpec


def test_a_published_version_is_told_from_its_record(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    play(scene, lambda: scene.publish("m", files()))
    found = configured(scene.plane.models, "m", 1)
    assert (found.published, found.config) == (True, CONFIG)
    assert found.inputs == (TensorSpec("x", "FP32", (-1, 4)),)
    assert found.outputs == (TensorSpec("y", "FP32", (-1, 2)),)


def test_a_plain_folders_version_is_told_from_its_configuration(tmp_path: Path) -> None:
    plane = ControlPlane(tmp_path)
    text = 'backend: "python"\ninput { name: "t" data_type: TYPE_STRING dims: [ -1, 2 ] }\n'
    write_model(plane.repository, "m", 1, config=text)
    asyncio.run(plane.begin(a={"m": (1,)}))
    found = configured(plane.models, "m", 1)
    assert (found.published, found.outputs) == (False, ())
    assert found.inputs == (TensorSpec("t", "BYTES", (-1, 2)),)
    assert 'name: "t"' in found.config


def test_what_a_replica_holds_by_itself_is_told_with_nothing_in_it(tmp_path: Path) -> None:
    plane = ControlPlane(tmp_path)
    write_model(plane.repository, "m", 1)
    asyncio.run(plane.begin(a={"m": (1, 7)}))
    found = configured(plane.models, "m", 7)
    assert (found.config, found.inputs, found.published) == ("", (), False)


def test_what_never_was_is_unknown(tmp_path: Path) -> None:
    plane = ControlPlane(tmp_path)
    write_model(plane.repository, "m", 1)
    asyncio.run(plane.begin(a={"m": (1,)}))
    with pytest.raises(UnknownVersion):
        configured(plane.models, "m", 2)
    with pytest.raises(UnknownModel):
        configured(plane.models, "x", 1)


def test_lines_are_numbered_where_they_are() -> None:
    assert compared("a\nb\nc\n", "a\nc\nd\n") == (
        Line(" ", "a", 1, 1),
        Line("-", "b", 2, None),
        Line(" ", "c", 3, 2),
        Line("+", "d", None, 3),
    )


def test_a_changed_line_is_there_twice() -> None:
    assert [line.sign for line in compared("a", "b")] == ["-", "+"]


def test_equal_texts_have_no_signs() -> None:
    assert all(line.sign == " " for line in compared("a\nb", "a\nb"))
