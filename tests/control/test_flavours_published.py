"""Publishing a version with flavours: checked, tried as far as the machine goes, and recorded."""

import json
from pathlib import Path
from typing import Any

import pytest

from serve.control.publishing.trials import NO_FORM
from serve.control.versions import Version
from serve.core.errors import TrialFailed
from serve.core.flavours import BASE, UNKNOWN, Machine
from serve.core.versions import State

from .publishing import Scene, files, play

GPU = Machine(gpu=True)
FAST = {"name": "fast", "file": "fast.onnx", "needs": {"gpu": True}}


def given(*flavours: dict[str, Any], **more: Any) -> dict[str, bytes]:
    page = {"format": 1, "flavours": list(flavours or (FAST,)), **more}
    return files() | {"1/fast.onnx": b"a faster one", "flavours.json": json.dumps(page).encode()}


def published(scene: Scene, upload: dict[str, bytes]) -> Version:
    async def run() -> Version:
        return await scene.publish("m", upload)

    return play(scene, run)


def forms(scene: Scene) -> list[str]:
    """The model files that quarantine was told to load, one Triton after the other."""
    orders = [json.loads(order.config_json) for (order,) in scene.quarantine.orders]
    return [config.get("default_model_filename", BASE) for config in orders]


def test_flavours_are_recorded_with_the_version_and_stay_hidden_from_triton(
    tmp_path: Path,
) -> None:
    scene = Scene(tmp_path)
    version = published(scene, given())
    assert version.is_published, version.reason
    assert [one.name for one in version.forms.candidates] == ["fast", BASE]
    assert scene.quarantine.trees == [["m/1/fast.onnx", "m/1/model.onnx", "m/config.pbtxt"]]


def test_another_order_of_flavours_is_another_name_in_triton(tmp_path: Path) -> None:
    scene, other = Scene(tmp_path), {"name": "other", "needs": {"gpu": True}}

    async def run() -> None:
        plain = await scene.publish("m", files(b"plain"))
        first = await scene.publish("m", given(FAST, other))
        again = await scene.publish("m", given(FAST, other, base=True) | {"1/more": b""})
        second = await scene.publish("m", given(other, FAST))
        assert (plain.physical, first.physical) == ("m", again.physical)
        assert len({plain.physical, first.physical, second.physical}) == 3

    play(scene, run)


@pytest.mark.parametrize(("machine", "tried"), [(UNKNOWN, [BASE]), (GPU, [BASE, "fast.onnx"])])
def test_quarantine_tries_the_flavours_that_its_machine_can_run(
    tmp_path: Path, machine: Machine, tried: list[str]
) -> None:
    scene = Scene(tmp_path, machine=machine)
    assert published(scene, given()).is_published
    assert forms(scene) == tried


def test_a_version_of_which_quarantine_can_run_nothing_says_that_it_was_not_tried(
    tmp_path: Path,
) -> None:
    scene = Scene(tmp_path)
    version = published(scene, given(base=False))
    assert version.is_published and NO_FORM in version.findings
    assert (forms(scene), version.memory) == ([], None)


def test_a_flavour_that_fails_in_quarantine_is_named(tmp_path: Path) -> None:
    scene = Scene(tmp_path, machine=GPU)
    scene.quarantine.fails = TrialFailed("it did not load", why="no kernel")
    version = published(scene, given(base=False))
    assert version.state is State.FAILED
    assert version.reason == "as flavour 'fast': it did not load: no kernel"


@pytest.mark.parametrize(
    ("upload", "reason"),
    [
        (given({"name": "f", "colour": "red"}), "flavours-malformed"),
        (given({"name": "f", "file": "none.onnx"}), "flavour 'f': default_model_filename"),
        (given({"name": "f", "config": {"max_batch_size": 4}}), "config.max_batch_size"),
        (given({"name": "f", "file": "fast.onnx", "backend": "python"}), "runs more than data"),
        (given() | {"flavours.json": b"\xff"}, "not UTF-8"),
    ],
)
def test_flavours_that_are_wrong_are_not_published(
    tmp_path: Path, upload: dict[str, bytes], reason: str
) -> None:
    version = published(Scene(tmp_path), upload)
    assert version.state is State.FAILED
    assert reason in " ".join((version.reason, *version.findings))


def test_a_plan_that_was_built_for_other_machines_is_not_published(tmp_path: Path) -> None:
    plan = {"name": "p", "file": "p.plan", "backend": "tensorrt", "needs": {"tensorrt": ["9.9"]}}
    recorded = {"format": 1, "plans": {"p": {"tensorrt": "10.13.2"}}}
    upload = given(plan) | {"1/p.plan": b"", "plans.json": json.dumps(recorded).encode()}
    version = published(Scene(tmp_path), upload)
    assert "the plan is built for 10.13.2" in " ".join((version.reason, *version.findings))
