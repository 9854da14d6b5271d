"""The overview of a version: what holds, what was seen, and what may be wrong."""

import asyncio
from pathlib import Path

import pytest
from builders import ControlPlane, replica, write_model
from control.batching.watched import CONFIG, OFF, Scene, decide, plain
from control.publishing import Scene as Publishing
from control.publishing import files, play

from serve.control.batching.hints import BEGINS
from serve.control.inventory import Inventory
from serve.control.models import Models
from serve.core.errors import UnknownModel, UnknownVersion
from serve.triton.config import parse

THREE = "instance_group { count: 3 kind: KIND_CPU }"


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return plain(tmp_path)


def test_a_plain_version_is_told_with_what_it_did(scene: Scene) -> None:
    found = scene.show()
    assert (found.window.counted.calls, found.service, found.advice) == (0, None, ())
    assert "max_batch_size: 8" in found.config
    assert scene.refreshed == 1  # everybody is read again for whoever wants to see
    scene.look({1: (100, 5), 4: (100, 8)}, queue=2)
    found = scene.show()
    assert (found.name, found.replicas, found.shared_with) == ("m", ("a",), (2,))
    assert found.window.counted.calls == 500
    assert found.situation.asked == "m@1"
    assert found.situation.setup.max_batch_size == 8
    assert found.service is not None
    assert found.service.time(4) == pytest.approx(0.008)
    assert (found.advice, found.hints, found.parts) == ((), (), None)


def test_advice_is_given_on_what_was_seen(tmp_path: Path) -> None:
    scene = plain(tmp_path, config=OFF)
    scene.look({1: (3000, 10)}, queue=20)
    (advice,) = scene.show().advice
    assert (advice.rule, advice.fix) == ("batching-off", "servegate batching set m@1 --on")


def test_a_triton_tells_how_many_instances_there_are(scene: Scene) -> None:
    scene.configurations["a"] = parse(CONFIG + THREE)
    found = scene.show()
    assert (found.is_told, found.situation.setup.instances) == (True, 3)
    assert scene.asked == [("a", "m")]
    assert "instance_group" not in found.config  # which nobody has decided


def test_a_version_without_a_configuration_is_told_as_triton_completed_it(tmp_path: Path) -> None:
    scene = plain(tmp_path, config=None)
    assert (scene.show().configuration, scene.show().config) == (None, "")
    scene.configurations["a"] = parse(CONFIG + THREE)
    assert scene.show().situation.setup.batches
    assert "instance_group" in scene.show().config
    completed = "max_batch_size: 8 dynamic_batching { preferred_batch_size: 8 }"
    scene.configurations["a"] = parse(completed)
    assert scene.show().situation.setup.preferred == ()  # which nobody has decided


def test_a_version_that_has_forms_is_told_as_a_replica_runs_it(tmp_path: Path) -> None:
    made = ControlPlane(tmp_path, replicas=[replica("a")])
    folder = write_model(made.repository, "m", 1, config=CONFIG)
    (folder / "flavours.json").write_text(
        '{"format": 1, "base": true, "flavours": [{"name": "fast", "file": "fast.onnx"}]}'
    )
    scene = Scene(asyncio.run(made.begin(a={"m": (1,)})))
    assert scene.show().situation.setup.max_batch_size == 8
    scene.configurations["a"] = parse("max_batch_size: 32 dynamic_batching { }")
    assert scene.show().situation.setup.max_batch_size == 32


def discovered(folder: Path) -> Scene:
    """Without a repository: what replica `a` holds is what exists."""
    made = ControlPlane(folder, replicas=[replica("a")])
    made.inventory = Inventory(None, made.fleet, decisions=lambda: made.decisions)
    made.models = Models(
        *(made.store, made.inventory, made.fleet, made.publisher, made.steering),
        decisions=lambda: made.decisions,
        reload=made.reload,
    )
    return Scene(asyncio.run(made.begin(a={"m": (1,)})))


def test_what_a_replica_holds_by_itself_is_told_as_the_replica_tells_it(tmp_path: Path) -> None:
    scene = discovered(tmp_path)
    assert scene.show().configuration is None
    scene.configurations["a"] = parse(CONFIG + THREE)
    scene.look({8: (100, 12)})
    found = scene.show()
    assert (found.name, found.replicas, found.is_told) == ("m", ("a",), True)
    assert (found.window.counted.calls, found.situation.setup.instances) == (800, 3)


def test_a_version_that_no_replica_holds_is_told_with_the_reason_and_others_are_unknown(
    scene: Scene,
) -> None:
    found = scene.show(number=2)
    assert (found.replicas, found.is_told) == ((), False)
    assert found.reason
    with pytest.raises(UnknownVersion):
        scene.show(number=9)
    with pytest.raises(UnknownModel):
        scene.show("x")


def test_what_people_have_changed_holds_and_is_named(scene: Scene) -> None:
    decide(scene.plane, "m", {"fields": {"max_batch_size": 16}, "group": ""})
    found = scene.show()
    assert found.situation.setup.max_batch_size == 16
    assert dict(found.revised.fields) == {"max_batch_size": 16}


def test_a_published_version_is_found_under_its_name_in_triton(tmp_path: Path) -> None:
    publishing = Publishing(tmp_path)
    play(publishing, lambda: publishing.publish("m", files()))
    found = Scene(publishing.plane).show()
    assert (found.name, found.shared_with) == ("m", ())
    assert found.situation.setup.max_batch_size == 8


@pytest.mark.parametrize(
    ("group", "why"),
    [("", ["a replica gets 10 calls/s, and it was tuned for up to 2"]), ("other", [])],
    ids=["a tuning of this group", "a tuning that was meant for another group"],
)
def test_calls_that_left_what_was_tuned_for_are_hinted_at(
    scene: Scene, group: str, why: list[str]
) -> None:
    decide(scene.plane, "m", {"fields": {}, "group": group, "tuned": {"rate": 2.0}})
    scene.look({1: (1000, 5)})
    for _ in range(BEGINS):
        scene.overviews.judge()
    assert [hint.why for hint in scene.show().hints] == why


def test_an_ensemble_is_told_with_its_steps(tmp_path: Path) -> None:
    made = ControlPlane(tmp_path, replicas=[replica("a")])
    write_model(made.repository, "m", 1, config=CONFIG)
    whole = (
        'platform: "ensemble" max_batch_size: 8 '
        'ensemble_scheduling { step { model_name: "m" model_version: -1 } }'
    )
    write_model(made.repository, "both", 1, config=whole)
    scene = Scene(asyncio.run(made.begin(a={"m": (1,), "both": (1,)})))
    scene.look({1: (200, 5)})
    found = scene.show("both")
    assert found.parts is not None
    (step,) = found.parts.steps
    assert (step.asked, step.calls) == ("m@1", 200)
    assert found.advice == ()
