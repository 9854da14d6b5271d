"""Folders for a while: gone at the end, and swept where a killed process has left them."""

import os
import time
from pathlib import Path

import pytest

from serve.workbench.conversion.temporary import sweep, temporary

LEFT = "work-0123456789ab"
LATER = time.time() + 3600


def old(folder: Path) -> Path:
    """A folder with a file, made long ago."""
    folder.mkdir()
    (folder / "model.onnx").write_bytes(b"half")
    os.utime(folder, (1, 1))
    return folder


def test_a_folder_is_gone_at_the_end_however_that_comes(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), temporary(tmp_path, "work-") as folder:
        (folder / "file").touch()
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_has_left_is_removed(tmp_path: Path) -> None:
    old(tmp_path / LEFT)
    with temporary(tmp_path, "work-"):
        assert not (tmp_path / LEFT).exists()


def test_a_folder_that_somebody_works_in_is_left_alone(tmp_path: Path) -> None:
    with temporary(tmp_path, "work-") as folder:
        sweep(tmp_path, "work-", older_than=LATER)
        assert folder.is_dir()


def test_only_folders_of_that_name_are_swept_and_no_link_is_followed(tmp_path: Path) -> None:
    mine = old(tmp_path / "mine")
    (tmp_path / LEFT).symlink_to(mine)
    old(tmp_path / "work-papers")
    sweep(tmp_path, "work-", older_than=LATER)
    assert (mine / "model.onnx").is_file() and (tmp_path / "work-papers").is_dir()
