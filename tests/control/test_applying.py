"""Applying: what a version is run by, from its own configuration and what was decided for it."""

import asyncio
from pathlib import Path

from builders import ControlPlane, write_model
from control.versions_scene import decided, version

from serve.control.applying import NO_CONFIG, configuration_of
from serve.control.configurations import configured
from serve.control.published import loadables_of
from serve.control.registry import Loadable

BASE = 'backend: "onnxruntime"\nmax_batch_size: 8\n'
GROUP = "0" * 64
SIXTEEN = {"fields": {"max_batch_size": 16}, "group": GROUP}


def size(one: Loadable) -> int:
    assert one.configuration is not None
    return int(one.configuration.message.max_batch_size)


def plain(folder: Path, config: str | None, **other: object) -> ControlPlane:
    """A control plane with a folder `m`, of which something was decided."""
    plane = ControlPlane(folder)
    write_model(plane.repository, "m", 1, config=config)
    asyncio.run(plane.begin(a={"m": (1,)}))
    plane.decisions = decided(**other)
    return plane


def test_a_published_version_is_run_with_the_fields_that_were_decided() -> None:
    decisions = decided(version("m", 1, config=BASE), configuration__m=SIXTEEN)
    one = loadables_of(decisions, {("m", 1)})["m"]
    assert (size(one), one.passed_over, one.revision) == (16, "", '"100"')
    assert configuration_of(decisions, version("m", 1, config=BASE)).message.max_batch_size == 16


def test_what_was_decided_for_another_group_is_not_meant_for_this_one() -> None:
    other = version("m", 1, config=BASE, group="1" * 64)
    decisions = decided(other, configuration__m=SIXTEEN)
    one = loadables_of(decisions, {("m", 1)})["m"]
    assert (size(one), one.passed_over) == (8, "")
    assert configuration_of(decisions, other).message.max_batch_size == 8


def test_versions_that_share_a_name_in_triton_are_run_alike() -> None:
    both = [version("m", number, config=BASE) for number in (1, 2)]
    decisions = decided(*both, configuration__m=SIXTEEN)
    assert [configuration_of(decisions, one).message.max_batch_size for one in both] == [16, 16]
    assert [size(one) for one in loadables_of(decisions, set()).values()] == [16]


def test_fields_that_fit_no_more_are_passed_over_and_somebody_is_told() -> None:
    unreadable = {"fields": {"max_batch_size": "many"}, "group": GROUP}
    decisions = decided(version("m", 1, config=BASE), configuration__m=unreadable)
    one = loadables_of(decisions, {("m", 1)})["m"]
    assert size(one) == 8
    assert "passed over" in one.passed_over and not one.problem


def test_a_plain_folder_is_run_with_the_fields_that_were_decided(tmp_path: Path) -> None:
    fields = {"fields": {"max_batch_size": 4}, "group": ""}
    plane = plain(tmp_path, BASE, configuration__m=fields)
    assert size(plane.inventory.loadables["m"]) == 4
    assert plane.inventory.loadables["m"].wanted == (1,)


def test_fields_go_on_top_of_the_configuration_of_a_management_call(tmp_path: Path) -> None:
    plane = plain(
        tmp_path,
        BASE,
        serving__m={"config": '{"backend": "python", "max_batch_size": 2}'},
        configuration__m={"fields": {"response_cache": {"enable": True}}, "group": ""},
    )
    found = plane.inventory.loadables["m"].configuration
    assert found is not None
    assert (found.message.backend, found.message.max_batch_size) == ("python", 2)
    assert found.message.response_cache.enable


def test_a_folder_that_changes_so_that_the_fields_do_not_fit_is_served_all_the_same(
    tmp_path: Path,
) -> None:
    fields = {"fields": {"dynamic_batching": {}}, "group": ""}
    plane = plain(tmp_path, BASE + "sequence_batching { }\n", configuration__m=fields)
    one = plane.inventory.loadables["m"]
    assert (size(one), one.problem) == (8, "")
    told = plane.models.get("m").problems
    assert any("dynamic_batching and sequence_batching exclude each other" in why for why in told)


def test_a_folder_without_a_configuration_cannot_be_changed(tmp_path: Path) -> None:
    fields = {"fields": {"max_batch_size": 4}, "group": ""}
    plane = plain(tmp_path, None, configuration__m=fields)
    one = plane.inventory.loadables["m"]
    assert (one.configuration, one.passed_over) == (None, NO_CONFIG)


def test_callers_see_the_shapes_of_what_is_in_force(tmp_path: Path) -> None:
    plane = ControlPlane(tmp_path)
    asyncio.run(plane.begin(a={}))
    text = 'backend: "onnxruntime"\ninput { name: "x" data_type: TYPE_FP32 dims: [ 4 ] }\n'
    plane.decisions = decided(version("m", 1, config=text), configuration__m=SIXTEEN)
    shown = configured(plane.models, "m", 1)
    assert ([spec.shape for spec in shown.inputs], shown.config) == ([(-1, 4)], text)
