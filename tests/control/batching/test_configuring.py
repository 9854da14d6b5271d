"""Changes of configurations: brought to every replica, and taken back for every reason there is."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from builders import write_model
from control.batching.changing_scene import ADA, CONFIG, Proof, Scene, Triton
from control.versions_scene import version

from serve.control.batching.reconfiguration import ChangeOutcome, ChangeRequest, Phase
from serve.control.models import By
from serve.control.revision import CONFIGURATION
from serve.control.storage.store import StoreEdit
from serve.control.versions import PublishedVersion
from serve.core.errors import (
    CheckFailed,
    Conflict,
    Invalid,
    PreconditionFailed,
    TritonFailed,
    UnknownVersion,
)
from serve.core.replicas import Replica


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """Version 1 of `m` is published."""
    return Scene(tmp_path, version("m", 1, config=CONFIG))


@pytest.mark.parametrize("is_plain", [False, True])
def test_a_change_comes_to_one_replica_after_the_other(tmp_path: Path, is_plain: bool) -> None:
    versions = [] if is_plain else [version("m", 1, config=CONFIG)]
    scene = Scene(tmp_path, *versions, plain=CONFIG if is_plain else "")
    assert scene.play(scene.sized(16)) == [None]
    assert scene.sizes == {"a": [8, 16], "b": [8, 16]}
    assert scene.decided == {"max_batch_size": 16}


def test_no_fields_give_back_what_a_version_came_with(scene: Scene) -> None:
    assert scene.play(scene.sized(16), lambda: scene.set({})) == [None, None]
    assert scene.sizes == {"a": [8, 16, 8], "b": [8, 16, 8]}


@pytest.mark.parametrize(
    ("fault", "why", "loaded"),
    [
        ("refuses", "no memory for batches of 64", [8, 64]),
        ("dies_of", "was lost during the load", [8, 64]),
        ("wrong_with", ": version 1 returns wrong outputs: output 'y' is off", [8, 64, 8]),
    ],
)
def test_what_one_replica_cannot_run_is_taken_back_before_another_tries_it(
    scene: Scene, fault: str, why: str, loaded: list[int]
) -> None:
    for one in [scene.proof] if fault == "wrong_with" else scene.tritons.values():
        getattr(one, fault).add(64)

    async def rows() -> Any:
        return await scene.plane.store.history(kind=CONFIGURATION, key="m")

    error, history = scene.play(scene.sized(64), rows)
    assert isinstance(error, Conflict) and "was rolled back" in error.what
    assert why in error.why
    assert scene.decided == {}
    assert sorted(scene.sizes.values()) == [[8], loaded]
    assert [row["author"] for row in history] == ["servegate", "ada"]
    assert history[0]["reason"].startswith("rolled back: replica ")


def test_a_missed_objective_takes_a_change_back_to_the_one_before_it(scene: Scene) -> None:
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


@pytest.mark.parametrize(("calls", "told"), [(100.0, "p99<50ms is met"), (1.0, "too few calls")])
def test_a_change_that_is_watched_stays_unless_there_is_something_against_it(
    scene: Scene, calls: float, told: str
) -> None:
    scene.gateway.step = calls

    async def outcome() -> Any:
        change = (await scene.configuring.show("m", 1)).change
        assert change is not None
        return change.outcome, change.told

    _, said, (ended, why) = scene.play(
        scene.promise("p99<50ms"), scene.sized(16, watch=30), outcome
    )
    assert (said, scene.decided) == (None, {"max_batch_size": 16})
    assert ended is ChangeOutcome.APPLIED and why.startswith(told)


OUTSIDE = {"data_type": "TYPE_FP32", "dims": [4], "input_data_file": "../../secret"}


def test_what_is_wrong_is_refused_and_nothing_is_written(scene: Scene) -> None:
    refused = (
        ({"backend": "python"}, Invalid),
        ({"max_batch_size": "many"}, Invalid),
        ({"dynamic_batching": {"preferred_batch_size": [64]}}, CheckFailed),
        ({"model_warmup": [{"name": "w", "batch_size": 1, "inputs": {"x": OUTSIDE}}]}, Invalid),
    )
    errors = scene.play(*(partial(scene.set, fields) for fields, _ in refused))
    for error, (fields, kind) in zip(errors, refused, strict=True):
        assert isinstance(error, kind), fields
    assert (scene.decided, scene.sizes["a"]) == (None, [8])


def test_what_was_changed_since_or_never_was_cannot_be_changed(scene: Scene) -> None:
    stale = By("eve", "", '"0"')
    _, changed, absent = scene.play(
        scene.sized(16), lambda: scene.set({}, stale), lambda: scene.configuring.show("m", 7)
    )
    assert isinstance(changed, PreconditionFailed)
    assert isinstance(absent, UnknownVersion)


def test_a_dry_run_tells_what_would_be_and_writes_nothing(scene: Scene) -> None:
    (found,) = scene.play(lambda: scene.configuring.preview("m", 1, {"max_batch_size": 16}, ADA))
    assert (found.served.name, scene.decided, scene.sizes["a"]) == ("m", None, [8])


def test_a_rollback_gives_back_the_fields_of_a_revision(scene: Scene) -> None:
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


def test_a_change_that_is_watched_is_replaced_by_a_later_one(scene: Scene) -> None:
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


# --- calls go on meanwhile -----------------------------------------------------------------------


class Looking(Proof):
    """Publishes what may be called while it verifies, and remembers where calls could go."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene.tritons)
        self._scene = scene
        self.called: list[tuple[str, tuple[str, ...]]] = []

    async def verify(self, replica: Replica, version: PublishedVersion) -> str:
        await self._scene.plane.publisher.refresh()
        targets = self._scene.plane.publisher.snapshot.models["m"].targets
        self.called.append((replica.name, targets[1].replicas if 1 in targets else ()))
        return await super().verify(replica, version)


def looked(folder: Path, replicas: str) -> tuple[Scene, Looking]:
    scene = Scene(folder, version("m", 1, config=CONFIG), replicas=replicas)
    proof = Looking(scene)
    scene.use(proof)
    return scene, proof


def test_an_only_replica_is_called_while_what_it_has_loaded_is_proven(tmp_path: Path) -> None:
    scene, proof = looked(tmp_path, "a")
    proof.wrong_with = {32}
    said, error = scene.play(scene.sized(16), scene.sized(32))
    never_proven, changed, *_ = proof.called
    assert (said, never_proven, changed) == (None, ("a", ()), ("a", ("a",)))
    assert isinstance(error, Conflict)  # it is called again when it is as before
    assert scene.plane.publisher.snapshot.models["m"].targets[1].replicas == ("a",)


def test_where_another_replica_can_be_called_it_is(tmp_path: Path) -> None:
    scene, proof = looked(tmp_path, "ab")
    assert scene.play(scene.sized(16)) == [None]
    assert proof.called[0] == ("a", ())  # what was never proven is not called
    assert sorted(proof.called[-2:]) == [("a", ("b",)), ("b", ("a",))]


# --- what has several flavours -------------------------------------------------------------------

FAST = json.dumps({"format": 1, "flavours": [{"name": "fast", "file": "fast.onnx"}]})


class Particular(Triton):
    """One in which the fast file takes no large batches."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[tuple[str, int]] = []

    async def load(self, model: str, config: str | None) -> None:
        page = json.loads(config or "{}")
        file, size = page.get("default_model_filename", "base"), page["max_batch_size"]
        self.loaded.append((file, size))
        if file == "fast.onnx" and size > 16:
            raise TritonFailed("it takes no batches of this size")
        await super().load(model, config)


def test_a_change_goes_below_the_flavour_that_a_replica_runs_and_is_taken_back_if_it_costs_that(
    tmp_path: Path,
) -> None:
    triton, one = Particular(), version("m", 1, config=CONFIG, flavours=FAST)
    scene = Scene(tmp_path, one, tritons={"a": triton}, replicas="a")
    said, error = scene.play(scene.sized(16), scene.sized(64))
    assert said is None
    assert isinstance(error, Conflict)
    assert "it cannot run as flavour 'fast': it takes no batches of this size" in error.why
    assert triton.loaded[:3] == [("fast.onnx", 8), ("fast.onnx", 16), ("fast.onnx", 64)]
    assert triton.loaded[-1] == ("fast.onnx", 16)


# --- a control plane that starts anew ------------------------------------------------------------

GROUP = "0" * 64


@pytest.fixture
def anew(tmp_path: Path, scene: Scene) -> Scene:
    """The next control plane, on the Tritons of one that has changed a configuration, and ended."""
    assert scene.play(scene.sized(16)) == [None]
    scene.plane.store.close()
    anew = Scene(tmp_path, tritons=scene.tritons)
    anew.delivery.there = {("m", 1)}
    return anew


def written(fields: dict[str, object], **more: object) -> StoreEdit:
    return StoreEdit(CONFIGURATION, "m", {"fields": fields, "group": GROUP, **more}, "eve")


async def settled(scene: Scene) -> None:
    """Until every replica is as it should be."""
    while not all(keeper.is_as_wanted("m") for keeper in scene.keepers):
        await scene.looked()


@pytest.mark.parametrize(("fields", "loaded"), [({"max_batch_size": 16}, []), ({}, [8])])
def test_what_is_applied_is_not_loaded_anew_and_what_is_not_is(
    anew: Scene, fields: dict[str, object], loaded: list[int]
) -> None:
    """The second was written while nobody was there to apply it."""
    anew.before = lambda: anew.plane.store.apply(written(fields))
    anew.play(lambda: settled(anew))
    assert anew.sizes == {"a": [8, 16, *loaded], "b": [8, 16, *loaded]}


def test_a_change_whose_watch_is_not_over_is_watched_on_and_taken_back(anew: Scene) -> None:
    watch = {"until": anew.wall.at + 60, "calls": 1000, "slow": 0, "errors": 0}
    anew.before = lambda: anew.plane.store.apply(written({"max_batch_size": 32}, watch=watch))
    anew.gateway.failed = 50.0

    async def outcome() -> ChangeOutcome | None:
        change = None
        while change is None:
            change = (await anew.configuring.show("m", 1)).change
            await anew.looked()
        await change.ended.wait()
        return change.outcome

    assert anew.play(outcome) == [ChangeOutcome.TAKEN_BACK]
    assert anew.sizes == {"a": [8, 16, 32, 16], "b": [8, 16, 32, 16]}


def test_a_replica_that_comes_back_with_what_is_on_its_disk_is_asked_again(scene: Scene) -> None:
    triton = scene.tritons["a"]

    async def away() -> None:
        triton.is_up = False
        while scene.plane.fleet.observations["a"].is_up:
            await scene.looked()
        triton.running["m"] = '{"backend": "onnxruntime", "max_batch_size": 8}'
        triton.is_up = True
        while not scene.plane.fleet.observations["a"].is_up:
            await scene.looked()
        await settled(scene)

    scene.play(
        lambda: scene.configuring.set("m", 1, ChangeRequest({"max_batch_size": 16}, ADA)), away
    )
    assert scene.sizes == {"a": [8, 16, 16], "b": [8, 16]}
