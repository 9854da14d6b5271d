"""The way of a version: from an upload to a manifest, one state after the other."""

import asyncio
import contextlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from builders import until, write_model
from control.crashing import publish
from control.publishing import ADA, CONFIG, SIGNATURE, Scene, files, sha256
from forking import status

from serve.control.decisions import ROUTE
from serve.control.models import By
from serve.control.publication.publications import PublicationRequest
from serve.control.publication.trials import NOT_TRIED
from serve.core.errors import (
    Conflict,
    Invalid,
    NoSpace,
    NotFound,
    PreconditionFailed,
    TrialFailed,
    Unavailable,
)
from serve.core.versions import VersionState
from serve.processes.failpoints import POINTS, STATUS
from serve.tensors.contracts import Case, write_contract
from serve.tensors.signature import ModelTensor
from serve.triton import config as triton_config

OTHER = CONFIG.replace("max_batch_size: 8", "max_batch_size: 16")


async def test_a_version_gets_the_next_number_and_is_published(scene: Scene) -> None:
    version, created = await scene.push("m", files(), by=By("ada", "a better model"))
    assert (version.number, version.state, created) == (1, VersionState.UPLOADED, True)
    await scene.pipeline.round()
    published = scene.version()
    assert (published.state, published.reason) == (VersionState.PUBLISHED, "")
    assert (published.physical, published.memory, published.findings) == ("m", 1000, ())
    assert set(published.times) == {"uploaded", "checked", "published"}
    manifest = await scene.storage.manifest("m", 1)
    assert [file.path for file in manifest.files] == ["1/model.onnx", "config.pbtxt"]
    assert manifest.content == version.content and manifest.group == published.group
    assert manifest.provenance.author == "ada"
    config = manifest.layout.config
    assert config is not None and config.sha256 == sha256(published.config.encode())
    assert scene.quarantine.trees == [["m/1/model.onnx", "m/config.pbtxt"]]
    assert scene.uploads.all() == () and list(scene.work.iterdir()) == []
    assert [(r["author"], r["reason"]) for r in await scene.revisions("version", "m:1")] == [
        ("ada", "a better model"),
        ("servegate", "version 1 is checked"),
        ("servegate", "version 1 is published"),
    ]


async def test_known_content_creates_no_second_version_unless_asked(scene: Scene) -> None:
    await scene.publish("m", files())
    assert await scene.push("m", files()) == (scene.version(), False)
    renumbered = {path.replace("1/", "4/"): data for path, data in files().items()}
    assert (await scene.push("m", renumbered))[0].number == 1
    assert scene.uploads.all() == ()
    again, created = await scene.push("m", renumbered, PublicationRequest(again=True))
    assert (again.number, created) == (2, True)
    await scene.pipeline.round()  # the version's folder gets the number that was given
    assert (await scene.storage.manifest("m", 2)).layout.number == 2
    assert scene.quarantine.trees[1] == ["m/2/model.onnx", "m/config.pbtxt"]
    other, created = await scene.push("n", files())
    assert (other.model, other.number, created) == ("n", 1, True)


async def test_content_that_is_on_its_way_is_known_and_keeps_its_upload(scene: Scene) -> None:
    await scene.push("m", files())
    ask = PublicationRequest(labels=("new",), live=True)
    version, created = await scene.push("m", files(), ask)
    assert (version.number, created) == (1, False)
    assert (version.labels, version.live) == (("new",), True)
    await scene.pipeline.round()
    assert scene.version().is_published and scene.version().labels == ("new",)


async def test_numbers_go_on_after_all_that_ever_were_and_those_on_disk(scene: Scene) -> None:
    write_model(scene.plane.repository, "m", 3, 5)
    await scene.plane.inventory.scan()
    version = await scene.publish("m", files())
    assert (version.number, version.physical) == (6, f"m--{version.group[:8]}")
    await scene.retention.retire("m", 6, ADA)
    await scene.retention.remove("m", 6, ADA)
    assert (await scene.push("m", files(b"another")))[0].number == 7


async def test_two_control_planes_never_give_one_number_twice(tmp_path: Path) -> None:
    first, second = await Scene(tmp_path).begin(), await Scene(tmp_path).begin()
    stale = second.plane.decisions
    await first.push("m", files(b"one"))
    second.plane.decisions = stale
    assert (await second.push("m", files(b"two")))[0].number == 2


# --- names in Triton -----------------------------------------------------------------------------


async def test_versions_that_share_configuration_and_files_share_a_name(scene: Scene) -> None:
    await scene.publish("m", files(b"one"))
    same = await scene.publish("m", files(b"two", config='name: "other"\n' + CONFIG))
    other = await scene.publish("m", files(b"three", config=OTHER))
    again = await scene.publish("m", files(b"four", config=OTHER))
    beside = await scene.publish("m", files(b"five") | {"extra.txt": b"a"})
    assert (same.physical, other.physical) == ("m", f"m--{other.group[:8]}")
    assert again.physical == other.physical
    assert beside.physical == f"m--{beside.group[:8]}" != other.physical


async def test_a_name_is_free_again_once_nothing_living_has_it(scene: Scene) -> None:
    await scene.publish("m", files())
    await scene.retention.retire("m", 1, ADA)
    assert (await scene.publish("m", files(b"two", config=OTHER))).physical != "m"
    await scene.retention.remove("m", 1, ADA)
    again = OTHER.replace("16", "4")
    assert (await scene.publish("m", files(b"three", config=again))).physical == "m"


# --- who else writes -----------------------------------------------------------------------------


async def test_what_people_change_meanwhile_is_kept(scene: Scene) -> None:
    version, _ = await scene.push("m", files(), PublicationRequest(tags={"a": "1", "b": "2"}))
    by = By("bob", if_match=version.etag)
    changed = {"a": "", "c": "3"}
    await scene.publications.amend("m", 1, tags=changed, labels=["new"], by=by)
    with pytest.raises(PreconditionFailed):  # it is not the record that was read
        await scene.publications.amend("m", 1, tags={"c": "4"}, labels=None, by=by)
    await scene.pipeline.round()
    published = scene.version()
    assert published.is_published
    assert dict(published.tags) == {"b": "2", "c": "3"} and published.labels == ("new",)


async def test_labels_and_tags_are_checked_before_a_number_is_given(scene: Scene) -> None:
    for ask in (
        PublicationRequest(labels=("1",)),
        PublicationRequest(tags={"a b": "c"}),
        PublicationRequest(tags={"a": "c" * 2000}),
    ):
        with pytest.raises(Invalid):
            await scene.push("m", files(), ask)
    assert scene.records.all() == ()
    first, more = ({f"{letter}{n}": "x" for n in range(60)} for letter in "ab")
    await scene.push("m", files(), PublicationRequest(tags=first))
    with pytest.raises(Invalid, match="the limit is"):
        await scene.publications.amend("m", 1, tags=more, labels=None, by=ADA)
    with pytest.raises(Invalid, match="the limit is"):
        await scene.push("m", files(), PublicationRequest(tags=more))


async def test_a_version_is_kept_on_demand_but_not_over_its_retirement(scene: Scene) -> None:
    async def amend(*, keep: bool | None) -> bool:
        amended = await scene.publications.amend("m", 1, tags=None, labels=None, keep=keep, by=ADA)
        return amended.keep

    await scene.publish("m", files())
    assert [await amend(keep=keep) for keep in (True, None, False, True)] == [1, 1, 0, 1]
    retired = await scene.retention.retire("m", 1, ADA)
    assert not retired.keep
    with pytest.raises(Conflict, match="cannot be loaded") as caught:
        await amend(keep=True)
    assert caught.value.try_this == "servegate model restore m@1"


async def test_publishing_leaves_the_calls_where_they_are(scene: Scene) -> None:
    await scene.publish("m", files(b"one"))
    assert scene.plane.decisions.route("m") is None  # there was nothing to keep
    scene.serving["m"] = 1
    await scene.publish("m", files(b"two"))
    route = scene.plane.decisions.route("m")
    assert route is not None and dict(route.split.shares) == {1: 100}
    (revision,) = await scene.revisions(ROUTE, "m")
    assert revision["author"] == "servegate" and "version 2" in revision["reason"]
    scene.serving["m"] = 2
    await scene.publish("m", files(b"three"))
    assert len(await scene.revisions(ROUTE, "m")) == 1


# --- what is not published: every reason is told, and nobody else is held up ----------------------


async def test_every_finding_is_told_at_once(scene: Scene) -> None:
    scene.signature = replace(SIGNATURE, outputs=(ModelTensor("z", "FP32", (-1, 2)),))
    bad = files() | {"model_card.json": b"[1]", "contract/contract.json": b"{"}
    version = await scene.publish("m", bad)
    assert version.state is VersionState.FAILED
    assert "failed its checks" in version.reason
    told = "\n".join(version.findings)
    assert "'z'" in told or "'y'" in told
    assert "'model_card.json' must contain a JSON object" in told and "contract" in told
    assert all(finding in version.reason for finding in version.findings)
    assert scene.quarantine.orders == [] and scene.uploads.all() == ()
    with pytest.raises(NotFound):
        await scene.storage.manifest("m", 1)


CODE = {"config.pbtxt": b'backend: "python"\n', "1/model.py": b"pass"}
OUTSIDE = {
    "cc_model_filenames": 'cc_model_filenames { key: "7.5" value: "/etc/passwd" }',
    "model_warmup.inputs.input_data_file": """model_warmup { name: "w" inputs { key: "x" value {
        data_type: TYPE_FP32 dims: 2 input_data_file: "../../../../etc/passwd" } } }""",
}


async def test_what_cannot_be_read_brings_code_or_names_files_outside_is_never_loaded(
    scene: Scene, tmp_path: Path
) -> None:
    wrong = [(CODE, "contains code")]
    for field, text in OUTSIDE.items():
        reason = f"in '{field}' cannot be the path of a file of this model"
        wrong.append((files(config=f"{CONFIG}\n{text}"), reason))
    for upload, reason in wrong:
        version = await scene.publish("m", upload)
        assert version.state is VersionState.FAILED and reason in version.reason
    scene.signature = Invalid("model.onnx is no ONNX file")
    version = await scene.publish("m", files())
    assert version.state is VersionState.FAILED and "model.onnx is no ONNX file" in version.reason
    assert scene.quarantine.orders == []
    (tmp_path / "allowing").mkdir()
    allowing = await Scene(tmp_path / "allowing", allow_code=True).begin()
    assert "contains code" not in (await allowing.publish("m", CODE)).reason


async def test_without_a_configuration_one_is_written_from_the_model_file(scene: Scene) -> None:
    version = await scene.publish("m", files(config=""))
    assert version.state is VersionState.PUBLISHED, version.reason
    message = triton_config.parse(version.config).message
    assert [one.name for one in message.input] == ["x"] and message.backend == "onnxruntime"
    scene.signature = replace(SIGNATURE, format="plan")
    bare = await scene.publish("n", {"1/model.plan": b"plan"})
    assert bare.state is VersionState.FAILED and "config.pbtxt is missing" in bare.reason


async def test_labels_preprocessing_and_card_are_read_into_the_record(scene: Scene) -> None:
    config = CONFIG.replace('name: "y"', 'name: "y" label_filename: "labels.txt"')
    more = {
        "labels.txt": b"cat\ndog\n",
        "preprocessing.json": b'{"a": 1}',
        "model_card.json": b'{"summary": "s"}',
    }
    version = await scene.publish("m", files(config=config) | more)
    assert version.state is VersionState.PUBLISHED, version.reason
    assert dict(version.output_labels) == {"y": ("cat", "dog")}
    assert (dict(version.preprocessing), dict(version.card)) == ({"a": 1}, {"summary": "s"})
    assert scene.quarantine.trees == [["m/1/model.onnx", "m/config.pbtxt", "m/labels.txt"]]


async def test_a_failed_trial_and_a_fault_of_our_own_fail_the_version_alone(scene: Scene) -> None:
    scene.quarantine.fails = TrialFailed("it was still loading after 300 s")
    version = await scene.publish("m", files())
    assert version.state is VersionState.FAILED
    assert version.reason == "it was still loading after 300 s"
    assert [one async for one in scene.storage.manifests()] == []
    with pytest.raises(Conflict):  # no label waits for it
        await scene.publications.amend("m", 1, tags=None, labels=["new"], by=ADA)
    scene.quarantine.fails = ZeroDivisionError()
    failed = await scene.publish("m", files())
    assert failed.state is VersionState.FAILED and failed.reason.startswith("an error in Servegate")
    scene.quarantine.fails = None
    assert (await scene.publish("m", files())).number == 3


async def test_a_wrong_answer_in_quarantine_fails_the_version(scene: Scene) -> None:
    case = Case({"x": np.zeros((1, 4), "float32")}, {"y": np.zeros((1, 2), "float32")})
    contract = dict(write_contract([case]))
    good = await scene.publish("m", files() | contract)
    assert good.is_published and good.has_contract, good.reason
    scene.wrong = "output 'y'[0] is 1, expected 0"
    bad = await scene.publish("m", files(b"bad") | contract)
    assert bad.state is VersionState.FAILED and "output 'y'[0] is 1, expected 0" in bad.reason


async def test_what_nothing_tried_or_verified_is_a_finding_of_its_version(tmp_path: Path) -> None:
    scene = await Scene(tmp_path, tried=False).begin()
    version = await scene.publish("m", files())
    assert (version.is_published, version.findings) == (True, (NOT_TRIED,))
    assert version.memory is None
    steps = [{"step": "verification", "facts": {"unverified": "there are 5 samples"}}]
    report = {"conversion.json": json.dumps({"steps": steps}).encode()}
    version = await scene.publish("m", files() | report)
    assert version.is_published and "not verified: there are 5 samples" in version.findings[0]
    broken = await scene.publish("m", files(b"another") | {"conversion.json": b"{"})
    assert broken.is_published and broken.findings == (NOT_TRIED,)


@pytest.mark.parametrize("error", [NoSpace("full"), Unavailable("away"), OSError("broken")])
@pytest.mark.parametrize("method", ["add_bytes", "put_manifest"])
async def test_failing_surroundings_are_waited_for(
    scene: Scene, method: str, error: Exception
) -> None:
    await scene.push("m", files())
    scene.failing.errors[method] = error
    for pause in (1.0, 2.0, 4.0):
        await scene.pipeline.round()
        waiting = scene.version()
        assert waiting.state in (VersionState.UPLOADED, VersionState.CHECKED)
        assert str(error) in waiting.reason
        attempts = len(scene.quarantine.orders)
        await scene.pipeline.round()  # nothing happens before the pause is over
        assert len(scene.quarantine.orders) == attempts
        scene.clock.now += pause
    scene.failing.errors.clear()
    await scene.pipeline.round()
    assert (scene.version().state, scene.version().reason) == (VersionState.PUBLISHED, "")


async def test_one_version_that_waits_does_not_hold_up_another(scene: Scene) -> None:
    scene.quarantine.fails = Unavailable("away")
    await scene.publish("m", files())
    scene.quarantine.fails = None
    assert (await scene.publish("n", files())).is_published
    assert not scene.version().is_published
    gone, _ = await scene.push("o", files())
    await scene.uploads.forget(gone.upload)  # its upload is gone
    await scene.pipeline.round()
    failed = scene.version("o")
    assert failed.state is VersionState.FAILED and "no upload" in failed.reason


async def test_findings_and_reasons_are_no_longer_than_people_can_read(scene: Scene) -> None:
    sizes = ", ".join(str(size) for size in range(9, 5009))
    more = f"dynamic_batching {{ preferred_batch_size: [ {sizes} ] }}"
    version = await scene.publish("m", files(config=CONFIG + more))
    assert len(version.findings) == 101
    assert version.findings[-1] == "and 4900 more"
    broken = CONFIG + "version_policy { specific { versions: " + "9" * 500_000 + " } }"
    version = await scene.publish("m", files(config=broken))
    assert version.state is VersionState.FAILED and len(version.reason) < 30_000
    longest = "n" * 255  # which leaves no room for the name of a second configuration
    await scene.publish(longest, files())
    version = await scene.publish(longest, files(config=OTHER))
    assert (version.number, version.state) == (2, VersionState.FAILED)
    assert "longer than 255 characters" in version.reason


# --- killed at every step: the next process goes on from what the record says ---------------------

MINE = ("commit.", "check.", "quarantine.", "manifest.", "publish.", "upload.forgotten", "label.")
UNPUBLISHED = {
    "check.passed": VersionState.UPLOADED,
    "quarantine.started": VersionState.CHECKED,
    "manifest.written": VersionState.CHECKED,
}


@pytest.mark.parametrize("point", [one for one in POINTS if one.startswith(MINE)])
async def test_after_a_crash_the_version_is_published_once_and_whole(
    tmp_path: Path, point: str
) -> None:
    assert status(publish, tmp_path, point) == STATUS
    scene = await Scene(tmp_path).begin()
    if point in UNPUBLISHED:  # before the next process goes on, nothing is half published
        assert scene.version().state is UNPUBLISHED[point]
        assert scene.plane.inventory.loadables == {} and len(scene.uploads.all()) == 1
    scene.ready.add(("m", 1))
    await scene.pipeline.round()
    await scene.pending.round()
    (version,) = scene.records.all()
    assert (version.state, version.number) == (VersionState.PUBLISHED, 1), version.reason
    manifest = await scene.storage.manifest("m", 1)
    for file in manifest.files:
        assert await scene.storage.has(file.sha256, file.size)
    assert scene.uploads.all() == () and version.labels == ()
    assert scene.set == ["ada: m:new=1"]  # again where it was set but not written down


async def test_a_process_that_starts_works_off_what_is_left_and_clears_away(tmp_path: Path) -> None:
    assert status(publish, tmp_path, "quarantine.started") == STATUS
    scene = await Scene(tmp_path).begin()
    assert any(scene.work.iterdir())  # the repository of the trial
    working = asyncio.create_task(scene.publications.run())
    await until(lambda: scene.version().is_published)
    await scene.push("m", files(b"another"))
    await until(lambda: scene.version("m", 2).is_published)
    working.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await working
    assert list(scene.work.iterdir()) == []
