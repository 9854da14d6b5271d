"""Flavours: what flavours.json may say, and which machine can run which flavour."""

import json
from typing import Any

from refusals import refusal

from serve.core.errors import Invalid
from serve.core.flavours import BASE, Machine, Needs, VersionFlavours, agree

H100 = Machine("9.0", "10.13.2.6", gpu=True)
CPU = Machine()


def text(*flavours: dict[str, Any], **more: Any) -> str:
    return json.dumps({"format": 1, "flavours": list(flavours), **more})


def test_a_machine_runs_a_flavour_if_it_is_known_to_have_what_that_needs() -> None:
    for needs, machine, lacking in (
        (Needs(), CPU, ""),
        (Needs(gpu=True), CPU, "it needs a GPU (found: none)"),
        (Needs(gpu=True), Machine(gpu=True), ""),
        (Needs(compute_capability=("9.0",)), H100, ""),
        (Needs(compute_capability=("8.0", "8.6")), H100, "8.0 or 8.6 (found: 9.0)"),
        (Needs(compute_capability=("9.0",)), Machine(gpu=True), "(found: none)"),
        (Needs(compute_capability=("8.0+",)), H100, ""),
        (Needs(compute_capability=("10.0+",)), H100, "it needs compute capability 10.0+"),
        (Needs(tensorrt=("10.13.2",)), H100, ""),
        (Needs(tensorrt=("10",)), H100, ""),
        (Needs(tensorrt=("10.13.3",)), H100, "it needs TensorRT 10.13.3 (found: 10.13.2.6)"),
        (Needs(tensorrt=("10.1",)), H100, "it needs TensorRT 10.1 (found: 10.13.2.6)"),
        (Needs(tensorrt=("10.13.2",)), CPU, "(found: none)"),
    ):
        found = needs.lacking(machine)
        assert lacking in found and bool(found) == bool(lacking), found


def test_versions_of_tensorrt_agree_as_far_as_both_are_told() -> None:
    assert agree("10.13", "10.13.2.6") and agree("10.13.2.6", "10")
    assert not agree("10.1", "10.13") and not agree("", "10") and not agree("10", "")


def test_the_base_is_tried_last_unless_there_is_none() -> None:
    two = ({"name": "plan"}, {"name": "onnx+trt"})
    names = [one.name for one in VersionFlavours.parse(text(*two)).candidates]
    assert names == ["plan", "onnx+trt", BASE]
    assert [one.name for one in VersionFlavours.parse(text(*two, base=False)).candidates] == names[
        :2
    ]
    assert [one.name for one in VersionFlavours.parse("").candidates] == [BASE]


def test_flavours_are_the_same_after_they_are_written_and_read() -> None:
    full = {
        "name": "plan-sm90",
        "file": "model.plan-sm90.plan",
        "backend": "tensorrt",
        "needs": {"gpu": True, "compute_capability": ["9.0"], "tensorrt": ["10.13.2"]},
        "config": {"instance_group": [{"kind": "KIND_GPU"}]},
    }
    flavours = VersionFlavours.parse(text(full))
    assert flavours.preferred[0].to_json() == full
    assert VersionFlavours.parse(flavours.text()) == flavours
    assert VersionFlavours().text() == ""


def test_equal_flavours_have_one_spelling_and_their_order_counts() -> None:
    one, other = {"name": "a", "needs": {}}, {"name": "b", "file": "b.onnx"}
    spelled = VersionFlavours.parse(text(one, other)).text()
    again = json.dumps(json.loads(text({"name": "a"}, other, base=True)), indent=3)
    assert VersionFlavours.parse(again).text() == spelled
    assert VersionFlavours.parse(text(other, one)).text() != spelled


def test_what_is_wrong_with_flavours_is_told() -> None:
    for wrong, why in (
        ("nothing", "not JSON"),
        ("[]", "must be an object"),
        ("{}", "has no 'format'"),
        ('{"format": true, "flavours": [{"name": "a"}]}', "cannot read format True"),
        (text(), "a list of 1 to"),
        (text(*({"name": f"f{n}"} for n in range(33))), "a list of 1 to"),
        (text({"name": "A"}), "is not a valid name"),
        (text({"name": BASE}), "'base' is reserved"),
        (text({"name": "a"}, {"name": "a"}), "listed twice"),
        (text({"name": "a", "file": "../b"}), "is not a path"),
        (text({"name": "a", "files": "b"}), "no field 'files'"),
        (text({"name": "a", "needs": {"gpu": "yes"}}), "must be true or false"),
        (text({"name": "a", "needs": {"compute_capability": ["sm90"]}}), "is not a version"),
        (text({"name": "a"}, base="no"), "'base' must be true or false"),
        ('{"format": 1, "flavours": [{"name": "a", "config": {"x": NaN}}]}', "not JSON"),
        ('{"format": 1, "flavours": [{"name": "\\ud800"}]}', "not JSON"),
        ("[" * 100_000, "not JSON"),
    ):
        error = refusal(Invalid, VersionFlavours.parse, wrong)
        assert why in str(error), wrong


def test_a_gpu_is_there_where_its_compute_capability_is_known() -> None:
    assert Machine.of({"compute_capability": "8.6"}) == Machine("8.6", gpu=True)
    assert Machine.of({"gpu": "true", "engine_cache": "/var/engines"}).gpu
    assert Machine.of({}) == CPU


def test_what_is_no_fact_about_a_machine_is_refused() -> None:
    for facts in (
        {"colour": "red"},
        {"gpu": "yes"},
        {"compute_capability": "sm90"},
        {"tensorrt": "newest"},
        {"engine_cache": "engines"},
    ):
        assert "is not a machine fact" in str(refusal(Invalid, Machine.of, facts)), facts
