"""Conversion jobs: from an upload to a version, over cancellations, faults and restarts."""

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from builders import until
from control.publishing import ADA, files
from loops import in_loop
from workbench.conversion.queue.converting import GOOD, HANGS, Jobbing

from serve.control.models import By
from serve.control.publication.garbage import Heap
from serve.control.publication.publications import PublicationRequest
from serve.control.stored_conversions import needed_blobs, needed_uploads
from serve.control.uploads.upload import UploadKind
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
from serve.core.versions import VersionState
from serve.workbench.conversion.queue.conversions import MOST_WAITING
from serve.workbench.conversion.queue.job import ConversionOrder, JobState
from serve.workbench.conversion.queue.jobs import KEPT
from serve.workbench.conversion.request import ConversionRequest

BOB = By("bob", "it is no use")


@pytest.fixture
def one(tmp_path: Path) -> Jobbing:
    return Jobbing(tmp_path)


def in_scene(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """A test that is a coroutine, of conversions whose control plane has begun."""

    @functools.wraps(test)
    async def begun(one: Jobbing, **given: Any) -> None:
        await one.scene.begin()
        await test(one, **given)

    return in_loop(begun)


# --- what comes of them --------------------------------------------------------------------------


@in_scene
async def test_a_source_becomes_a_version_with_its_origin_and_is_gone_then(one: Jobbing) -> None:
    done = await one.converted(labels=("new",))
    assert (done.state, done.version, dict(done.fault)) == (JobState.DONE, 1, {})
    version = one.scene.version("m", 1)
    assert (version.state, version.labels) == (VersionState.PUBLISHED, ("new",))
    assert version.provenance.author == "ada"
    assert version.provenance.source == f"onnx model.onnx, converted by job {done.id}"
    assert version.provenance.tools == {"tensorflow": "2.21.0", "tf2onnx": "1.17.0"}
    assert version.tags == {"conversion": done.id}
    with pytest.raises(UnknownUpload):
        one.scene.uploads.get(done.asked.upload)
    assert list(one.folder.iterdir()) == []
    for command in (one.conversions.cancel, one.conversions.retry):
        with pytest.raises(Conflict):
            await command(done.id, ADA)


@in_scene
async def test_a_job_tells_its_stages_and_no_path_of_the_machine(one: Jobbing) -> None:
    job = await one.converted()
    states = ["queued", "running", "import", "convert", "publishing", "publishing", "done"]
    assert await one.told(job) == states
    told = f"{await one.jobs.events(job.id)} {await one.jobs.report(job.id)}"
    assert "it is doing convert in model.onnx" in told
    assert "servegate convert onnx s --out out" in told
    assert str(one.folder.parent) not in told


@in_scene
async def test_samples_are_laid_out_as_they_were_uploaded(one: Jobbing) -> None:
    upload = await one.upload(GOOD, **{"data/s.npz": b"samples"})
    asked = ConversionOrder(upload.id, "m", ConversionRequest("", samples="data/s.npz", seed=7))
    async with one.working():
        await one.until(await one.conversions.begin(asked, ADA))
    [(request, tree)] = one.converter.asked
    assert (request.source, request.samples, request.seed) == ("model.onnx", "data/s.npz", 7)
    assert tree == ["data/s.npz", "model.onnx"]


@in_scene
async def test_a_job_that_comes_to_nothing_keeps_why_and_makes_no_version(one: Jobbing) -> None:
    scripts = (b"die\n", b"fail unsupported_operator\n", b"refuse numbers_differ\n", b"bug")
    jobs = [await one.ask(script) for script in scripts]
    async with one.working():  # one after the other: none holds up the next one
        dead, fault, refused, ours = [await one.until(job) for job in jobs]
    assert (dead.state, dead.fault["code"]) == (JobState.FAILED, "converter_crashed")
    assert (fault.state, fault.version, fault.has_report) == (JobState.FAILED, None, False)
    told = [fault.fault[name] for name in ("code", "operator", "node", "why")]
    assert told == ["unsupported_operator", "Op", "n", "because"]
    with pytest.raises(NotFound):
        await one.jobs.report(fault.id)
    assert (refused.state, refused.has_report) == (JobState.REFUSED, True)
    page = await one.jobs.report(refused.id)
    assert (page["passed"], page["steps"][0]["code"]) == (False, "numbers_differ")
    assert (ours.state, ours.fault["code"]) == (JobState.FAILED, "converter_crashed")
    assert ours.fault["why"] == "an error in Servegate; see its log"  # without its details
    assert one.scene.records.of("m") == ()
    assert list(one.folder.iterdir()) == []


@pytest.mark.parametrize(
    ("step", "error"),
    [("end", NoSpace("the disk is full")), ("move", Unavailable("the store does not answer"))],
)
@in_scene
async def test_a_full_disk_or_a_store_that_is_away_ends_no_job_but_is_waited_for(
    one: Jobbing, step: str, error: Exception
) -> None:
    job = await one.ask(b"refuse numbers_differ\n")
    one.failing.errors[step] = error
    async with one.working():
        assert (await one.until(job)).state is JobState.REFUSED
    assert one.pauses == [1.0, 2.0, 4.0]


@in_scene
async def test_a_version_that_fails_its_trial_fails_the_job_with_a_report(one: Jobbing) -> None:
    one.scene.quarantine.fails = TrialFailed("it does not load")
    job = await one.converted()
    assert (job.state, job.version, job.fault["code"]) == (JobState.FAILED, 1, "not_published")
    assert "it does not load" in job.fault["why"]
    assert (await one.jobs.report(job.id))["passed"]


@in_scene
async def test_content_that_is_known_gives_the_version_that_has_it(one: Jobbing) -> None:
    first = await one.converted()
    one.converter.model = b"another model"
    other = await one.converted()
    assert (first.version, other.version) == (1, 2)
    again = await one.converted()
    assert again.version == 2


# --- order ---------------------------------------------------------------------------------------


@in_scene
async def test_one_job_runs_at_a_time_and_the_oldest_goes_first(one: Jobbing) -> None:
    first = await one.ask(HANGS)
    one.scene.wall.now += 1
    second = await one.ask()
    async with one.working():
        await one.until(first, JobState.RUNNING)
        await until(lambda: bool(one.converter.children))
        assert one.jobs.get(second.id).state is JobState.QUEUED
        await one.conversions.cancel(first.id, ADA)
        assert (await one.until(second)).state is JobState.DONE


@in_loop
async def test_two_slots_run_two_jobs_and_without_slots_none_is_taken(tmp_path: Path) -> None:
    one = Jobbing(tmp_path, slots=2)
    await one.scene.begin()
    jobs = [await one.ask(HANGS), await one.ask(HANGS + b"\n")]
    async with one.working():
        for job in jobs:
            await one.until(job, JobState.RUNNING)
    with pytest.raises(NotServed):
        await Jobbing(tmp_path, slots=0).ask()


@in_scene
async def test_a_crowd_gets_no_more_places_than_the_queue_has(one: Jobbing) -> None:
    upload = await one.upload()
    asked = ConversionOrder(upload.id, "m", ConversionRequest(""))
    crowd = [one.conversions.begin(asked, ADA) for _ in range(MOST_WAITING + 8)]
    answers = await asyncio.gather(*crowd, return_exceptions=True)
    assert sum(isinstance(answer, Unavailable) for answer in answers) == 8
    assert len(one.jobs.in_state(JobState.QUEUED)) == MOST_WAITING


# --- cancel and retry ----------------------------------------------------------------------------


@in_scene
async def test_a_cancelled_job_leaves_nothing_behind_and_names_who_did_it(one: Jobbing) -> None:
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
    assert one.scene.records.of("m") == ()


@in_scene
async def test_a_job_is_cancelled_before_its_turn(one: Jobbing) -> None:
    job = await one.ask()
    await one.conversions.cancel(job.id, BOB)
    async with one.working():
        other = await one.ask()
        await one.until(other)
    assert one.jobs.get(job.id).state is JobState.CANCELLED
    assert len(one.converter.asked) == 1


@in_scene
async def test_a_job_that_came_to_nothing_is_asked_for_again(one: Jobbing) -> None:
    async with one.working():
        job = await one.ask(HANGS)
        await one.until(job, JobState.RUNNING)
        await one.conversions.cancel(job.id, ADA)
        again = await one.conversions.retry(job.id, BOB)
        assert (again.state, again.author, again.papers) == (JobState.QUEUED, "bob", "")
        await one.until(again, JobState.RUNNING)
        await one.conversions.cancel(job.id, ADA)


@in_scene
async def test_a_job_whose_upload_is_gone_cannot_be_asked_for_again(one: Jobbing) -> None:
    job = await one.converted(b"die\n")
    await one.scene.uploads.forget(job.asked.upload)
    with pytest.raises(UnknownUpload):
        await one.conversions.retry(job.id, ADA)


# --- what is refused -----------------------------------------------------------------------------


@in_scene
async def test_what_cannot_become_a_version_is_refused(one: Jobbing) -> None:
    version = await one.upload(kind=UploadKind.VERSION, **{"1/model.onnx": b"x"})
    source, request = (await one.upload()).id, ConversionRequest("")
    for order, why in (
        (ConversionOrder(version.id, "m", request), "is not a source"),
        (ConversionOrder(source, "../m", request), "name"),
        (ConversionOrder(source, "m", request, labels=("1",)), "label"),
        (ConversionOrder(source, "m", ConversionRequest("", samples="s.npz")), "no file 's.npz'"),
    ):
        with pytest.raises(Invalid, match=why):
            await one.conversions.begin(order, ADA)
    assert one.jobs.all() == ()


# --- restarts ------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def restarted(folder: Path) -> AsyncIterator[Jobbing]:
    """Another life of a control plane, at work."""
    one = Jobbing(folder)
    await one.scene.begin()
    async with one.working():
        yield one


@in_loop
async def test_a_job_that_was_running_is_started_again_once_only(tmp_path: Path) -> None:
    for _ in range(2):
        async with restarted(tmp_path) as one:
            job = one.jobs.all()[0] if one.jobs.all() else await one.ask(HANGS)
            await one.until(job, JobState.RUNNING)
            await until(lambda one=one: bool(one.converter.children))
        assert all(child.is_gone for child in one.converter.children)
    async with restarted(tmp_path) as one:
        job = await one.until(one.jobs.all()[0])
    assert (job.state, job.fault["code"], job.starts) == (JobState.FAILED, "interrupted", 2)


@in_loop
async def test_a_job_goes_on_with_the_version_that_it_made_before_a_crash(tmp_path: Path) -> None:
    first = Jobbing(tmp_path)
    await first.scene.begin()
    job = await first.ask()
    assert await first.jobs.move(job, JobState.RUNNING, ADA, starts=1) is not None
    # the version is committed, and the record does not say so yet
    await first.scene.push("m", files(), PublicationRequest(tags={"conversion": job.id}))
    async with restarted(tmp_path) as one:
        job = await one.until(one.jobs.all()[0])
    assert (job.state, job.version, one.converter.asked) == (JobState.DONE, 1, [])


# --- what is kept --------------------------------------------------------------------------------


@in_scene
async def test_the_papers_of_a_job_and_the_upload_of_a_waiting_one_are_kept(one: Jobbing) -> None:
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


@in_scene
async def test_only_the_newest_jobs_are_remembered(one: Jobbing) -> None:
    upload = await one.upload()
    for _ in range(KEPT + 3):
        one.scene.wall.now += 1
        job = await one.conversions.begin(
            ConversionOrder(upload.id, "m", ConversionRequest("")), ADA
        )
        await one.conversions.cancel(job.id, ADA)
    kept = one.jobs.all()
    assert (len(kept), kept[-1].id) == (KEPT, job.id)
    with pytest.raises(UnknownConversion):
        one.jobs.get("job-0")
