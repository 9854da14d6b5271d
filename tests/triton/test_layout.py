"""The layout of a model repository: which folders count, what is read, and what has changed."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from builders import write_model
from refusals import refusal

from serve.core.errors import Invalid
from serve.triton.layout import ModelFolder, model_folders


@pytest.fixture
def folder(tmp_path: Path) -> ModelFolder:
    """A model with versions 1 and 2."""
    return ModelFolder(write_model(tmp_path))


def test_versions_are_numbered_folders_in_ascending_order(folder: ModelFolder) -> None:
    for name in ("10", "9", "0", "01", "-1", "1.0", "٣", "new"):
        (folder.path / name).mkdir()
    (folder.path / "77").write_text("a file")
    (folder.path / "78").symlink_to("nowhere")
    (folder.path / "79").symlink_to(folder.path / "1")
    assert folder.versions() == (1, 2, 9, 10, 79)


def test_models_are_folders_by_name(tmp_path: Path) -> None:
    for name in ("b", "a", ".hidden"):
        (tmp_path / name).mkdir()
    (tmp_path / "file").write_text("")
    (tmp_path / "linked").symlink_to(tmp_path / "a")
    assert [one.name for one in model_folders(tmp_path)] == ["a", "b", "linked"]


def test_a_repository_that_is_no_folder_is_told_with_its_flag(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for name in ("gone", "file"):
        assert "--model-repo" in refusal(Invalid, model_folders, tmp_path / name).try_this


def test_what_is_not_there_is_none(folder: ModelFolder) -> None:
    (folder.path / "config.pbtxt").unlink()
    assert folder.config_text() is None
    assert folder.document("model_card.json") is None


def test_labels_are_lines_of_a_file_in_the_folder(folder: ModelFolder) -> None:
    (folder.path / "1" / "labels.txt").write_text("null\r\neins\nzwölf")
    assert folder.labels("1/labels.txt") == ("null", "eins", "zwölf")
    (folder.path.parent / "secret").write_text("secret")
    for file in ("../secret", "a/../../secret", "/etc/passwd", "gone.txt"):
        refusal(Invalid, folder.labels, file)


CHANGES: dict[str, Callable[[Path], object]] = {
    "a new version": lambda path: (path / "3").mkdir(),
    "a version that has gone": lambda path: (path / "2").rename(path.parent / "2"),
    "another size": lambda path: (path / "1" / "model.onnx").write_bytes(b"a longer model"),
    "another time": lambda path: os.utime(path / "1" / "model.onnx", ns=(1, 1)),
    "a file deep inside": lambda path: (path / "1" / "a" / "b").mkdir(parents=True),
    "another name": lambda path: (path / "config.pbtxt").rename(path / "config.old"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_the_fingerprint_changes_whenever_a_file_does(
    folder: ModelFolder, change: Callable[[Path], object]
) -> None:
    before = folder.fingerprint()
    assert folder.fingerprint() == before
    change(folder.path)
    assert folder.fingerprint() != before


def test_what_pythons_leave_behind_is_no_change(folder: ModelFolder) -> None:
    cache = folder.path / "1" / "__pycache__"
    cache.mkdir()
    before = folder.fingerprint()
    (cache / "model.cpython-311.pyc").write_bytes(b"code")
    assert folder.fingerprint() == before


def test_a_link_that_leads_in_a_circle_ends(folder: ModelFolder) -> None:
    (folder.path / "1" / "circle").symlink_to(folder.path)
    assert "circle" in folder.fingerprint()
