"""Digests of files: right, counted, and taken of files that stand still."""

import hashlib
import os
from pathlib import Path

import pytest

from serve.cli.digests import digest
from serve.cli.pieces import UploadPiece
from serve.core.errors import Conflict, Invalid


def test_every_piece_gets_its_digest_in_its_place(tmp_path: Path) -> None:
    counted: list[int] = []
    (tmp_path / "large").write_bytes(bytes(3 << 20))
    (tmp_path / "none").write_bytes(b"")
    pieces = [
        UploadPiece("a", b"abc"),
        UploadPiece("b", tmp_path / "large"),
        UploadPiece("c", tmp_path / "none"),
    ]
    blobs = digest(pieces, counted.append)
    assert [(blob.file.path, blob.file.size) for blob in blobs] == [
        ("a", 3),
        ("b", 3 << 20),
        ("c", 0),
    ]
    assert blobs[1].file.sha256 == hashlib.sha256(bytes(3 << 20)).hexdigest()
    assert sum(counted) == (3 << 20) + 3
    with pytest.raises(Invalid, match="gone cannot be read: No such file"):
        digest([UploadPiece("a", tmp_path / "gone")], lambda count: None)


def test_a_file_that_grows_while_it_is_read_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(bytes(2 << 20))

    def grow(count: int) -> None:
        with path.open("ab") as file:
            file.write(b"x")

    with pytest.raises(Conflict, match="changed during the push"):
        digest([UploadPiece("a", path)], grow)


def test_a_file_that_changed_since_its_digest_is_not_opened(tmp_path: Path) -> None:
    path, other = tmp_path / "a", tmp_path / "b"

    def replace() -> None:
        other.write_bytes(b"abd")
        other.rename(path)

    for change in (lambda: os.utime(path, ns=(1, 1)), replace, lambda: path.write_bytes(b"abcd")):
        path.write_bytes(b"abc")
        [blob] = digest([UploadPiece("a", path)], lambda count: None)
        with blob.open() as file:
            assert file.read() == b"abc"
        change()
        with pytest.raises(Conflict, match="changed during the push"):
            blob.open()
