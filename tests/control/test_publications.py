"""The way of a version: from an upload to a manifest, one state after the other."""

import json
from pathlib import Path

import pytest
from builders import write_model
from control.publishing import ADA, CONFIG, Scene, files, play, sha256

from serve.control.decisions import ROUTE
from serve.control.models import By
from serve.control.publishing.publications import Ask
from serve.core.errors import (
    Conflict,
    Invalid,
    PreconditionFailed,
    TrialFailed,
)
from serve.core.versions import State

OTHER = CONFIG.replace("max_batch_size: 8", "max_batch_size: 16")


def test_a_conversion_that_nothing_verified_is_a_finding_of_its_version(tmp_path: Path) -> None:
    scene = Scene(tmp_path)

    async def run() -> None:
        steps = [{"step": "verification", "facts": {"unverified": "there are 5 samples"}}]
        report = {"conversion.json": json.dumps({"steps": steps}).encode()}
        version = await scene.publish("m", files() | report)
        assert version.is_published and "not verified: there are 5 samples" in version.findings[0]
        broken = await scene.publish("m", files(b"another") | {"conversion.json": b"{"})
        assert broken.is_published and broken.findings == ()

    play(scene, run)


def test_a_version_gets_the_next_number_and_is_published(tmp_path: Path) -> None:
    scene = Scene(tmp_path)

    async def run() -> None:
        version, created = await scene.push("m", files())
        assert (version.number, version.state, created) == (1, State.UPLOADED, True)
        await scene.pipeline.round()
        published = scene.version()
        assert (published.state, published.reason) == (State.PUBLISHED, "")
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

    play(scene, run)


def test_the_version_folder_gets_the_number_that_was_given(tmp_path: Path) -> None:
    scene = Scene(tmp_path)

    async def run() -> None:
        await scene.publish("m", files(b"one"))
        await scene.publish("m", {"config.pbtxt": CONFIG.encode(), "7/model.onnx": b"two"})
        manifest = await scene.storage.manifest("m", 2)
        assert manifest.layout.number == 2
        assert scene.quarantine.trees[1] == ["m/2/model.onnx", "m/config.pbtxt"]

    play(scene, run)


def test_known_content_creates_no_second_version_unless_asked(tmp_path: Path) -> None:
    scene = Scene(tmp_path)

    async def run() -> None:
        await scene.publish("m", files())
        assert await scene.push("m", files()) == (scene.version(), False)
        renumbered = {path.replace("1/", "4/"): data for path, data in files().items()}
        assert (await scene.push("m", renumbered))[0].number == 1
        assert scene.uploads.all() == ()
        again, created = await scene.push("m", files(), Ask(again=True))
        assert (again.number, created) == (2, True)
        other, created = await scene.push("n", files())
        assert (other.model, other.number, created) == ("n", 1, True)

    play(scene, run)


def test_content_that_is_on_its_way_is_known_and_keeps_its_upload(tmp_path: Path) -> None:
    scene = Scene(tmp_path)

    async def run() -> None:
        await scene.push("m", files())
        version, created = await scene.push("m", files(), Ask(labels=("new",), live=True))
        assert (version.number, created) == (1, False)
        assert (version.labels, version.live) == (("new",), True)
        await scene.pipeline.round()
        assert scene.version().is_published and scene.version().labels == ("new",)

    play(scene, run)


def test_numbers_go_on_after_all_that_ever_were_and_those_on_disk(tmp_path: Path) -> None:
    scene = Scene(tmp_path)

    async def run() -> None:
        write_model(scene.plane.repository, "m", 3, 5)
        await scene.plane.inventory.scan()
        assert (await scene.publish("m", files())).number == 6
        await scene.retention.retire("m", 6, ADA)
        await scene.retention.remove("m", 6, ADA)
        assert (await scene.push("m", files(b"another")))[0].number == 7

    play(scene, run)


def test_two_control_planes_never_give_one_number_twice(tmp_path: Path) -> None:
    first, second = Scene(tmp_path), Scene(tmp_path)

    async def run() -> None:
        await second.begin()
        stale = second.plane.decisions
        await first.push("m", files(b"one"))
        second.plane.decisions = stale
        assert (await second.push("m", files(b"two")))[0].number == 2

    play(first, run)


def test_names_labels_and_tags_are_checked_before_a_number_is_given(tmp_path: Path) -> None:
    scene = Scene(tmp_path)

    async def run() -> None:
        for ask in (Ask(labels=("1",)), Ask(tags={"a b": "c"}), Ask(tags={"a": "c" * 2000})):
            with pytest.raises(Invalid):
                await scene.push("m", files(), ask)
        assert scene.records.all() == ()

    play(scene, run)


# --- names in Triton -----------------------------------------------------------------------------


def test_versions_that_share_configuration_and_files_share_a_name(tmp_path: Path) -> None:
    scene = Scene(tmp_path)

    async def run() -> None:
        await scene.publish("m", files(b"one"))
        same = await scene.publish("m", files(b"two", config='name: "other"\n' + CONFIG))
        other = await scene.publish("m", files(b"three", config=OTHER))
        again = await scene.publish("m", files(b"four", config=OTHER))
        beside = await scene.publish("m", files(b"five") | {"extra.txt": b"a"})
        assert (same.physical, other.physical) == ("m", f"m--{other.group[:8]}")
        assert again.physical == other.physical
        assert beside.physical == f"m--{beside.group[:8]}" != other.physical

    play(scene, run)


def test_the_plain_repository_keeps_its_names(tmp_path: Path) -> None:
    scene = Scene(tmp_path)

    async def run() -> None:
        write_model(scene.plane.repository, "m", 1)
        await scene.plane.inventory.scan()
        version = await scene.publish("m", files())
        assert (version.number, version.physical) == (2, f"m--{version.group[:8]}")

    play(scene, run)


def test_a_name_is_free_again_once_nothing_living_has_it(tmp_path: Path) -> None:
    scene = Scene(tmp_path)

    async def run() -> None:
        await scene.publish("m", files())
        await scene.retention.retire("m", 1, ADA)
        assert (await scene.publish("m", files(b"two", config=OTHER))).physical != "m"
        await scene.retention.remove("m", 1, ADA)
        again = OTHER.replace("16", "4")
        assert (await scene.publish("m", files(b"three", config=again))).physical == "m"

    play(scene, run)


# --- who else writes -----------------------------------------------------------------------------


def test_what_people_change_meanwhile_is_kept(tmp_path: Path) -> None:
    scene = Scene(tmp_path)

    async def run() -> None:
        version, _ = await scene.push("m", files(), Ask(tags={"a": "1", "b": "2"}))
        amended = await scene.publications.amend(
            "m", 1, tags={"a": "", "c": "3"}, labels=["new"], by=ADA
        )
        assert amended.etag != version.etag
        await scene.pipeline.round()
        published = scene.version()
        assert published.is_published
        assert dict(published.tags) == {"b": "2", "c": "3"} and published.labels == ("new",)

    play(scene, run)


def test_a_version_has_no_more_tags_than_people_can_read(tmp_path: Path) -> None:
    scene = Scene(tmp_path)

    async def run() -> None:
        first = Ask(tags={f"a{number}": "x" for number in range(60)})
        await scene.push("m", files(), first)
        more = {f"b{number}": "x" for number in range(60)}
        with pytest.raises(Invalid, match="too many"):
            await scene.publications.amend("m", 1, tags=more, labels=None, by=ADA)
        with pytest.raises(Invalid, match="too many"):
            await scene.push("m", files(), Ask(tags=more))

    play(scene, run)


def test_tags_are_set_only_on_the_record_that_was_read(tmp_path: Path) -> None:
    scene = Scene(tmp_path)

    async def run() -> None:
        version, _ = await scene.push("m", files())
        by = By("bob", if_match=version.etag)
        await scene.publications.amend("m", 1, tags={"a": "1"}, labels=None, by=by)
        with pytest.raises(PreconditionFailed):
            await scene.publications.amend("m", 1, tags={"a": "2"}, labels=None, by=by)
        assert dict(scene.version().tags) == {"a": "1"}

    play(scene, run)


def test_a_version_is_kept_while_somebody_wants_it_and_not_over_its_retirement(
    tmp_path: Path,
) -> None:
    scene = Scene(tmp_path)

    async def amend(*, keep: bool | None) -> bool:
        amended = await scene.publications.amend("m", 1, tags=None, labels=None, keep=keep, by=ADA)
        return amended.keep

    async def run() -> None:
        await scene.publish("m", files())
        assert [await amend(keep=keep) for keep in (True, None, False, True)] == [1, 1, 0, 1]
        retired = await scene.retention.retire("m", 1, ADA)
        assert not retired.keep
        with pytest.raises(Conflict, match="cannot be loaded") as caught:
            await amend(keep=True)
        assert caught.value.try_this == "servegate model restore m@1"

    play(scene, run)


def test_no_label_waits_for_a_version_that_failed(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.quarantine.fails = TrialFailed("no")

    async def run() -> None:
        await scene.publish("m", files())
        with pytest.raises(Conflict):
            await scene.publications.amend("m", 1, tags=None, labels=["new"], by=ADA)

    play(scene, run)


def test_publishing_leaves_the_calls_where_they_are(tmp_path: Path) -> None:
    scene = Scene(tmp_path)

    async def run() -> None:
        await scene.publish("m", files(b"one"))
        assert scene.plane.decisions.split("m") is None  # there was nothing to keep
        scene.serving["m"] = 1
        await scene.publish("m", files(b"two"))
        split = scene.plane.decisions.split("m")
        assert split is not None and dict(split.shares) == {1: 100}
        (revision,) = await scene.revisions(ROUTE, "m")
        assert revision["author"] == "servegate" and "version 2" in revision["reason"]
        scene.serving["m"] = 2
        await scene.publish("m", files(b"three"))
        assert len(await scene.revisions(ROUTE, "m")) == 1

    play(scene, run)


def test_each_state_is_a_revision(tmp_path: Path) -> None:
    scene = Scene(tmp_path)

    async def run() -> None:
        await scene.push("m", files(), by=By("ada", "a better model"))
        await scene.pipeline.round()
        told = [(r["author"], r["reason"]) for r in await scene.revisions("version", "m:1")]
        assert told == [
            ("ada", "a better model"),
            ("servegate", "version 1 is checked"),
            ("servegate", "version 1 is published"),
        ]

    play(scene, run)
