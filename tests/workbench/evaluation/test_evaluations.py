"""Evaluations: runs over rows through a gateway that is scripted, stopped and resumed."""

import asyncio

import pytest
from evaluating_scene import ROWS, Scene, Scripted, evaluating, three
from loops import in_loop

from serve.control.artifacts.folder import FolderObjects
from serve.core.errors import Conflict, Invalid, NotFound, Unavailable, UnknownLabel
from serve.tensors.metadata import TensorSpec
from serve.workbench.evaluation.evaluation import EvaluationRequest, EvaluationState, spread
from serve.workbench.evaluation.records import Keeping
from serve.workbench.evaluation.results import Bucket

GATES = ("accuracy(b)>=0.95", "agreement>=0.5", "drop<=20pp")


async def numbers(scene, identity):
    """What does not depend on how long things took."""
    report = await scene.evaluations.report(identity)
    _, results = await scene.evaluations.results(identity)
    told = [(one.row, one.label, one.a.predicted, one.b.predicted) for one in results]
    page = {name: report[name] for name in ("buckets", "compared", "confusion", "classes")}
    return page, told


@in_loop
async def test_two_versions_are_evaluated_on_the_same_rows(tmp_path):
    async with evaluating(tmp_path) as scene:
        ended = await scene.evaluate(a="1", b="2", gates=GATES)
        report = await scene.evaluations.report(ended.id)
        _, results = await scene.evaluations.results(ended.id)
    wrong = [n for n in range(ROWS) if n % 7 == 0 and n % 3]
    assert ended.state is EvaluationState.DONE
    assert (ended.done, ended.total, ended.failed) == (ROWS, ROWS, 0)
    assert report["buckets"] == {"both-right": ROWS - len(wrong), "only-a": len(wrong)}
    assert [one.row for one in results if one.bucket(ended.kind) is Bucket.ONLY_A] == wrong
    assert report["a"]["accuracy"]["value"] == 1.0
    assert report["b"]["accuracy"]["value"] == 1 - len(wrong) / ROWS
    assert report["b"]["ece"] is not None
    assert report["a"]["latency"]["p50"] == pytest.approx(2.0)
    assert [gate["passed"] for gate in report["gates"]] == [False, True, True]
    assert ended.passed is False
    assert len(scene.gateway.calls) == 2 * ROWS + 2  # one call of each that is not counted
    slices = [(one["name"], one["value"], one["rows"]) for one in report["slices"]]
    assert slices == [("half", "first", 30), ("half", "second", 30)]


@in_loop
async def test_which_side_is_asked_first_alternates_and_one_side_has_no_comparison(tmp_path):
    async with evaluating(tmp_path) as scene:
        await scene.evaluate(a="1", b="2", concurrency=1)
        asked = [selector for selector, _ in scene.gateway.calls[2:10]]
        ended = await scene.evaluate(a="2")
        report = await scene.evaluations.report(ended.id)
    assert asked == ["1", "2", "2", "1", "1", "2", "2", "1"]
    assert (ended.version_a, ended.version_b) == (2, None)
    assert (report["b"], report["compared"]) == (None, None)
    assert set(report["buckets"]) == {"right", "wrong"}


@in_loop
async def test_rows_go_together_in_batches_and_a_bad_one_fails_alone(tmp_path):
    async with evaluating(tmp_path) as scene:
        scene.gateway.broken = {10}
        ended = await scene.evaluate(a="1", b="2", batch=8, concurrency=1)
        _, results = await scene.evaluations.results(ended.id)
    assert (ended.state, ended.done, ended.failed) == (EvaluationState.DONE, ROWS, 1)
    assert [one.row for one in results if one.has_failed] == [10]
    assert "this row breaks the model" in results[10].b.error
    assert results[10].a.predicted == "1"
    assert ("1", 8) in scene.gateway.calls
    assert scene.gateway.calls.count(("2", 1)) == 8 + 1


@in_loop
async def test_more_rows_in_a_call_than_the_version_takes_are_refused(tmp_path):
    async with evaluating(tmp_path) as scene:
        with pytest.raises(Invalid, match="accepts at most 16 rows per call"):
            await scene.evaluate(a="1", batch=17)
        assert (await scene.evaluate(a="1", batch=16)).state is EvaluationState.DONE


@in_loop
async def test_rows_that_failed_are_asked_again_on_resume(tmp_path):
    async with evaluating(tmp_path) as scene:
        scene.gateway.broken = {10, 11}
        first = await scene.evaluate(a="1", b="2", gates=("failed(b)<=0",))
        scene.gateway.broken, scene.gateway.calls = set(), []
        await scene.evaluations.resume(first.id)
        last = await scene.ended(first.id)
        with pytest.raises(Conflict, match="every row has a result"):
            await scene.evaluations.resume(first.id)
    assert (first.failed, first.passed) == (2, False)
    assert (last.state, last.failed, last.passed) == (EvaluationState.DONE, 0, True)
    assert len(scene.gateway.calls) == 2 * 2 + 2


async def held(scene):
    """An evaluation that has begun and whose calls are held back."""
    scene.gateway.gate.clear()
    scene.gateway.hold_after = 40
    begun = await scene.evaluations.begin(EvaluationRequest("m", "three", "1", "2"), "ann")
    await scene.gateway.reached.wait()
    return begun


@in_loop
async def test_a_cancelled_evaluation_goes_on_to_the_same_numbers(tmp_path):
    async with evaluating(tmp_path) as scene:
        gateway, begun = scene.gateway, await held(scene)
        stopping = asyncio.create_task(scene.evaluations.cancel(begun.id))
        await asyncio.sleep(0)
        gateway.gate.set()
        stopped = await stopping
        assert (stopped.state, await scene.evaluations.cancel(begun.id)) == ("cancelled", stopped)
        assert 0 < stopped.done < ROWS
        before = len(gateway.calls)
        await scene.evaluations.resume(begun.id)
        assert (await scene.ended(begun.id)).state is EvaluationState.DONE
        assert len(gateway.calls) - before == 2 * (ROWS - stopped.done) + 2
        whole = await scene.evaluate(a="1", b="2")
        assert await numbers(scene, begun.id) == await numbers(scene, whole.id)


@in_loop
async def test_a_stopped_control_plane_leaves_it_interrupted_with_its_rows(tmp_path):
    async with evaluating(tmp_path) as scene:
        await held(scene)
    keeping = Keeping(FolderObjects(tmp_path / "storage"))
    (one,) = await keeping.all()
    results, _ = await keeping.results(one.id)
    assert one.state is EvaluationState.INTERRUPTED
    assert 0 < len(results) == one.done < ROWS


@in_loop
async def test_what_ran_when_the_process_was_killed_is_interrupted(tmp_path):
    killed = await Scene(tmp_path).begin()
    begun = await killed.evaluations.begin(EvaluationRequest("m", "three", "1"), "ann")
    await Keeping(killed.objects).write(begun.changed(state=EvaluationState.RUNNING))
    killed.start()
    async with killed.working() as scene:
        assert (await scene.evaluations.get(begun.id)).state is EvaluationState.INTERRUPTED
        await scene.evaluations.resume(begun.id)
        assert (await scene.ended(begun.id)).state is EvaluationState.DONE


@in_loop
async def test_one_runs_and_others_wait(tmp_path):
    async with evaluating(tmp_path) as scene:
        scene.gateway.gate.clear()
        scene.gateway.hold_after = 1
        first = await scene.evaluations.begin(EvaluationRequest("m", "three", "1"), "ann")
        second = await scene.evaluations.begin(EvaluationRequest("m", "three", "2"), "ann")
        await scene.gateway.reached.wait()
        states = [one.state for one in await scene.evaluations.all()]
        with pytest.raises(Conflict, match="its state is 'running'"):
            await scene.evaluations.remove(first.id)
        cancelled = await scene.evaluations.cancel(second.id)
        scene.gateway.gate.set()
        first = await scene.ended(first.id)
    assert states == [EvaluationState.RUNNING, EvaluationState.QUEUED]
    assert (cancelled.state, cancelled.done) == (EvaluationState.CANCELLED, 0)
    assert first.state is EvaluationState.DONE


@in_loop
async def test_a_gateway_that_answers_nothing_ends_it(tmp_path):
    async with evaluating(tmp_path) as scene:
        await scene.datasets.add("many", three(300), source="test", author="ann")
        scene.gateway.error = Unavailable("nobody is there")
        begun = await scene.evaluations.begin(EvaluationRequest("m", "many", "1"), "ann")
        ended = await scene.ended(begun.id)
        assert len(scene.gateway.calls) < 120
        scene.gateway.error = None
        await scene.evaluations.resume(begun.id)
        resumed = await scene.ended(begun.id)
    assert ended.state is EvaluationState.FAILED
    assert "nobody is there" in ended.why
    assert (resumed.state, resumed.failed, resumed.why) == (EvaluationState.DONE, 0, "")


@in_loop
async def test_an_evaluation_is_of_one_revision(tmp_path):
    async with evaluating(tmp_path) as scene:
        first = await scene.evaluate(a="1")
        await scene.datasets.add("three", three(9), source="test", author="ann")
        second = await scene.evaluate(a="1")
        scene.gateway.broken = {1}
        third = await scene.evaluate(a="2")
        await scene.datasets.remove("three")
        with pytest.raises(Conflict, match="was deleted"):
            await scene.evaluations.resume(third.id)
        (_, results) = await scene.evaluations.results(first.id)
    assert (first.request.revision, second.request.revision) == (1, 2)
    assert (second.total, len(results)) == (9, ROWS)


@in_loop
async def test_what_cannot_be_evaluated_is_refused_at_once(tmp_path):
    async with evaluating(tmp_path) as scene:
        for asked, error, word in (
            ({"a": "9"}, NotFound, "version 9"),
            ({"a": "stable"}, UnknownLabel, "stable"),
            ({"a": "3"}, Conflict, "not ready"),
            ({"a": "1", "gates": ("agreement>0.5",)}, Invalid, "the metrics are"),
            ({"a": "1", "output": "other"}, Invalid, "its outputs are scores"),
            ({"a": "1", "revision": 7}, NotFound, "revision 7"),
        ):
            with pytest.raises(error, match=word):
                await scene.evaluations.begin(EvaluationRequest("m", "three", **asked), "ann")
        scene.gateway.outputs = {"scores": TensorSpec("scores", "FP32", (-1, 2))}
        with pytest.raises(Invalid, match="the label '2' is not a class"):
            await scene.evaluations.begin(EvaluationRequest("m", "three", "1"), "ann")
        assert await scene.evaluations.all() == ()


@in_loop
async def test_rows_can_be_limited_and_are_spread_evenly_and_a_removed_evaluation_is_gone(tmp_path):
    async with evaluating(tmp_path) as scene:
        ended = await scene.evaluate(a="1", limit=6)
        _, results = await scene.evaluations.results(ended.id)
        assert [one.row for one in results] == [0, 10, 20, 30, 40, 50]
        await scene.evaluations.remove(ended.id)
        with pytest.raises(NotFound, match="there is no evaluation"):
            await scene.evaluations.get(ended.id)
    assert not list((tmp_path / "storage/evaluations").rglob("line.json"))
    assert spread(3, 7) == [0, 1, 2]


@in_loop
async def test_a_fault_of_ours_fails_the_one_and_not_the_others(tmp_path):
    class Broken(Scripted):
        async def infer(self, *words, **options):
            if not self.calls:
                self.calls.append(("", 0))
                raise ZeroDivisionError("a fault")
            return await super().infer(*words, **options)

    async with evaluating(tmp_path, gateway=Broken()) as scene:
        failed, done = await scene.evaluate(a="1"), await scene.evaluate(a="1")
    assert (failed.state, done.state) == (EvaluationState.FAILED, EvaluationState.DONE)
    assert "internal error" in failed.why
