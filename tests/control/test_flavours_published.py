"""Publishing a version with flavours: checked, tried as far as the machine goes, and recorded."""

import json
from pathlib import Path
from typing import Any

import pytest
from control.publishing import Scene, files

from serve.control.publication.trials import NO_FORM
from serve.core.errors import TrialFailed
from serve.core.flavours import BASE, Machine
from serve.core.versions import VersionState

FAST = {"name": "fast", "file": "fast.onnx", "needs": {"gpu": True}}


def given(*flavours: dict[str, Any], **more: Any) -> dict[str, bytes]:
    page = {"format": 1, "flavours": list(flavours or (FAST,)), **more}
    return files() | {"1/fast.onnx": b"a faster one", "flavours.json": json.dumps(page).encode()}


def forms(scene: Scene) -> list[str]:
    """The model files that quarantine was told to load, one Triton after the other."""
    orders = [json.loads(order.config_json) for (order,) in scene.quarantine.orders]
    return [config.get("default_model_filename", BASE) for config in orders]


async def test_flavours_are_recorded_and_stay_hidden_from_triton(scene: Scene) -> None:
    version = await scene.publish("m", given())
    assert version.is_published, version.reason
    assert [one.name for one in version.forms.candidates] == ["fast", BASE]
    assert scene.quarantine.trees == [["m/1/fast.onnx", "m/1/model.onnx", "m/config.pbtxt"]]
    assert forms(scene) == [BASE]  # the one that a machine without a GPU can run


async def test_another_order_of_flavours_is_another_name_in_triton(scene: Scene) -> None:
    other = {"name": "other", "needs": {"gpu": True}}
    plain = await scene.publish("m", files(b"plain"))
    first = await scene.publish("m", given(FAST, other))
    again = await scene.publish("m", given(FAST, other, base=True) | {"1/more": b""})
    second = await scene.publish("m", given(other, FAST))
    assert (plain.physical, first.physical) == ("m", again.physical)
    fewer = await scene.publish("m", given(FAST, other, base=False))
    assert len({one.physical for one in (plain, first, second, fewer)}) == 4


async def test_quarantine_tries_what_its_machine_can_run_and_names_what_fails(
    tmp_path: Path,
) -> None:
    scene = await Scene(tmp_path, machine=Machine(gpu=True)).begin()
    assert (await scene.publish("m", given())).is_published
    assert forms(scene) == [BASE, "fast.onnx"]
    scene.quarantine.fails = TrialFailed("it did not load", why="no kernel")
    version = await scene.publish("m", given(base=False))
    assert version.state is VersionState.FAILED
    assert version.reason == "flavour 'fast': it did not load: no kernel"


async def test_a_version_that_quarantine_cannot_run_says_that_it_was_not_tried(
    scene: Scene,
) -> None:
    version = await scene.publish("m", given(base=False))
    assert version.is_published and NO_FORM in version.findings
    assert (forms(scene), version.memory) == ([], None)


PLAN = {"name": "p", "file": "p.plan", "backend": "tensorrt", "needs": {"tensorrt": ["9.9"]}}
RECORDED = {"format": 1, "plans": {"p": {"tensorrt": "10.13.2"}}}
PLANS = {"1/p.plan": b"", "plans.json": json.dumps(RECORDED).encode()}


@pytest.mark.parametrize(
    ("upload", "reason"),
    [
        (given({"name": "f", "colour": "red"}), "flavours-malformed"),
        (given({"name": "f", "file": "none.onnx"}), "flavour 'f': default_model_filename"),
        (given({"name": "f", "config": {"max_batch_size": 4}}), "config.max_batch_size"),
        (given({"name": "f", "file": "fast.onnx", "backend": "python"}), "can run code"),
        (given() | {"flavours.json": b"\xff"}, "not UTF-8"),
        (given(PLAN) | PLANS, "the plan was built for 10.13.2"),
    ],
)
async def test_flavours_that_are_wrong_are_not_published(
    scene: Scene, upload: dict[str, bytes], reason: str
) -> None:
    version = await scene.publish("m", upload)
    assert version.state is VersionState.FAILED
    assert reason in " ".join((version.reason, *version.findings))
