"""A .keras archive is looked at before anything is unpacked; its directory is read here, not there.

Theory. A zip file says everything twice: in the directory at its end, and in a header before each
member. Readers differ in which they believe, and bombs live on that: members that overlap, sizes
that lie, a directory of millions of entries. Keras writes archives with Python's `zipfile`: no
comment, nothing before the first member, members stored as they are. So here everything has to
agree, the directory has to end the file, and members lie one behind the other. Only then does
`zipfile` open it, which never inflates beyond the size that a member declares.

Source: PKWARE's APPNOTE 6.3, sections 4.3.7, 4.3.12, 4.3.14 to 4.3.16; "A better zip bomb" (2019).
"""

import re
import stat
import struct
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO
from zlib import error as ZlibError

from serve.workbench.conversion.faults import failed
from serve.workbench.conversion.sources.kinds import HDF5, PICKLES, ZIP, is_pickle

CONFIG, METADATA, WEIGHTS = "config.json", "metadata.json", "model.weights.h5"
MOST_MEMBERS = 10_000
MOST_CONFIG = 32 << 20  # bytes of config.json; that of a large transformer has 2 MB
MOST_DIRECTORY = 8 << 20  # bytes
SLACK, RATIO = 64 << 20, 100  # bytes that any archive may have inflated; beyond, times its own size
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9 ._+\-]{0,199}")  # one part of a member's name
_ARCHIVES = (".zip", ".keras", ".npz", ".tar", ".gz", ".tgz", ".bz2", ".xz", ".7z", ".rar", ".zst")
_STARTS = (ZIP, b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00", b"7z\xbc\xaf", b"Rar!", b"\x28\xb5\x2f\xfd")
_END = struct.Struct("<4s4H2LH")
_LOCATOR = struct.Struct("<4sLQL")
_END64 = struct.Struct("<4sQ2H2L4Q")
_LOCAL = struct.Struct("<4s5H3L2H")
_DESCRIBED, _ENCRYPTED = 0x08, 0x01  # flags: sizes stand behind the member; a password is needed
_SIZES64 = 0xFFFFFFFF  # the sizes stand in an extra field


def check_archive(path: Path, *, most: int) -> None:
    """`archive_unsafe`, `pickle_refused`, `source_too_large` or `source_corrupt`.

    At most `most` bytes may come out of it.
    """
    try:
        with path.open("rb") as file:
            start = _directory(file, path.stat().st_size)
            with zipfile.ZipFile(file) as archive:
                members = archive.infolist()
                _check_names(members)
                _check_sizes(members, path.stat().st_size, most)
                _check_places(file, members, start)
                for member in members:
                    _check_content(archive, member)
    except _BROKEN as error:
        raise failed(
            "source_corrupt", f"'{path.name}' is not a complete archive: {error}"
        ) from error


def read_config(path: Path) -> bytes:
    """config.json of an archive that has been checked."""
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.read(CONFIG)
    except _BROKEN as error:
        raise failed(
            "source_corrupt", f"'{path.name}' is not a complete archive: {error}"
        ) from error


_BROKEN = (
    *(zipfile.BadZipFile, zipfile.LargeZipFile, ZlibError, struct.error),
    *(EOFError, OSError, NotImplementedError, ValueError, KeyError, OverflowError),
)


def _directory(file: BinaryIO, size: int) -> int:
    """Where the directory begins, whose end has to be the end of the file."""
    if size < _END.size:
        raise failed("source_corrupt", "it is too short for an archive")
    file.seek(size - _END.size)
    sign, disk, disk_of, here, entries, length, offset, comment = _END.unpack(file.read(_END.size))
    if sign != b"PK\x05\x06":
        raise failed("source_corrupt", "it is truncated, or not an archive")
    end = size - _END.size
    if end >= _LOCATOR.size + _END64.size:
        file.seek(end - _LOCATOR.size)
        locator = _LOCATOR.unpack(file.read(_LOCATOR.size))
        if locator[0] == b"PK\x06\x07":
            end -= _LOCATOR.size + _END64.size
            file.seek(end)
            sign, _, _, _, disk, disk_of, here, entries, length, offset = _END64.unpack(
                file.read(_END64.size)
            )
            if sign != b"PK\x06\x06" or locator[2] != end:
                raise _unsafe("its two end records contradict each other")
    if comment or disk or disk_of or here != entries or offset + length != end:
        raise _unsafe("its central directory is not at the end of the file")
    if entries > MOST_MEMBERS or length > MOST_DIRECTORY:
        raise _unsafe(f"it has {entries} members, more than {MOST_MEMBERS}")
    return int(offset)


def _check_names(members: Iterable[zipfile.ZipInfo]) -> None:
    seen: set[str] = set()
    for member in members:
        name = member.orig_filename
        parts = name.removesuffix("/").split("/")
        if not all(_PLAIN.fullmatch(part) for part in parts):
            raise _unsafe(f"the name {name[:200]!r} is not safe")
        if name.casefold() in seen:
            raise _unsafe(f"it contains '{name}' twice")
        seen.add(name.casefold())
        kind = stat.S_IFMT(member.external_attr >> 16)
        if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise _unsafe(f"'{name}' is not a regular file")
        if member.flag_bits & _ENCRYPTED:
            raise _unsafe(f"'{name}' is encrypted")
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise _unsafe(f"'{name}' uses an unsupported compression")
        lower = name.lower()
        if lower.endswith(PICKLES):
            raise failed("pickle_refused", f"'{name}'", hint="save the model again with Keras")
        if lower.endswith(_ARCHIVES):
            raise _unsafe(f"'{name}' is an archive inside the archive")
        if len(parts) == 1 and not name.endswith("/") and name not in (CONFIG, METADATA, WEIGHTS):
            raise _unsafe(f"'{name}' does not belong in it")
        if len(parts) > 1 and parts[0] != "assets":
            raise _unsafe(f"'{name}' does not belong in it")
    if CONFIG not in seen:
        raise failed("source_corrupt", f"it has no {CONFIG}")


def _check_sizes(members: Iterable[zipfile.ZipInfo], size: int, most: int) -> None:
    total = 0
    for member in members:
        total += member.file_size
        if member.filename == CONFIG and member.file_size > MOST_CONFIG:
            raise failed(
                "source_too_large",
                f"its {CONFIG} has {member.file_size} bytes, the limit is {MOST_CONFIG}",
            )
        if member.compress_type == zipfile.ZIP_STORED and member.file_size != member.compress_size:
            raise _unsafe(f"'{member.filename}' declares a false size")
    if total > max(SLACK, RATIO * size):
        raise _unsafe(f"{size} bytes would expand to {total} (zip bomb)")
    if total > most:
        raise failed("source_too_large", f"it would expand to {total} bytes, the limit is {most}")


def _check_places(file: BinaryIO, members: Iterable[zipfile.ZipInfo], end: int) -> None:
    """Every member begins where the one before it has ended, and says of itself what is said."""
    free = 0
    for member in sorted(members, key=lambda each: each.header_offset):
        if member.header_offset < free:
            raise _unsafe(f"'{member.filename}' overlaps another member")
        file.seek(member.header_offset)
        sign, _, flags, method, _, _, checksum, packed, size, name, extra = _LOCAL.unpack(
            file.read(_LOCAL.size)
        )
        said = file.read(name).decode("utf-8" if flags & 0x800 else "cp437")
        truth = (member.CRC, member.compress_size, member.file_size)
        shown = [(own, true) for own, true in zip((checksum, packed, size), truth, strict=True)]
        is_silent = flags & _DESCRIBED
        agrees = is_silent or all(own in (true, _SIZES64) for own, true in shown)
        is_same = (said, method) == (member.orig_filename, member.compress_type)
        if sign != b"PK\x03\x04" or not is_same or not agrees:
            raise _unsafe(f"the header of '{member.orig_filename}' contradicts the directory")
        free = member.header_offset + _LOCAL.size + name + extra + member.compress_size
        if free > end:
            raise _unsafe(f"'{member.filename}' overlaps the central directory")


def _check_content(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> None:
    """The small files whole; of all others the first bytes, by which archives and pickles show."""
    if member.is_dir():
        return
    with archive.open(member) as stream:
        if member.filename in (CONFIG, METADATA):
            stream.read(MOST_CONFIG)
            return
        start = stream.read(8)
    if is_pickle(start):
        raise failed("pickle_refused", f"'{member.filename}'")
    if start.startswith(_STARTS):
        raise _unsafe(f"'{member.filename}' is an archive inside the archive")
    if member.filename == WEIGHTS and start != HDF5:
        raise failed("source_corrupt", f"'{WEIGHTS}' is not an HDF5 file")


def _unsafe(why: str) -> Exception:
    return failed("archive_unsafe", why)
