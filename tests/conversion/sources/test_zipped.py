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

from serve.conversion.sources.zipped import check_archive
from serve.core.errors import ConversionFailed

from .archives import archive, members

MOST = 1 << 30
LOCAL, CENTRAL = b"PK\x03\x04", b"PK\x01\x02"


def code(path: Path, most: int = MOST) -> str:
    with pytest.raises(ConversionFailed) as told:
        check_archive(path, most=most)
    return told.value.code


def changed(path: Path, change: Callable[[bytearray], None]) -> Path:
    data = bytearray(path.read_bytes())
    change(data)
    path.write_bytes(data)
    return path


@pytest.fixture
def good(tmp_path: Path) -> Path:
    return archive(tmp_path / "m.keras", members())


def test_an_archive_as_keras_writes_it_is_fine(good: Path) -> None:
    check_archive(good, most=MOST)
    vocabulary = members(assets__layers__lookup__vocabulary_txt=b"a\nb\n")
    check_archive(archive(good, vocabulary, packed=True), most=MOST)


def test_an_archive_cut_off_anywhere_is_corrupt(good: Path) -> None:
    whole = good.read_bytes()
    for tenth in range(10):
        good.write_bytes(whole[: len(whole) * tenth // 10])
        assert code(good) == "source_corrupt", tenth


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


def test_a_huge_configuration_is_too_large(good: Path) -> None:
    path = archive(good, members() | {"config.json": b" " * (33 << 20)})
    assert code(path) == "source_too_large"


def test_too_many_members_are_refused_before_they_are_listed(tmp_path: Path) -> None:
    many = {f"assets/{n}": b"" for n in range(10_001)}
    assert code(archive(tmp_path / "m.keras", members() | many)) == "archive_unsafe"


@pytest.mark.parametrize(
    "name",
    [
        "../evil",
        "/etc/passwd",
        "assets/../../evil",
        "assets\\..\\evil",
        "assets/",
        "C:evil",
        "evil.py",
        "assets/..",
        "other/file",
        "assets/a\x01b",
        "model.weights.h5/x",
    ],
)
def test_names_that_lead_out_or_do_not_belong_are_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "m.keras"
    if name == "assets/":  # a folder itself is fine
        check_archive(archive(path, members() | {name: b""}), most=MOST)
        return
    assert code(archive(path, members() | {name: b"x"})) == "archive_unsafe"


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_name_that_is_there_twice_is_refused(good: Path) -> None:
    with zipfile.ZipFile(good, "a") as file:
        file.writestr("config.json", b"{}")
    assert code(good) == "archive_unsafe"


def test_names_that_differ_in_case_only_are_the_same(good: Path) -> None:
    assert code(archive(good, members(assets__a=b"1", assets__A=b"2"))) == "archive_unsafe"


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR, stat.S_IFSOCK])
def test_links_and_devices_are_refused(kind: int, good: Path) -> None:
    entry = zipfile.ZipInfo("assets/link")
    entry.external_attr = (kind | 0o777) << 16
    with zipfile.ZipFile(good, "a") as file:
        file.writestr(entry, b"/etc/passwd")
    assert code(good) == "archive_unsafe"


@pytest.mark.parametrize("name", ["assets/a.zip", "assets/b.npz", "assets/c.tar.gz", "x.keras"])
def test_archives_in_an_archive_are_refused(name: str, good: Path) -> None:
    assert code(archive(good, members() | {name: b"x"})) == "archive_unsafe"


def test_an_archive_by_any_other_name_is_one(good: Path) -> None:
    inner = io.BytesIO()
    np.savez(inner, a=np.zeros(3))
    assert code(archive(good, members(assets__a=inner.getvalue()))) == "archive_unsafe"


@pytest.mark.parametrize("name", ["weights.pkl", "assets/a.joblib", "assets/b.pt", "x.PICKLE"])
def test_pickles_are_refused_by_name(name: str, good: Path) -> None:
    assert code(archive(good, members() | {name: b"x"})) == "pickle_refused"


def test_pickles_are_refused_by_their_first_bytes(good: Path) -> None:
    assert code(archive(good, members(assets__a=b"\x80\x04\x95abc"))) == "pickle_refused"


def test_weights_that_are_no_hdf5_are_corrupt(good: Path) -> None:
    assert code(archive(good, members() | {"model.weights.h5": b"x" * 99})) == "source_corrupt"


def test_a_member_may_not_be_called_otherwise_by_its_own_header(good: Path) -> None:
    def rename(data: bytearray) -> None:
        place = data.index(b"metadata.json")
        data[place : place + 4] = b"evil"

    assert code(changed(good, rename)) == "archive_unsafe"


@pytest.mark.parametrize("offset", [18, 22])
def test_sizes_may_not_differ_between_the_two_headers(offset: int, good: Path) -> None:
    def lie(data: bytearray) -> None:
        struct.pack_into("<L", data, data.index(LOCAL) + offset, 5)

    assert code(changed(good, lie)) == "archive_unsafe"


def test_a_stored_member_may_not_promise_more_than_is_there(good: Path) -> None:
    def lie(data: bytearray) -> None:
        struct.pack_into("<L", data, data.index(CENTRAL) + 24, 1 << 24)

    assert code(changed(good, lie)) == "archive_unsafe"


def test_members_may_not_overlap(good: Path) -> None:
    """As in the bomb of 2019: two entries of the directory are one member."""

    def overlap(data: bytearray) -> None:
        first = data.index(CENTRAL)
        second = data.index(CENTRAL, first + 4)
        data[second + 42 : second + 46] = data[first + 42 : first + 46]

    assert code(changed(good, overlap)) == "archive_unsafe"


def test_a_directory_in_the_middle_is_not_believed(good: Path) -> None:
    whole = good.read_bytes()
    good.write_bytes(b"#!/bin/sh\n" + whole)
    assert code(good) == "archive_unsafe"
    good.write_bytes(whole + b"more")
    assert code(good) == "source_corrupt"


def test_an_encrypted_member_is_refused(good: Path) -> None:
    def encrypt(data: bytearray) -> None:
        data[data.index(CENTRAL) + 8] |= 1

    assert code(changed(good, encrypt)) == "archive_unsafe"


def test_damage_inside_of_the_configuration_is_found(good: Path) -> None:
    def damage(data: bytearray) -> None:
        data[data.index(b'"class_name"')] = 0

    assert code(changed(good, damage)) == "source_corrupt"


def test_any_byte_may_be_wrong_without_another_error(good: Path) -> None:
    whole = good.read_bytes()
    chance = np.random.default_rng(1)
    for place in chance.integers(0, len(whole), 300):
        data = bytearray(whole)
        data[place] ^= int(chance.integers(1, 256))
        good.write_bytes(data)
        try:
            check_archive(good, most=MOST)
        except ConversionFailed:
            pass
