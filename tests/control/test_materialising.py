"""Materialising: a version's folder is whole or absent, whatever ends the process in between."""

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from control.crashing import build
from control.delivering_scene import CONFIG, MODEL, Shelf, drafts, tree
from forking import status

from serve.control.deliveries.repository import is_whole, present, sweep, take_away
from serve.control.deliveries.version_folder import materialise
from serve.control.versions import PublishedVersion
from serve.core.errors import Conflict, DigestMismatch, Invalid
from serve.core.versions import Manifest
from serve.processes.failpoints import STATUS

LABELS = {"labels.txt": b"zero\none\n"}
DOCUMENTS = {"preprocessing.json": b"{}", "model_card.json": b"{}", "contract/contract.json": b"{}"}


class Scene:
    def __init__(self, folder: Path) -> None:
        self.shelf = Shelf(folder / "shelf")
        self.repository = folder / "repository"

    def manifest(self, version: PublishedVersion) -> Manifest:
        return self.shelf.manifests[version.model, version.number]

    def build(self, version: PublishedVersion) -> None:
        asyncio.run(
            materialise(self.shelf, self.manifest(version), version.config, self.repository)
        )

    def is_whole(self, version: PublishedVersion) -> bool:
        return is_whole(self.manifest(version), version.config, self.repository)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_triton_finds_the_configuration_what_lies_beside_it_and_the_version(scene: Scene) -> None:
    version = scene.shelf.publish(beside=LABELS | DOCUMENTS)
    scene.build(version)
    assert tree(scene.repository) == {
        "digits/config.pbtxt": CONFIG.encode(),
        "digits/labels.txt": LABELS["labels.txt"],
        "digits/1/model.onnx": MODEL["model.onnx"],
        "digits/1/assets/words.txt": MODEL["assets/words.txt"],
    }
    assert scene.is_whole(version) and present(scene.repository) == {("digits", 1)}
    assert drafts(scene.repository) == []
    file = scene.manifest(version).layout.version[-1]
    built = scene.repository / "digits" / file.path  # a hard link that nobody may write to
    assert built.samefile(scene.shelf.blob(file.sha256))
    assert built.stat().st_mode & 0o777 == 0o444
    scene.build(scene.shelf.publish(number=3, physical="digits--0123abcd"))
    assert "digits--0123abcd/3/model.onnx" in tree(scene.repository)


def test_a_second_version_leaves_the_files_of_the_first_and_of_the_group_alone(
    scene: Scene,
) -> None:
    def stamps(paths: Iterable[Path]) -> dict[Path, tuple[int, int]]:
        found = {path: path.stat() for path in paths if path.is_file()}
        return {path: (one.st_mtime_ns, one.st_ino) for path, one in found.items()}

    scene.build(scene.shelf.publish(beside=LABELS))
    before = stamps(scene.repository.glob("digits/**/*"))
    scene.shelf.fetched.clear()
    scene.build(scene.shelf.publish(number=2, beside=LABELS))
    assert stamps(before) == before
    assert "labels.txt" not in scene.shelf.fetched
    assert present(scene.repository) == {("digits", 1), ("digits", 2)}


def test_a_damaged_blob_never_reaches_triton(scene: Scene) -> None:
    version = scene.shelf.publish()
    blob = scene.shelf.blob(scene.manifest(version).layout.version[-1].sha256)
    blob.chmod(0o644)
    blob.write_bytes(b"weights of ONE")
    with pytest.raises(DigestMismatch, match="damaged"):
        scene.build(version)
    assert set(tree(scene.repository)) == {"digits/config.pbtxt"}
    assert not scene.is_whole(version) and drafts(scene.repository) == []


@pytest.mark.parametrize(
    "path", ["digits/1/model.onnx", "digits/labels.txt", "digits/config.pbtxt"]
)
@pytest.mark.parametrize("damage", ["missing", "shorter"])
def test_what_was_tampered_with_is_built_anew(scene: Scene, path: str, damage: str) -> None:
    version = scene.shelf.publish(beside=LABELS)
    scene.build(version)
    good = tree(scene.repository)
    (scene.repository / path).unlink()
    if damage == "shorter":
        (scene.repository / path).write_bytes(b"x")
    assert not scene.is_whole(version)
    scene.build(version)
    assert tree(scene.repository) == good and scene.is_whole(version)


def test_other_content_of_the_same_size_is_not_taken_for_the_version(scene: Scene) -> None:
    scene.build(scene.shelf.publish())
    other = scene.shelf.publish(files={**MODEL, "model.onnx": b"weights of two"})
    assert not scene.is_whole(other)
    scene.build(other)
    assert tree(scene.repository)["digits/1/model.onnx"] == b"weights of two"


def test_a_configuration_that_was_not_published_is_refused(scene: Scene) -> None:
    version = replace(scene.shelf.publish(), config='backend: "python"\n')
    with pytest.raises(Invalid, match="differs from the published one"):
        scene.build(version)
    assert tree(scene.repository) == {}


@pytest.mark.parametrize("theirs", ["digits", "digits/1"])
def test_a_folder_that_is_not_ours_is_neither_changed_nor_removed(
    scene: Scene, theirs: str
) -> None:
    if theirs == "digits/1":
        scene.build(scene.shelf.publish(number=2))
    (scene.repository / theirs).mkdir(parents=True)
    (scene.repository / theirs / "precious").write_text("theirs")
    version = scene.shelf.publish()
    with pytest.raises(Conflict, match="was not created by Servegate"):
        scene.build(version)
    take_away(scene.repository, ("digits", 2))
    assert (scene.repository / theirs / "precious").read_text() == "theirs"


def test_a_link_in_the_place_of_a_model_is_not_followed(scene: Scene, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    scene.repository.mkdir()
    (scene.repository / "digits").symlink_to(elsewhere)
    with pytest.raises(Conflict):
        scene.build(scene.shelf.publish())
    assert list(elsewhere.iterdir()) == []


def test_the_last_version_of_a_name_takes_the_groups_files_with_it_and_no_blob(
    scene: Scene,
) -> None:
    versions = [scene.shelf.publish(number=number, beside=LABELS) for number in (1, 2)]
    for version in versions:
        scene.build(version)
    take_away(scene.repository, ("digits", 1))
    assert "digits/labels.txt" in tree(scene.repository)
    assert present(scene.repository) == {("digits", 2)}
    take_away(scene.repository, ("digits", 2))
    assert tree(scene.repository) == {} and not (scene.repository / "digits").exists()
    assert present(scene.repository) == frozenset()
    file = scene.manifest(versions[0]).layout.version[-1]
    assert scene.shelf.blob(file.sha256).stat().st_size == file.size
    scene.build(versions[0])  # it can come again
    assert scene.is_whole(versions[0])


@pytest.mark.parametrize(
    ("place", "there"), [("delivery.drafted", False), ("delivery.renamed", True)]
)
def test_a_process_that_dies_in_between_leaves_the_version_absent_or_whole(
    scene: Scene, place: str, there: bool
) -> None:
    assert status(build, scene.shelf.folder, scene.repository, place) == STATUS
    version = scene.shelf.publish(beside={"labels.txt": b"zero"})
    assert scene.is_whole(version) is there
    assert ("digits/1/model.onnx" in tree(scene.repository)) is there
    assert drafts(scene.repository) != []
    sweep(scene.repository)
    assert drafts(scene.repository) == []
    scene.build(version)
    assert scene.is_whole(version)
