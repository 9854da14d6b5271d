"""Sending a dataset: a file as it is, a folder as a ZIP archive of its pictures."""

import contextlib
import re
import tempfile
import zipfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlencode

from serve.cli.client import AdminClient, error_of, no_answer, segment
from serve.cli.talk import CommandTalk, amount, stage
from serve.core.errors import Invalid

FORMATS = {".csv": "csv", ".npz": "npz", ".parquet": "parquet", ".zip": "zip"}
_PIECE = 1 << 20  # bytes
_PATIENCE = 1800.0  # seconds: every row is looked at before the answer comes
_ODD = re.compile(r"[^A-Za-z0-9._-]+")


def name_of(path: Path) -> str:
    """What a dataset is called if nobody says: as its file or folder, without odd characters."""
    stem = path.resolve().name if path.is_dir() else path.stem
    return _ODD.sub("-", stem).strip("-._")[:100] or "dataset"


async def push(
    admin: AdminClient, path: Path, name: str, label: str, slices: str, talk: CommandTalk
) -> Any:
    """Send a file or a folder; gives the dataset as the gateway shows it."""
    import httpx2

    with _packed(path, talk) as (file, file_format):
        size = file.seek(0, 2)
        file.seek(0)
        query = urlencode({"format": file_format, "label": label, "slices": slices})
        target = f"/api/datasets/{segment(name)}?{query}"
        async with admin.asynchronous() as client:
            with stage(talk, "sending", size):
                try:
                    answer = await client.put(
                        target,
                        content=_pieces(file, talk),
                        timeout=_PATIENCE,
                        headers={"content-length": str(size)},
                    )
                except (httpx2.HTTPError, httpx2.InvalidURL) as error:
                    raise no_answer(admin.url, error) from error
    if not answer.is_success:
        raise error_of(answer)
    return answer.json()


@contextlib.contextmanager
def _packed(path: Path, talk: CommandTalk) -> Iterator[tuple[BinaryIO, str]]:
    """The bytes to send, and their format."""
    if path.is_dir():
        with tempfile.TemporaryFile() as archive:
            _zip(path, archive, talk)
            yield archive, "zip"
        return
    file_format = FORMATS.get(path.suffix.lower())
    if file_format is None:
        raise Invalid(
            f"'{path}' is not a dataset",
            why=f"expected a folder of pictures, or a {', '.join(FORMATS)} file",
        )
    try:
        file = path.open("rb")
    except OSError as error:
        raise Invalid(f"cannot read '{path}'", why=error.strerror or str(error)) from error
    with file:
        yield file, file_format


def _zip(folder: Path, archive: BinaryIO, talk: CommandTalk) -> None:
    """Every file of a folder, uncompressed: pictures are compressed already."""
    count = size = 0
    try:
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as packed:
            for path in sorted(folder.rglob("*")):
                inside = path.relative_to(folder).as_posix()
                if path.is_file() and not any(part.startswith(".") for part in inside.split("/")):
                    packed.writestr(zipfile.ZipInfo(inside), path.read_bytes())
                    count, size = count + 1, size + path.stat().st_size
    except OSError as error:
        raise Invalid(f"cannot read '{folder}'", why=error.strerror or str(error)) from error
    if not count:
        raise Invalid(f"the folder '{folder}' contains no files")
    talk.tell("packed", f"{count} files, {amount(size)}", files=count, bytes=size)


async def _pieces(file: BinaryIO, talk: CommandTalk) -> AsyncIterator[bytes]:
    while piece := file.read(_PIECE):
        yield piece
        talk.advance(len(piece))
