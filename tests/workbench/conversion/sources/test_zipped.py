"""Archives of strangers: each lie that a zip file can tell, refused before anything is unpacked."""

import io
import stat
import struct
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from refusals import refusal

from serve.core.errors import ConversionFailed
from serve.workbench.conversion.sources.zipped import check_archive

from .archives import archive, flipped, members, tenths

MOST = 1 << 30
LOCAL, CENTRAL = b"PK\x03\x04", b"PK\x01\x02"


def code(path: Path, most: int = MOST) -> str:
    return refusal(ConversionFailed, check_archive, path, most=most).code


@pytest.fixture
def good(tmp_path: Path) -> Path:
    return archive(tmp_path / "m.keras", members())


def test_an_archive_as_keras_writes_it_is_fine(good: Path) -> None:
    check_archive(good, most=MOST)
    vocabulary = members(assets__layers__lookup__vocabulary_txt=b"a\nb\n")
    check_archive(archive(good, vocabulary, packed=True), most=MOST)


def test_an_archive_cut_off_anywhere_is_corrupt(good: Path) -> None:
    for path in tenths(good):
        assert code(path) == "source_corrupt"


def test_random_bytes_with_the_sign_of_an_archive_are_corrupt(tmp_path: Path) -> None:
    path = tmp_path / "m.keras"
    path.write_bytes(LOCAL + np.random.default_rng(0).bytes(10_000))
    assert code(path) == "source_corrupt"


def test_a_bomb_is_told_by_what_would_come_out_of_it(good: Path) -> None:
    bomb = members(assets__zeros=bytes(200 << 20))
    begun = time.monotonic()
    assert code(archive(good, bomb, packed=True)) == "archive_unsafe"
    assert time.monotonic() - begun < 10


def test_what_comes_out_may_not_exceed_the_limit(good: Path) -> None:
    assert code(good, most=1000) == "source_too_large"


def test_too_many_members_are_refused_before_they_are_listed(tmp_path: Path) -> None:
    many = {f"assets/{n}": b"" for n in range(10_001)}
    assert code(archive(tmp_path / "m.keras", members() | many)) == "archive_unsafe"


def test_names_that_lead_out_or_do_not_belong_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.keras"
    check_archive(archive(path, members() | {"assets/": b""}), most=MOST)  # a folder is fine
    unsafe = ["../evil", "/etc/passwd", "assets/../../evil", "assets\\..\\evil", "C:evil"]
    unsafe += ["evil.py", "assets/..", "other/file", "assets/a\x01b", "model.weights.h5/x"]
    unsafe += ["assets/a.zip", "assets/b.npz", "assets/c.tar.gz", "x.keras"]  # archives inside
    for name in unsafe:
        assert code(archive(path, members() | {name: b"x"})) == "archive_unsafe", name
    both_cases = members(assets__a=b"1", assets__A=b"2")  # one file where case does not matter
    assert code(archive(path, both_cases)) == "archive_unsafe"
    for name in ("weights.pkl", "assets/a.joblib", "assets/b.pt", "x.PICKLE"):
        assert code(archive(path, members() | {name: b"x"})) == "pickle_refused", name


def test_what_a_member_really_is_counts(good: Path) -> None:
    inner = io.BytesIO()
    np.savez(inner, a=np.zeros(3))
    rows: list[tuple[str, bytes, str]] = [
        ("assets/a", inner.getvalue(), "archive_unsafe"),
        ("assets/a", b"\x80\x04\x95abc", "pickle_refused"),
        ("model.weights.h5", b"x" * 99, "source_corrupt"),
        ("config.json", b" " * (33 << 20), "source_too_large"),
    ]
    for name, data, fault in rows:
        assert code(archive(good, members() | {name: data})) == fault, name


def test_links_and_devices_are_refused(tmp_path: Path) -> None:
    for kind in (stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR, stat.S_IFSOCK):
        path = archive(tmp_path / "m.keras", members())
        entry = zipfile.ZipInfo("assets/link")
        entry.external_attr = (kind | 0o777) << 16
        with zipfile.ZipFile(path, "a") as file:
            file.writestr(entry, b"/etc/passwd")
        assert code(path) == "archive_unsafe", oct(kind)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_name_that_is_there_twice_is_refused(good: Path) -> None:
    with zipfile.ZipFile(good, "a") as file:
        file.writestr("config.json", b"{}")
    assert code(good) == "archive_unsafe"


def rename(data: bytearray) -> None:
    """The member's own header calls it otherwise."""
    place = data.index(b"metadata.json")
    data[place : place + 4] = b"evil"


def overlap(data: bytearray) -> None:
    """Two entries of the directory are one member, as in the bomb of 2019."""
    first = data.index(CENTRAL)
    second = data.index(CENTRAL, first + 4)
    data[second + 42 : second + 46] = data[first + 42 : first + 46]


def number_in(header: bytes, place: int, value: int) -> Callable[[bytearray], None]:
    """Another number in the first header of this kind."""
    return lambda data: struct.pack_into("<L", data, data.index(header) + place, value)


@pytest.mark.parametrize(
    "lie",
    [
        rename,
        overlap,
        number_in(LOCAL, 18, 5),  # the two headers differ in the packed size
        number_in(LOCAL, 22, 5),  # and in the size
        number_in(CENTRAL, 24, 1 << 24),  # a stored member is larger than what is there
        number_in(CENTRAL, 8, 1),  # it is encrypted
    ],
)
def test_a_header_that_lies_is_refused(lie: Callable[[bytearray], None], good: Path) -> None:
    data = bytearray(good.read_bytes())
    lie(data)
    good.write_bytes(data)
    assert code(good) == "archive_unsafe"


def test_damage_inside_of_the_configuration_is_found(good: Path) -> None:
    data = bytearray(good.read_bytes())
    data[data.index(b'"class_name"')] = 0
    good.write_bytes(data)
    assert code(good) == "source_corrupt"


def test_a_directory_in_the_middle_is_not_believed(good: Path) -> None:
    whole = good.read_bytes()
    good.write_bytes(b"#!/bin/sh\n" + whole)
    assert code(good) == "archive_unsafe"
    good.write_bytes(whole + b"more")
    assert code(good) == "source_corrupt"


def test_any_byte_may_be_wrong_without_another_error(good: Path) -> None:
    for path in flipped(good, seed=1, times=300):
        try:
            check_archive(path, most=MOST)
        except ConversionFailed:
            pass
