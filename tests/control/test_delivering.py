"""Delivery: what is wanted comes, what is neither wanted nor held goes; in folders and buckets."""

import asyncio
from collections.abc import Collection
from pathlib import Path

import pytest
from builders import ControlPlane
from control.delivering_scene import CONFIG, MODEL, Shelf, drafts, publish, tree
from control.keeping import FakeDelivery
from object_store import ObjectStore

from serve.control.artifacts.bucket_copies import CopyingBucket
from serve.control.artifacts.storage import ArtifactStorage
from serve.control.deliveries.bucket import BucketDelivery
from serve.control.deliveries.courier import Courier
from serve.control.deliveries.delivery import Delivery, Slot
from serve.control.deliveries.folder import DeliveryPiece, FolderDelivery
from serve.control.deliveries.side_by_side import side_by_side
from serve.control.fleet import LOADING
from serve.control.versions import PublishedVersion
from serve.core.errors import Invalid, Unavailable

KEEP, WEIGHTS = ".keep", "digits/1/model.onnx"
LABELS = {"labels.txt": b"zero\n"}


class Scene:
    """A storage, a delivery out of it, and what a Triton finds where that delivers."""

    storage: ArtifactStorage
    delivery: Delivery

    async def publish(
        self, model: str = "digits", number: int = 1, **more: dict[str, bytes]
    ) -> PublishedVersion:
        return await publish(self.storage, model, number, **more)

    async def deliver(self, *wanted: PublishedVersion, held: Collection[Slot] = ()) -> None:
        await self.delivery.deliver(wanted, held)

    async def digest(self, path: str) -> str:
        """The digest of a file of version 1 of digits."""
        manifest = await self.storage.manifest("digits", 1)
        return next(file.sha256 for file in manifest.files if file.path == path)


class FolderScene(Scene):
    """A folder; `times` tells when each file came, `restart` is another process."""

    def __init__(self, folder: Path) -> None:
        self.storage = ArtifactStorage.of(str(folder / "storage"))
        self.repository = folder / "repository"
        self.restart()

    def restart(self) -> None:
        self.delivery = FolderDelivery(self.storage, self.repository)

    async def times(self) -> dict[str, float]:
        found = tree(self.repository)
        return {path: (self.repository / path).stat().st_ctime_ns for path in found}

    async def data(self, path: str) -> bytes:
        return tree(self.repository)[path]

    async def remove(self, path: str) -> None:
        (self.repository / path).unlink()


class BucketScene(Scene):
    """The same of a bucket of its own."""

    def __init__(self, s3: ObjectStore) -> None:
        self._url, self._config = s3.bucket(), s3.config
        self.storage = ArtifactStorage.of(self._url, **self._config)
        self.bucket = CopyingBucket(self._url, **self._config)
        self.restart()

    def restart(self) -> None:
        self.delivery = BucketDelivery(self.storage, self._url, **self._config)

    async def times(self) -> dict[str, float]:
        listed = {one.key: one.at async for one in self.bucket.list("repository")}
        found = {key.removeprefix("repository/"): at for key, at in listed.items()}
        return {path: at for path, at in found.items() if path != KEEP}

    async def data(self, path: str) -> bytes:
        return b"".join([piece async for piece in self.bucket.read(f"repository/{path}")])

    async def remove(self, path: str) -> None:
        await self.bucket.remove(f"repository/{path}")


Place = FolderScene | BucketScene


@pytest.fixture
def in_folder(tmp_path: Path) -> FolderScene:
    return FolderScene(tmp_path)


@pytest.fixture
def in_bucket(s3: ObjectStore) -> BucketScene:
    return BucketScene(s3)


@pytest.fixture(params=["in_folder", "in_bucket"])
def scene(request: pytest.FixtureRequest) -> Place:
    made: Place = request.getfixturevalue(request.param)
    return made


async def test_what_is_wanted_is_there_on_every_replica_with_what_a_triton_reads(
    scene: Place,
) -> None:
    one = await scene.publish(beside=LABELS | {"model_card.json": b"{}"})
    two = await scene.publish("digits", 2)
    assert not scene.delivery.has("a", one)
    await scene.deliver(one)
    assert scene.delivery.has("a", one) and scene.delivery.has("b", one)
    assert not scene.delivery.has("a", two)
    assert scene.delivery.problem("a", one) == ""
    assert {path: await scene.data(path) for path in await scene.times()} == {
        "digits/config.pbtxt": CONFIG.encode(),
        "digits/labels.txt": LABELS["labels.txt"],
        "digits/1/model.onnx": MODEL["model.onnx"],
        "digits/1/assets/words.txt": MODEL["assets/words.txt"],
    }


async def test_a_second_version_and_a_restart_write_nothing_anew(scene: Place) -> None:
    one = await scene.publish(beside=LABELS)
    await scene.deliver(one)
    before = await scene.times()
    scene.restart()
    two = await scene.publish("digits", 2, beside=LABELS)
    await scene.deliver(one, two)
    after = await scene.times()
    assert {path: after[path] for path in before} == before and len(after) > len(before)
    assert scene.delivery.has("a", one) and scene.delivery.has("a", two)


async def test_what_is_neither_wanted_nor_held_goes_and_the_group_with_the_last(
    scene: Place,
) -> None:
    one, two, three = [await scene.publish("digits", number) for number in (1, 2, 3)]
    await scene.deliver(one, two, three, await scene.publish("other"))
    await scene.deliver(three, held=[("digits", 2)])
    folders = {path.rpartition("/")[0] for path in await scene.times() if "onnx" in path}
    assert folders == {"digits/2", "digits/3"}
    assert not scene.delivery.has("a", one)
    await scene.deliver()
    assert await scene.times() == {}


@pytest.mark.parametrize("lost", [WEIGHTS, "digits/config.pbtxt"])
async def test_a_restart_finds_what_is_missing_and_makes_it_good(scene: Place, lost: str) -> None:
    one = await scene.publish()
    await scene.deliver(one)
    await scene.remove(lost)
    scene.restart()
    await scene.deliver(one)
    assert scene.delivery.has("a", one) and lost in await scene.times()


async def test_a_version_whose_manifest_cannot_be_read_is_left_where_it_is(scene: Place) -> None:
    one = await scene.publish()
    await scene.deliver(one)
    await scene.storage.remove_manifest("digits", 1)
    scene.restart()
    await scene.deliver(one)
    assert WEIGHTS in await scene.times()
    assert not scene.delivery.has("a", one) and scene.delivery.problem("a", one) != ""


async def test_a_failure_is_told_keeps_nothing_else_back_and_is_tried_again(scene: Place) -> None:
    one = await scene.publish()
    other = await scene.publish("other", files={"model.onnx": b"2"})
    await scene.storage.remove_blob(await scene.digest("1/model.onnx"))
    await scene.deliver(one, other)
    assert scene.delivery.problem("a", one) != "" and not scene.delivery.has("a", one)
    assert scene.delivery.has("a", other)
    await scene.storage.add_bytes(MODEL["model.onnx"])
    await scene.deliver(one, other)
    assert scene.delivery.has("a", one) and scene.delivery.problem("a", one) == ""


async def test_calls_at_the_same_time_do_not_disturb_each_other(scene: Place) -> None:
    versions = [await scene.publish(f"m{number}") for number in range(3)]
    await asyncio.gather(*(scene.deliver(*versions) for _ in range(4)))
    assert all(scene.delivery.has("a", version) for version in versions)


# --- folders -------------------------------------------------------------------------------------


async def test_damage_is_found_by_the_next_call(in_folder: FolderScene) -> None:
    one = await in_folder.publish()
    await in_folder.deliver(one)
    await in_folder.remove(WEIGHTS)
    await in_folder.deliver(one)
    assert await in_folder.data(WEIGHTS) == MODEL["model.onnx"] and in_folder.delivery.has("a", one)


async def test_what_an_earlier_process_left_is_swept_and_others_keep_theirs(
    in_folder: FolderScene,
) -> None:
    for folder in (".delivery/drafts/abc/1", "theirs/1"):
        (in_folder.repository / folder).mkdir(parents=True)
        (in_folder.repository / folder / "model.onnx").write_bytes(b"precious")
    await in_folder.deliver(await in_folder.publish())
    assert drafts(in_folder.repository) == []
    await in_folder.deliver()
    assert set(await in_folder.times()) == {"theirs/1/model.onnx"}


async def test_each_manifest_is_read_once_and_each_version_built_once(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path / "shelf")
    delivery = FolderDelivery(shelf, tmp_path / "repository")
    versions = [shelf.publish(f"m{number}") for number in range(4)]
    await asyncio.gather(*(delivery.deliver(versions, ()) for _ in range(5)))
    assert len(shelf.fetched) == 4 * len(MODEL)
    shelf.read = 0
    await delivery.deliver(versions, ())
    assert shelf.read == 0


async def test_a_record_and_a_manifest_that_disagree_are_told(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path / "shelf")
    delivery = FolderDelivery(shelf, tmp_path / "repository")
    shelf.publish(physical="digits--0123abcd")
    record = shelf.publish(number=2)
    shelf.manifests["digits", 2] = shelf.manifests["digits", 1]
    await delivery.deliver([record], ())
    assert "does not match its record" in delivery.problem("a", record)


def test_a_piece_survives_the_way_to_an_agent_and_a_wrong_one_does_not(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    version = shelf.publish(beside=LABELS)
    piece = DeliveryPiece(shelf.manifests["digits", 1], version.config)
    assert DeliveryPiece.from_json(piece.to_json()) == piece
    for wrong in ({}, {"manifest": 1, "config": ""}, [], piece.to_json() | {"config": "x: 1"}):
        with pytest.raises(Invalid):
            DeliveryPiece.from_json(wrong)


async def test_files_of_what_a_replica_holds_or_just_loads_stay_although_it_is_wanted_no_more(
    tmp_path: Path,
) -> None:
    plane, delivery = ControlPlane(tmp_path), FakeDelivery()
    courier = Courier(plane.inventory, plane.fleet, delivery, arrived=lambda: None, pause=1.0)
    plane.fleet.saw("a", {"m": (1,)})
    plane.fleet.bar("b", "m", [2], LOADING)
    plane.fleet.bar("b", "m", [3], "it answers wrongly")
    await courier.round()
    assert delivery.kept == {("m", 1), ("m", 2)}


# --- buckets: marks say what is whole, and only that is believed ---------------------------------


async def test_the_last_version_leaves_the_bucket_to_be_a_repository(
    in_bucket: BucketScene,
) -> None:
    await in_bucket.deliver(await in_bucket.publish())
    await in_bucket.deliver()
    assert [one async for one in in_bucket.bucket.list("delivered")] == []
    assert await in_bucket.data(KEEP) == b""


async def test_without_a_mark_nothing_is_believed(in_bucket: BucketScene) -> None:
    one = await in_bucket.publish()
    await in_bucket.bucket.put(f"repository/{WEIGHTS}", b"weights of ONE")
    await in_bucket.bucket.put("repository/digits/1/stray", b"x")
    await in_bucket.deliver(one)
    assert await in_bucket.data(WEIGHTS) == MODEL["model.onnx"]
    assert "digits/1/stray" not in await in_bucket.times()


async def test_a_bucket_that_does_not_answer_is_a_problem_of_every_version(
    in_bucket: BucketScene,
) -> None:
    one = await in_bucket.publish()
    refused = {"endpoint": "http://127.0.0.1:9", "region": "us-east-1"}
    away = BucketDelivery(in_bucket.storage, "s3://nowhere/x", **refused, skip_signature="true")
    await away.deliver([one], ())
    assert "does not answer" in away.problem("a", one) and not away.has("a", one)


# --- few at a time, one error for all, and cancellation that is not lost --------------------------


async def test_no_more_than_a_few_run_at_a_time_and_all_are_done() -> None:
    running: list[int] = []
    done, most = [], []

    async def work(number: int) -> None:
        running.append(number)
        most.append(len(running))
        await asyncio.sleep(0)
        running.remove(number)
        done.append(number)

    await side_by_side(work, range(7), at_a_time=3)
    assert sorted(done) == list(range(7)) and max(most) == 3


async def test_the_first_error_is_raised_as_it_is_and_ends_the_others() -> None:
    ended = []

    async def work(number: int) -> None:
        if number == 1:
            raise Unavailable("gone")
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(number)

    with pytest.raises(Unavailable, match="gone"):
        await side_by_side(work, range(3), at_a_time=3)
    assert sorted(ended) == [0, 2]


async def test_who_is_cancelled_while_a_piece_fails_is_cancelled() -> None:
    failing = asyncio.Event()

    async def work(number: int) -> None:
        await failing.wait()
        raise Unavailable("gone")

    task = asyncio.create_task(side_by_side(work, [1], at_a_time=1))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    failing.set()
    task.cancel()
    await asyncio.wait((task,))
    assert task.cancelled()
