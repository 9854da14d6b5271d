"""Conversion jobs: from an upload to a version, over cancellations, faults and restarts."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest
from builders import until
from control.conversions.converting import GOOD, HANGS, Jobbing
from control.publishing import ADA, files

from serve.control.conversions.conversions import MOST_WAITING
from serve.control.conversions.job import Asked, JobState, needed_blobs, needed_uploads
from serve.control.conversions.jobs import KEPT
from serve.control.models import By
from serve.control.publishing.garbage import Heap
from serve.control.publishing.publications import Ask
from serve.control.uploading.upload import Kind
from serve.conversion.request import Request
from serve.core.errors import (
    Conflict,
    Invalid,
    NoSpace,
    NotFound,
    NotServed,
    TrialFailed,
    Unavailable,
    UnknownConversion,
    UnknownUpload,
)
from serve.core.versions import State

T = TypeVar("T")
BOB = By("bob", "it is no use")


@pytest.fixture
def one(tmp_path: Path) -> Jobbing:
    return Jobbing(tmp_path)


def play(one: Jobbing, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    async def run() -> T:
        await one.scene.begin()
        return await work()

    return asyncio.run(run())


# --- what comes of them --------------------------------------------------------------------------


def test_a_source_becomes_a_published_version_with_its_origin(one: Jobbing) -> None:
    done = play(one, lambda: one.converted(labels=("new",)))
    assert (done.state, done.version, dict(done.fault)) == (JobState.DONE, 1, {})
    version = one.scene.version("m", 1)
    assert (version.state, version.labels) == (State.PUBLISHED, ("new",))
    assert version.provenance.author == "ada"
    assert version.provenance.source == f"onnx model.onnx, converted by job {done.id}"
    assert version.provenance.tools == {"tensorflow": "2.21.0", "tf2onnx": "1.17.0"}
    assert version.tags == {"conversion": done.id}


def test_a_job_tells_its_states_and_the_stages_of_its_child(one: Jobbing) -> None:
    async def run() -> list[str]:
        return await one.told(await one.converted())

    assert play(one, run) == [
        *("queued", "running", "import", "convert"),
        *("publishing", "publishing", "done"),
    ]


def test_what_is_told_names_no_folder_of_this_machine(one: Jobbing, tmp_path: Path) -> None:
    async def run() -> str:
        job = await one.converted()
        return f"{await one.jobs.events(job.id)} {await one.jobs.report(job.id)}"

    told = play(one, run)
    assert "it is doing convert in model.onnx" in told
    assert "servegate convert onnx s --out out" in told
    assert str(tmp_path) not in told


def test_samples_are_laid_out_as_they_were_uploaded(one: Jobbing) -> None:
    async def run() -> None:
        upload = await one.upload(GOOD, **{"data/s.npz": b"samples"})
        asked = Asked(upload.id, "m", Request("", samples="data/s.npz", seed=7))
        async with one.working():
            await one.until(await one.conversions.begin(asked, ADA))

    play(one, run)
    [(request, tree)] = one.converter.asked
    assert (request.source, request.samples, request.seed) == ("model.onnx", "data/s.npz", 7)
    assert tree == ["data/s.npz", "model.onnx"]


def test_the_work_and_the_source_of_a_job_that_is_done_are_gone(one: Jobbing) -> None:
    async def run() -> None:
        job = await one.converted()
        with pytest.raises(UnknownUpload):
            one.scene.uploads.get(job.asked.upload)

    play(one, run)
    assert list(one.folder.iterdir()) == []


def test_a_fault_is_kept_with_its_operator_and_its_node(one: Jobbing) -> None:
    async def run() -> None:
        job = await one.converted(b"fail unsupported_operator\n")
        assert (job.state, job.version, job.has_report) == (JobState.FAILED, None, False)
        assert job.fault["code"] == "unsupported_operator"
        assert (job.fault["operator"], job.fault["node"], job.fault["why"]) == (
            "Op",
            "n",
            "because",
        )
        with pytest.raises(NotFound):
            await one.jobs.report(job.id)

    play(one, run)
    assert one.scene.records.of("m") == ()
    assert list(one.folder.iterdir()) == []


def test_a_refusal_of_the_gate_has_a_report_and_makes_no_version(one: Jobbing) -> None:
    async def run() -> None:
        job = await one.converted(b"refuse numbers_differ\n")
        assert (job.state, job.has_report) == (JobState.REFUSED, True)
        page = await one.jobs.report(job.id)
        assert (page["passed"], page["steps"][0]["code"]) == (False, "numbers_differ")

    play(one, run)
    assert one.scene.records.of("m") == ()


def test_a_child_that_dies_fails_the_job_and_the_next_one_runs(one: Jobbing) -> None:
    async def run() -> list[JobState]:
        first, second = await one.ask(b"die\n"), await one.ask()
        async with one.working():
            return [(await one.until(job)).state for job in (first, second)]

    assert play(one, run) == [JobState.FAILED, JobState.DONE]


def test_an_error_of_ours_fails_the_job_without_its_details(one: Jobbing) -> None:
    job = play(one, lambda: one.converted(b"bug"))
    assert (job.state, job.fault["code"]) == (JobState.FAILED, "converter_crashed")
    assert job.fault["why"] == "an error in Servegate; its log says more"


def test_a_full_disk_ends_no_job_but_is_waited_for(one: Jobbing) -> None:
    async def run() -> None:
        job = await one.ask(b"refuse numbers_differ\n")
        one.failing.errors["end"] = NoSpace("the disk is full")
        async with one.working():
            assert (await one.until(job)).state is JobState.REFUSED

    play(one, run)
    assert one.pauses == [1.0, 2.0, 4.0]


def test_a_version_that_fails_its_trial_fails_the_job_and_keeps_the_report(one: Jobbing) -> None:
    one.scene.quarantine.fails = TrialFailed("it does not load")

    async def run() -> None:
        job = await one.converted()
        assert (job.state, job.version, job.fault["code"]) == (JobState.FAILED, 1, "not_published")
        assert "it does not load" in job.fault["why"]
        assert (await one.jobs.report(job.id))["passed"]

    play(one, run)


def test_content_that_is_known_gives_the_version_that_has_it(one: Jobbing) -> None:
    async def run() -> list[int | None]:
        first = await one.converted()
        one.converter.model = b"another model"
        other = await one.converted()
        assert first.version != other.version
        again = await one.converted()
        return [first.version, other.version, again.version]

    numbers = play(one, run)
    assert numbers[:2] == [1, 2]


# --- order ---------------------------------------------------------------------------------------


def test_one_job_runs_at_a_time_and_the_oldest_goes_first(one: Jobbing) -> None:
    async def run() -> None:
        first = await one.ask(HANGS)
        one.scene.wall.now += 1
        second = await one.ask()
        async with one.working():
            await one.until(first, JobState.RUNNING)
            await until(lambda: bool(one.converter.children))
            assert one.jobs.get(second.id).state is JobState.QUEUED
            await one.conversions.cancel(first.id, ADA)
            assert (await one.until(second)).state is JobState.DONE

    play(one, run)


def test_two_slots_run_two_jobs(tmp_path: Path) -> None:
    one = Jobbing(tmp_path, slots=2)

    async def run() -> None:
        jobs = [await one.ask(HANGS), await one.ask(HANGS + b"\n")]
        async with one.working():
            for job in jobs:
                await one.until(job, JobState.RUNNING)

    play(one, run)


def test_without_slots_nothing_may_be_asked_for(tmp_path: Path) -> None:
    one = Jobbing(tmp_path, slots=0)

    async def run() -> None:
        with pytest.raises(NotServed):
            await one.ask()

    play(one, run)


def test_a_full_queue_takes_no_more(one: Jobbing) -> None:
    async def run() -> None:
        upload = await one.upload()
        asked = Asked(upload.id, "m", Request(""))
        for _ in range(MOST_WAITING):
            await one.conversions.begin(asked, ADA)
        with pytest.raises(Unavailable):
            await one.conversions.begin(asked, ADA)

    play(one, run)


def test_a_crowd_gets_no_more_places_than_the_queue_has(one: Jobbing) -> None:
    async def run() -> None:
        upload = await one.upload()
        asked = Asked(upload.id, "m", Request(""))
        crowd = [one.conversions.begin(asked, ADA) for _ in range(MOST_WAITING + 8)]
        answers = await asyncio.gather(*crowd, return_exceptions=True)
        assert sum(isinstance(answer, Unavailable) for answer in answers) == 8
        assert len(one.jobs.in_state(JobState.QUEUED)) == MOST_WAITING

    play(one, run)


# --- cancel and retry ----------------------------------------------------------------------------


def test_a_cancelled_job_leaves_no_process_and_no_folder_and_names_who_did_it(
    one: Jobbing,
) -> None:
    async def run() -> None:
        async with one.working():
            job = await one.ask(HANGS)
            await one.until(job, JobState.RUNNING)
            await until(lambda: one.jobs.progress(job.id).stage == "convert")
            cancelled = await one.conversions.cancel(job.id, BOB)
            assert cancelled.state is JobState.CANCELLED
            [child] = one.converter.children
            await child.wait()
            await until(lambda: not list(one.folder.iterdir()))
            assert (await one.conversions.cancel(job.id, ADA)).etag == cancelled.etag
            assert (await one.told(job))[-2:] == ["convert", "cancelled"]
        first, *_, last = await one.revisions(job)
        assert (first["author"], last["author"], last["reason"]) == ("ada", "bob", BOB.reason)

    play(one, run)
    assert one.scene.records.of("m") == ()


def test_a_job_is_cancelled_before_its_turn(one: Jobbing) -> None:
    async def run() -> None:
        job = await one.ask()
        await one.conversions.cancel(job.id, BOB)
        async with one.working():
            other = await one.ask()
            await one.until(other)
        assert one.jobs.get(job.id).state is JobState.CANCELLED
        assert len(one.converter.asked) == 1

    play(one, run)


def test_what_is_done_can_neither_be_cancelled_nor_asked_for_again(one: Jobbing) -> None:
    async def run() -> None:
        job = await one.converted()
        for command in (one.conversions.cancel, one.conversions.retry):
            with pytest.raises(Conflict):
                await command(job.id, ADA)

    play(one, run)


def test_a_job_that_came_to_nothing_is_asked_for_again(one: Jobbing) -> None:
    async def run() -> None:
        async with one.working():
            job = await one.ask(HANGS)
            await one.until(job, JobState.RUNNING)
            await one.conversions.cancel(job.id, ADA)
            again = await one.conversions.retry(job.id, BOB)
            assert (again.state, again.author, again.papers) == (JobState.QUEUED, "bob", "")
            await one.until(again, JobState.RUNNING)
            await one.conversions.cancel(job.id, ADA)

    play(one, run)


def test_a_job_whose_upload_is_gone_cannot_be_asked_for_again(one: Jobbing) -> None:
    async def run() -> None:
        job = await one.converted(b"die\n")
        await one.scene.uploads.forget(job.asked.upload)
        with pytest.raises(UnknownUpload):
            await one.conversions.retry(job.id, ADA)

    play(one, run)


# --- what is refused -----------------------------------------------------------------------------


def test_a_version_that_was_uploaded_is_no_source(one: Jobbing) -> None:
    async def run() -> None:
        upload = await one.upload(kind=Kind.VERSION, **{"1/model.onnx": b"x"})
        with pytest.raises(Invalid, match="is no source"):
            await one.conversions.begin(Asked(upload.id, "m", Request("")), ADA)

    play(one, run)


@pytest.mark.parametrize(
    "asked",
    [
        {"model": "../m", "request": Request("")},
        {"model": "m", "request": Request(""), "labels": ("1",)},
        {"model": "m", "request": Request("", samples="s.npz")},
    ],
    ids=["a name that cannot be", "a label that cannot be", "samples that are not there"],
)
def test_what_cannot_become_a_version_is_not_begun(one: Jobbing, asked: dict[str, Any]) -> None:
    async def run() -> None:
        upload = await one.upload()
        with pytest.raises(Invalid):
            await one.conversions.begin(Asked(upload.id, **asked), ADA)

    play(one, run)
    assert one.jobs.all() == ()


# --- restarts ------------------------------------------------------------------------------------


def test_a_job_that_was_running_is_started_again_once_and_then_has_failed(tmp_path: Path) -> None:
    async def stopped(one: Jobbing) -> None:
        """One life of a control plane, which ends while the job runs."""
        await one.scene.begin()
        async with one.working():
            job = one.jobs.all()[0] if one.jobs.all() else await one.ask(HANGS)
            await one.until(job, JobState.RUNNING)
            await until(lambda: bool(one.converter.children))
        assert all(child.is_gone for child in one.converter.children)

    async def ended(one: Jobbing) -> None:
        await one.scene.begin()
        async with one.working():
            job = await one.until(one.jobs.all()[0])
        assert (job.state, job.fault["code"]) == (JobState.FAILED, "interrupted")
        assert job.starts == 2

    asyncio.run(stopped(Jobbing(tmp_path)))
    asyncio.run(stopped(Jobbing(tmp_path)))
    asyncio.run(ended(Jobbing(tmp_path)))


def test_a_job_goes_on_with_the_version_that_it_had_made_before_a_crash(tmp_path: Path) -> None:
    first = Jobbing(tmp_path)

    async def crashed() -> None:
        """The version is committed, and the record does not say so yet."""
        await first.scene.begin()
        job = await first.ask()
        begun = await first.jobs.move(job, JobState.RUNNING, ADA, starts=1)
        assert begun is not None
        await first.scene.push("m", files(), Ask(tags={"conversion": job.id}))

    async def restarted(one: Jobbing) -> None:
        await one.scene.begin()
        async with one.working():
            job = await one.until(one.jobs.all()[0])
        assert (job.state, job.version) == (JobState.DONE, 1)
        assert one.converter.asked == []

    asyncio.run(crashed())
    asyncio.run(restarted(Jobbing(tmp_path)))


def test_a_store_that_is_away_for_a_while_loses_no_job(one: Jobbing) -> None:
    async def run() -> None:
        job = await one.ask()
        one.failing.errors["move"] = Unavailable("the store does not answer")
        async with one.working():
            assert (await one.until(job)).state is JobState.DONE

    play(one, run)
    assert one.pauses == [1.0, 2.0, 4.0]


# --- what is kept --------------------------------------------------------------------------------


def test_the_papers_of_a_job_and_the_upload_of_a_waiting_one_are_no_garbage(one: Jobbing) -> None:
    async def run() -> None:
        job = await one.converted(b"refuse numbers_differ\n")
        waiting = await one.ask()
        decisions = one.scene.records.decisions
        assert needed_uploads(decisions) == {waiting.asked.upload}
        heap = Heap(
            one.scene.records,
            one.scene.storage,
            one.scene.uploads,
            kept=lambda: needed_blobs(decisions),
        )
        async with one.scene.records.collecting:
            await heap.sweep((), grace=-1e12, dry_run=False)
        assert not (await one.jobs.report(job.id))["passed"]

    play(one, run)


def test_only_the_newest_jobs_are_remembered(one: Jobbing) -> None:
    async def run() -> None:
        upload = await one.upload()
        for _ in range(KEPT + 3):
            one.scene.wall.now += 1
            job = await one.conversions.begin(Asked(upload.id, "m", Request("")), ADA)
            await one.conversions.cancel(job.id, ADA)
        kept = one.jobs.all()
        assert (len(kept), kept[-1].id) == (KEPT, job.id)
        with pytest.raises(UnknownConversion):
            one.jobs.get("job-0")

    play(one, run)
