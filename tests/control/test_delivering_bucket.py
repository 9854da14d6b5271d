"""Delivery into a bucket: marks say what is whole, and only that is believed."""

import asyncio
from collections.abc import Collection

import pytest
from control.delivering_scene import CONFIG, MODEL, publish
from object_store import ObjectStore

from serve.control.artifacts.bucket_copies import CopyingBucket
from serve.control.artifacts.storage import ArtifactStorage
from serve.control.deliveries.bucket import BucketDelivery
from serve.control.deliveries.delivery import Slot
from serve.control.versions import PublishedVersion

KEEP = "repository/.keep"
WEIGHTS = "repository/digits/1/model.onnx"


class Scene:
    """A bucket of its own."""

    def __init__(self, s3: ObjectStore) -> None:
        self._url, self._config = s3.bucket(), s3.config
        self.storage = ArtifactStorage.of(self._url, **self._config)
        self.bucket = CopyingBucket(self._url, **self._config)
        self.run = asyncio.Runner().run
        self.restart()

    def restart(self) -> None:
        self.delivery = BucketDelivery(self.storage, self._url, **self._config)

    def publish(self, *given: object, **named: object) -> PublishedVersion:
        return self.run(publish(self.storage, *given, **named))  # type: ignore[arg-type]

    def deliver(self, *wanted: PublishedVersion, held: Collection[Slot] = ()) -> None:
        self.run(self.delivery.deliver(wanted, held))

    def keys(self, prefix: str) -> dict[str, float]:
        """Every object there, and when it was written."""

        async def read() -> dict[str, float]:
            found = {one.key: one.at async for one in self.bucket.list(prefix)}
            return {key: at for key, at in found.items() if key != KEEP}

        return self.run(read())

    def data(self, key: str) -> bytes:
        async def read() -> bytes:
            return b"".join([piece async for piece in self.bucket.read(key)])

        return self.run(read())


@pytest.fixture
def scene(s3: ObjectStore) -> Scene:
    return Scene(s3)


def test_triton_finds_what_was_published(scene: Scene) -> None:
    version = scene.publish(beside={"labels.txt": b"zero\n", "model_card.json": b"{}"})
    assert not scene.delivery.has("a", version)
    scene.deliver(version)
    assert scene.delivery.has("a", version) and scene.delivery.problem("a", version) == ""
    assert set(scene.keys("repository")) == {
        "repository/digits/config.pbtxt",
        "repository/digits/labels.txt",
        "repository/digits/1/model.onnx",
        "repository/digits/1/assets/words.txt",
    }
    assert scene.data(WEIGHTS) == MODEL["model.onnx"]
    assert scene.data("repository/digits/config.pbtxt") == CONFIG.encode()


def test_a_second_version_and_a_restart_write_nothing_anew(scene: Scene) -> None:
    one = scene.publish(beside={"labels.txt": b"zero\n"})
    scene.deliver(one)
    before = scene.keys("repository")
    scene.restart()
    two = scene.publish("digits", 2, beside={"labels.txt": b"zero\n"})
    scene.deliver(one, two)
    after = scene.keys("repository")
    assert {key: after[key] for key in before} == before and len(after) > len(before)
    assert scene.delivery.has("a", one) and scene.delivery.has("a", two)


def test_what_is_neither_wanted_nor_held_goes_and_the_group_with_the_last(scene: Scene) -> None:
    one, two, three = (scene.publish("digits", number) for number in (1, 2, 3))
    other = scene.publish("other")
    scene.deliver(one, two, three, other)
    scene.deliver(three, held=[("digits", 2)])
    assert {key.split("/")[2] for key in scene.keys("repository/digits")} == {
        "2",
        "3",
        "config.pbtxt",
    }
    assert scene.keys("repository/other") == {} and not scene.delivery.has("a", one)
    scene.deliver()
    assert scene.keys("repository") == {} and scene.keys("delivered") == {}
    assert scene.data(KEEP) == b""


@pytest.mark.parametrize("lost", [WEIGHTS, "repository/digits/config.pbtxt"])
def test_a_restart_finds_what_is_missing_and_makes_it_good(scene: Scene, lost: str) -> None:
    one = scene.publish()
    scene.deliver(one)
    scene.run(scene.bucket.remove(lost))
    scene.restart()
    scene.deliver(one)
    assert scene.delivery.has("a", one) and lost in scene.keys("repository")


def test_without_a_mark_nothing_is_believed(scene: Scene) -> None:
    one = scene.publish()
    scene.run(scene.bucket.put(WEIGHTS, b"weights of ONE"))
    scene.run(scene.bucket.put("repository/digits/1/stray", b"x"))
    scene.deliver(one)
    assert scene.data(WEIGHTS) == MODEL["model.onnx"]
    assert "repository/digits/1/stray" not in scene.keys("repository")


def test_a_missing_blob_is_told_keeps_nothing_else_back_and_is_tried_again(scene: Scene) -> None:
    one, other = scene.publish(), scene.publish("other", files={"model.onnx": b"2"})
    manifest = scene.run(scene.storage.manifest("digits", 1))
    file = next(file for file in manifest.files if file.path == "1/model.onnx")
    scene.run(scene.storage.remove_blob(file.sha256))
    scene.deliver(one, other)
    assert scene.delivery.problem("a", one) != "" and not scene.delivery.has("a", one)
    assert scene.delivery.has("a", other)
    scene.run(scene.storage.add_bytes(MODEL["model.onnx"]))
    scene.deliver(one, other)
    assert scene.delivery.has("a", one) and scene.delivery.problem("a", one) == ""


def test_a_version_whose_manifest_cannot_be_read_is_left_where_it_is(scene: Scene) -> None:
    one = scene.publish()
    scene.deliver(one)
    scene.run(scene.storage.remove_manifest("digits", 1))
    scene.restart()
    scene.deliver(one)
    assert WEIGHTS in scene.keys("repository")
    assert not scene.delivery.has("a", one) and scene.delivery.problem("a", one) != ""


def test_calls_at_the_same_time_do_not_disturb_each_other(scene: Scene) -> None:
    versions = [scene.publish(f"m{number}") for number in range(3)]

    async def scenario() -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(4):
                group.create_task(scene.delivery.deliver(versions, ()))

    scene.run(scenario())
    assert all(scene.delivery.has("a", version) for version in versions)


def test_a_bucket_that_does_not_answer_is_a_problem_of_every_version(scene: Scene) -> None:
    one = scene.publish()
    scene.deliver(one)
    refused = {"endpoint": "http://127.0.0.1:9", "region": "us-east-1"}
    away = BucketDelivery(scene.storage, "s3://nowhere/x", **refused, skip_signature="true")
    scene.run(away.deliver([one], ()))
    assert "does not answer" in away.problem("a", one) and not away.has("a", one)
