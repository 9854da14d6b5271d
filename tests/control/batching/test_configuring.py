"""Changes of configurations: brought to every replica, and taken back for every reason there is."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from builders import write_model
from control.batching.changing_scene import ADA, CONFIG, Scene
from control.versions_scene import version

from serve.control.batching.reconfiguration import ChangeOutcome, ChangeRequest, Phase
from serve.control.models import By
from serve.control.revision import CONFIGURATION
from serve.core.errors import CheckFailed, Conflict, Invalid, PreconditionFailed, UnknownVersion


def published(folder: Path, **more: Any) -> Scene:
    return Scene(folder, version("m", 1, config=CONFIG), **more)


def taken_back(scene: Scene, size: int) -> tuple[str, list[dict[str, Any]]]:
    """Why a change to batches of this size was taken back, and what the history says."""

    async def rows() -> Any:
        return await scene.plane.store.history(kind=CONFIGURATION, key="m")

    error, found = scene.play(scene.sized(size), rows)
    assert isinstance(error, Conflict) and "was rolled back" in error.what
    assert scene.decided == {}
    return error.why, found


@pytest.mark.parametrize("is_plain", [False, True])
def test_a_change_comes_to_one_replica_after_the_other(tmp_path: Path, is_plain: bool) -> None:
    scene = Scene(tmp_path, plain=CONFIG) if is_plain else published(tmp_path)
    assert scene.play(scene.sized(16)) == [None]
    assert scene.sizes == {"a": [8, 16], "b": [8, 16]}
    assert scene.decided == {"max_batch_size": 16}


def test_no_fields_give_back_what_a_version_came_with(tmp_path: Path) -> None:
    scene = published(tmp_path)
    assert scene.play(scene.sized(16), lambda: scene.set({})) == [None, None]
    assert scene.sizes == {"a": [8, 16, 8], "b": [8, 16, 8]}


def test_what_one_replica_cannot_load_is_taken_back_before_another_tries_it(tmp_path: Path) -> None:
    scene = published(tmp_path)
    for triton in scene.tritons.values():
        triton.refuses = {64}
    why, history = taken_back(scene, 64)
    assert "no memory for batches of 64" in why
    assert sorted(scene.sizes.values()) == [[8], [8, 64]]
    assert [row["author"] for row in history] == ["servegate", "ada"]
    assert history[0]["reason"].startswith("rolled back: replica ")


def test_what_answers_wrongly_is_taken_back_before_another_replica_has_it(tmp_path: Path) -> None:
    scene = published(tmp_path)
    scene.proof.wrong_with = {16}
    assert taken_back(scene, 16)[0].endswith(": version 1 returns wrong outputs: output 'y' is off")
    assert sorted(16 in sizes for sizes in scene.sizes.values()) == [False, True]


def test_what_a_replica_is_lost_of_is_taken_back_and_no_other_tries_it(tmp_path: Path) -> None:
    scene = published(tmp_path)
    for triton in scene.tritons.values():
        triton.dies_of = {64}
    assert "was lost during the load" in taken_back(scene, 64)[0]
    assert sorted(scene.sizes.values()) == [[8], [8, 64]]


def test_a_missed_objective_takes_a_change_back_to_the_one_before_it(tmp_path: Path) -> None:
    scene = published(tmp_path)

    async def slow() -> None:
        later = scene.wall.at + 20

        def pause() -> None:
            scene.gateway.slow = 50.0 if scene.wall.at > later else 0.0

        scene.wall.pauses = pause
        await scene.set({"max_batch_size": 32}, watch=60)

    _, first, error = scene.play(scene.promise("p99<50ms"), scene.sized(16), slow)
    assert first is None
    assert isinstance(error, Conflict)
    assert "p99<50ms was met before the change and is missed after it" in error.why
    assert scene.sizes == {"a": [8, 16, 32, 16], "b": [8, 16, 32, 16]}
    assert scene.decided == {"max_batch_size": 16}


def test_a_change_that_is_watched_and_is_good_stays(tmp_path: Path) -> None:
    scene = published(tmp_path)
    _, said = scene.play(scene.promise("p99<50ms"), scene.sized(16, watch=30))
    assert (said, scene.decided) == (None, {"max_batch_size": 16})


def test_with_few_calls_there_is_no_verdict_and_it_says_so(tmp_path: Path) -> None:
    scene = published(tmp_path)
    scene.gateway.step = 1.0

    async def outcome() -> Any:
        change = (await scene.configuring.show("m", 1)).change
        assert change is not None
        return change.outcome, change.told

    _, _, (ended, told) = scene.play(scene.promise("p99<50ms"), scene.sized(16, watch=10), outcome)
    assert ended is ChangeOutcome.APPLIED and told.startswith("too few calls")


OUTSIDE = {"data_type": "TYPE_FP32", "dims": [4], "input_data_file": "../../secret"}


def test_what_is_wrong_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    refused = (
        ({"backend": "python"}, Invalid),
        ({"max_batch_size": "many"}, Invalid),
        ({"dynamic_batching": {"preferred_batch_size": [64]}}, CheckFailed),
        ({"model_warmup": [{"name": "w", "batch_size": 1, "inputs": {"x": OUTSIDE}}]}, Invalid),
    )
    scene = published(tmp_path)
    errors = scene.play(*(partial(scene.set, fields) for fields, _ in refused))
    for error, (fields, kind) in zip(errors, refused, strict=True):
        assert isinstance(error, kind), fields
    assert (scene.decided, scene.sizes["a"]) == (None, [8])


def test_what_was_changed_since_or_never_was_cannot_be_changed(tmp_path: Path) -> None:
    scene = published(tmp_path)
    stale = By("eve", "", '"0"')
    _, changed, absent = scene.play(
        scene.sized(16), lambda: scene.set({}, stale), lambda: scene.configuring.show("m", 7)
    )
    assert isinstance(changed, PreconditionFailed)
    assert isinstance(absent, UnknownVersion)


def test_a_dry_run_tells_what_would_be_and_writes_nothing(tmp_path: Path) -> None:
    scene = published(tmp_path)
    (found,) = scene.play(lambda: scene.configuring.preview("m", 1, {"max_batch_size": 16}, ADA))
    assert (found.served.name, scene.decided, scene.sizes["a"]) == ("m", None, [8])


def test_a_rollback_gives_back_the_fields_of_a_revision(tmp_path: Path) -> None:
    scene = published(tmp_path)
    body = {"fields": {"max_batch_size": 4}, "group": "0" * 64}
    foreign = {**body, "group": "1" * 64}
    _, written, refused, emptied = scene.play(
        scene.sized(16),
        lambda: scene.configuring.restore("m", body, ADA),
        lambda: scene.configuring.restore("m", foreign, ADA),
        lambda: scene.configuring.restore("m", None, ADA),
    )
    assert written.etag != emptied.etag
    assert isinstance(refused, Invalid) and "the name of other versions" in str(refused)
    assert scene.sizes["a"] == [8, 16, 4, 8]


def test_a_change_that_is_watched_is_replaced_by_a_later_one(tmp_path: Path) -> None:
    scene = published(tmp_path)

    async def twice() -> Any:
        wish = ChangeRequest({"max_batch_size": 16}, ADA, watch=1e9)
        await scene.configuring.set("m", 1, wish, wait=False)
        first = (await scene.configuring.show("m", 1)).change
        assert first is not None
        while first.phase is not Phase.WATCHING:
            await scene.looked()
        await scene.set({"max_batch_size": 32})
        await first.ended.wait()
        return first.outcome

    assert scene.play(twice) == [ChangeOutcome.REPLACED]
    assert scene.sizes["a"] == [8, 16, 32]


def test_an_ensemble_is_looked_at_with_the_models_that_it_is_made_of(tmp_path: Path) -> None:
    step = (
        'platform: "ensemble"\n'
        'input { name: "x" data_type: TYPE_FP32 dims: [ 3 ] }\n'
        'output { name: "y" data_type: TYPE_FP32 dims: [ 3 ] }\n'
        'ensemble_scheduling { step { model_name: "m" model_version: 1 '
        'input_map { key: "x" value: "x" } output_map { key: "y" value: "y" } } }\n'
    )
    scene = Scene(tmp_path, plain=CONFIG)
    write_model(scene.plane.repository, "whole", 1, config=step)
    shown = scene.play(lambda: scene.configuring.show("whole", 1))[0]
    assert "step-unknown" not in {one.rule for one in shown.findings}
