"""Decisions: what is stored, read as values."""

from pathlib import Path
from types import MappingProxyType

import pytest
from builders import ControlPlane, write_model
from control.publishing import CONFIG, Scene, files
from control.versions_scene import decided, version

from serve.control.applied_configurations import NO_CONFIG, configuration_of
from serve.control.configurations import DiffLine, compared, configured
from serve.control.decisions import UNSET, Decisions, label_key
from serve.control.inventory import loadables_of
from serve.control.registry import Loadable
from serve.control.storage.store import StoredEntry
from serve.core.errors import UnknownModel, UnknownVersion
from serve.core.routes import Route, Split
from serve.tensors.signature import ModelTensor


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
    nothing = Decisions()
    assert nothing.entry("route", "m") is UNSET
    assert UNSET.etag == '"0"'
    assert (nothing.route("m"), nothing.labels("m")) == (None, {})
    assert (nothing.objective("m"), nothing.pool("m")) == ("", "default")


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


# --- what a version is run by: its own configuration and what was decided for it ------------------

BASE = 'backend: "onnxruntime"\nmax_batch_size: 8\n'
GROUP = "0" * 64
SIXTEEN = {"fields": {"max_batch_size": 16}, "group": GROUP}


def size(one: Loadable) -> int:
    assert one.configuration is not None
    return int(one.configuration.message.max_batch_size)


async def plain(folder: Path, config: str | None, **other: object) -> ControlPlane:
    """A control plane with a folder `m`, of which something was decided."""
    plane = ControlPlane(folder)
    write_model(plane.repository, "m", 1, config=config)
    await plane.begin(a={"m": (1,)})
    plane.decisions = decided(**other)
    return plane


@pytest.mark.parametrize(
    ("group", "decision", "applied", "passed_over"),
    [
        (GROUP, SIXTEEN, 16, ""),
        ("1" * 64, SIXTEEN, 8, ""),  # it was decided for another group
        (GROUP, {"fields": {"max_batch_size": "many"}, "group": GROUP}, 8, "is ignored"),
    ],
)
def test_a_published_version_is_run_with_the_fields_that_were_decided_for_its_group(
    group: str, decision: dict[str, object], applied: int, passed_over: str
) -> None:
    both = [version("m", number, config=BASE, group=group) for number in (1, 2)]
    decisions = decided(*both, configuration__m=decision)
    one = loadables_of(decisions, {("m", 1)})["m"]
    assert (size(one), one.problem) == (applied, "")
    assert passed_over in one.passed_over and bool(one.passed_over) is bool(passed_over)
    for each in both:  # those that share a name in Triton are run alike
        assert configuration_of(decisions, each).message.max_batch_size == applied


async def test_a_plain_folder_is_run_with_the_fields_that_were_decided(tmp_path: Path) -> None:
    fields = {"fields": {"max_batch_size": 4}, "group": ""}
    plane = await plain(tmp_path, BASE, configuration__m=fields)
    assert size(plane.inventory.loadables["m"]) == 4
    assert plane.inventory.loadables["m"].wanted == (1,)
    (plane.repository / "m" / "config.pbtxt").unlink()  # without one it cannot be changed
    await plane.inventory.scan()
    one = plane.inventory.loadables["m"]
    assert (one.configuration, one.passed_over) == (None, NO_CONFIG)


async def test_fields_go_on_top_of_the_configuration_of_a_management_call(tmp_path: Path) -> None:
    plane = await plain(
        tmp_path,
        BASE,
        serving__m={"config": '{"backend": "python", "max_batch_size": 2}'},
        configuration__m={"fields": {"response_cache": {"enable": True}}, "group": ""},
    )
    found = plane.inventory.loadables["m"].configuration
    assert found is not None
    assert (found.message.backend, found.message.max_batch_size) == ("python", 2)
    assert found.message.response_cache.enable


async def test_a_folder_that_the_fields_fit_no_more_is_served_all_the_same(tmp_path: Path) -> None:
    fields = {"fields": {"dynamic_batching": {}}, "group": ""}
    plane = await plain(tmp_path, BASE + "sequence_batching { }\n", configuration__m=fields)
    one = plane.inventory.loadables["m"]
    assert (size(one), one.problem) == (8, "")
    told = plane.models.get("m").problems
    assert any("dynamic_batching and sequence_batching exclude each other" in why for why in told)


async def test_callers_see_the_shapes_of_what_is_in_force(tmp_path: Path) -> None:
    plane = ControlPlane(tmp_path)
    await plane.begin(a={})
    text = 'backend: "onnxruntime"\ninput { name: "x" data_type: TYPE_FP32 dims: [ 4 ] }\n'
    plane.decisions = decided(version("m", 1, config=text), configuration__m=SIXTEEN)
    shown = configured(plane.models, "m", 1)
    assert ([spec.shape for spec in shown.inputs], shown.config) == ([(-1, 4)], text)
