"""Delivery into a folder: what is wanted comes, what is neither wanted nor held goes."""

import asyncio
import shutil
from collections.abc import Collection
from pathlib import Path

import pytest
from control.delivering_scene import MODEL, Shelf, drafts, tree

from serve.control.deliveries.delivery import Delivery, Slot
from serve.control.deliveries.folder import DeliveryPiece, FolderDelivery
from serve.control.versions import PublishedVersion
from serve.core.errors import Invalid


class Scene:
    def __init__(self, folder: Path) -> None:
        self.shelf = Shelf(folder / "shelf")
        self.repository = folder / "repository"
        self.delivery = FolderDelivery(self.shelf, self.repository)

    def deliver(self, *wanted: PublishedVersion, held: Collection[Slot] = ()) -> None:
        asyncio.run(self.delivery.deliver(wanted, held))

    def restart(self) -> None:
        self.delivery = FolderDelivery(self.shelf, self.repository)

    def folders(self) -> set[str]:
        return {path.rpartition("/")[0] for path in tree(self.repository) if "onnx" in path}


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_it_is_a_delivery(scene: Scene) -> None:
    delivery: Delivery = scene.delivery
    assert repr(delivery).startswith("<FolderDelivery")


def test_what_is_wanted_is_there_on_every_replica(scene: Scene) -> None:
    one, two = scene.shelf.publish(), scene.shelf.publish(number=2)
    assert not scene.delivery.has("a", one)
    scene.deliver(one)
    assert scene.delivery.has("a", one) and scene.delivery.has("b", one)
    assert not scene.delivery.has("a", two)
    assert scene.delivery.problem("a", one) == ""


def test_what_is_neither_wanted_nor_held_is_taken_away(scene: Scene) -> None:
    one, two, three = (scene.shelf.publish(number=number) for number in (1, 2, 3))
    other = scene.shelf.publish("other")
    scene.deliver(one, two, three, other)
    scene.deliver(three, held=[("digits", 2)])
    assert scene.folders() == {"digits/2", "digits/3"}
    assert not scene.delivery.has("a", one)
    assert drafts(scene.repository) == []


def test_a_version_that_is_held_is_left_even_when_its_manifest_cannot_be_read(
    scene: Scene,
) -> None:
    one = scene.shelf.publish()
    scene.deliver(one)
    scene.restart()
    scene.shelf.manifests.clear()
    scene.deliver(one)
    assert scene.folders() == {"digits/1"}
    assert not scene.delivery.has("a", one)
    assert "no manifest" in scene.delivery.problem("a", one)


def test_a_new_process_believes_what_is_whole_and_fetches_nothing_again(scene: Scene) -> None:
    one = scene.shelf.publish()
    scene.deliver(one)
    scene.shelf.fetched.clear()
    scene.restart()
    scene.deliver(one)
    assert scene.delivery.has("a", one) and scene.shelf.fetched == []


def test_what_an_earlier_process_left_half_done_is_swept(scene: Scene) -> None:
    (scene.repository / ".delivery/drafts/abc/1").mkdir(parents=True)
    (scene.repository / ".delivery/drafts/abc/1/model.onnx").write_bytes(b"half")
    scene.deliver(scene.shelf.publish())
    assert drafts(scene.repository) == []


def test_a_folder_of_somebody_else_is_never_removed(scene: Scene) -> None:
    (scene.repository / "theirs/1").mkdir(parents=True)
    (scene.repository / "theirs/1/model.onnx").write_bytes(b"precious")
    scene.deliver(scene.shelf.publish())
    scene.deliver()
    assert scene.folders() == {"theirs/1"}


def test_manifests_are_read_once(scene: Scene) -> None:
    one = scene.shelf.publish()
    for _ in range(3):
        scene.deliver(one)
    assert scene.shelf.read == 1


def test_a_failure_is_told_keeps_nothing_else_back_and_is_tried_again(scene: Scene) -> None:
    one, other = scene.shelf.publish(), scene.shelf.publish("other", files={"model.onnx": b"2"})
    file = scene.shelf.manifests["digits", 1].layout.version[-1]
    blob = scene.shelf.blob(file.sha256)
    shutil.move(blob, blob.with_suffix(".away"))
    scene.deliver(one, other)
    assert "No such file" in scene.delivery.problem("a", one)
    assert not scene.delivery.has("a", one) and scene.delivery.has("a", other)
    shutil.move(blob.with_suffix(".away"), blob)
    scene.deliver(one, other)
    assert scene.delivery.has("a", one) and scene.delivery.problem("a", one) == ""


def test_damage_is_found_by_the_next_call_and_made_good(scene: Scene) -> None:
    one = scene.shelf.publish()
    scene.deliver(one)
    (scene.repository / "digits/1/model.onnx").unlink()
    scene.deliver(one)
    assert tree(scene.repository)["digits/1/model.onnx"] == MODEL["model.onnx"]
    assert scene.delivery.has("a", one)


def test_calls_at_the_same_time_build_each_version_once(scene: Scene) -> None:
    versions = [scene.shelf.publish(f"m{number}") for number in range(4)]

    async def scenario() -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(5):
                group.create_task(scene.delivery.deliver(versions, ()))

    asyncio.run(scenario())
    assert len(scene.shelf.fetched) == 4 * len(MODEL)
    assert all(scene.delivery.has("a", version) for version in versions)


def test_a_record_and_a_manifest_that_disagree_are_told(scene: Scene) -> None:
    scene.shelf.publish(physical="digits--0123abcd")
    record = scene.shelf.publish(number=2)
    scene.shelf.manifests["digits", 2] = scene.shelf.manifests["digits", 1]
    scene.deliver(record)
    assert "does not match its record" in scene.delivery.problem("a", record)


def test_a_piece_survives_the_way_to_an_agent_and_a_wrong_one_does_not(scene: Scene) -> None:
    version = scene.shelf.publish(beside={"labels.txt": b"x"})
    piece = DeliveryPiece(scene.shelf.manifests["digits", 1], version.config)
    assert DeliveryPiece.from_json(piece.to_json()) == piece
    for wrong in ({}, {"manifest": 1, "config": ""}, [], piece.to_json() | {"config": "x: 1"}):
        with pytest.raises(Invalid):
            DeliveryPiece.from_json(wrong)
