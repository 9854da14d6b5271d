"""The folder of a SavedModel: plain files, all of them in it, not too many, not too large."""

import os
import stat
from collections.abc import Iterator
from hashlib import file_digest, sha256
from pathlib import Path

from serve.workbench.conversion.faults import failed

MOST_FILES = 10_000
MOST_LEVELS = 16


def check_folder(folder: Path, *, most: int) -> None:
    """`archive_unsafe` for links out of it and what is no file, `source_too_large`."""
    root = folder.resolve()
    count = total = 0
    for path in _walk(folder):
        try:
            found = path.stat()
        except (OSError, ValueError) as error:
            raise failed("source_corrupt", f"'{path.name}' is a broken link") from error
        if path.is_symlink() and (
            not path.resolve().is_relative_to(root) or stat.S_ISDIR(found.st_mode)
        ):
            raise failed(
                "archive_unsafe",
                f"'{path.relative_to(folder)}' is a link to a folder, or out of the model's folder",
                hint="replace links by copies: cp -rL",
            )
        if stat.S_ISDIR(found.st_mode):
            continue
        if not stat.S_ISREG(found.st_mode):
            raise failed("archive_unsafe", f"'{path.name}' is neither a file nor a folder")
        count, total = count + 1, total + found.st_size
        if count > MOST_FILES:
            raise failed("source_too_large", f"it has more than {MOST_FILES} files")
        if total > most:
            raise failed("source_too_large", f"it has more than {most} bytes")


def _walk(folder: Path, level: int = 0) -> Iterator[Path]:
    """Everything below, links as such."""
    if level > MOST_LEVELS:
        raise failed(
            "archive_unsafe", f"its folders are nested more than {MOST_LEVELS} levels deep"
        )
    seen = 0
    with os.scandir(folder) as entries:
        for entry in entries:
            seen += 1
            if seen > MOST_FILES:
                raise failed("source_too_large", f"it has more than {MOST_FILES} files")
            path = folder / entry.name
            yield path
            if entry.is_dir(follow_symlinks=False):
                yield from _walk(path, level + 1)


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files of a folder that has been checked."""
    return sum(each.stat().st_size for _, each in _files(path))


def digest_of(path: Path) -> str:
    """SHA-256 in hexadecimal: of a file, or of the list of a folder's files.

    The list is what `find . -type f | sort | xargs sha256sum` prints in it, with the paths sorted
    as bytes and without `./`.
    """
    if path.is_file():
        return _digest(path)
    lines = (f"{_digest(each)}  {name}\n".encode() for name, each in _files(path))
    return sha256(b"".join(lines)).hexdigest()


def _files(path: Path) -> list[tuple[str, Path]]:
    if path.is_file():
        return [(path.name, path)]
    found = ((each.relative_to(path).as_posix(), each) for each in _walk(path) if each.is_file())
    return sorted(found, key=lambda each: each[0].encode("utf-8", "surrogateescape"))


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()
