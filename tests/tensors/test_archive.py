"""NPZ archives, sound and hostile."""

import io
import random
import tracemalloc
import zipfile

import numpy as np
import pytest
from refusals import refusal

from serve.core.errors import Invalid
from serve.tensors.archive import MOST_ARRAYS, read_archive, write_archive

MOST = 1 << 20


def packed(**members: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return file.getvalue()


def npy(descr: str, shape: str, body: bytes = b"") -> bytes:
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + body


def saved(**arrays) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


def test_numbers_come_back_as_they_were_and_big_endian_ones_as_native() -> None:
    for array in (
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.asfortranarray(np.arange(6, dtype=np.int64).reshape(2, 3)),
        np.array(7, np.uint8),
        np.zeros((0, 3), np.float16),
        np.array([True, False]),
    ):
        (read,) = read_archive(write_archive({"x": array}, most=MOST), most=MOST).values()
        assert read.dtype == array.dtype, array
        assert np.array_equal(read, array), array
    read = read_archive(saved(x=np.array([1, 2], ">i4")), most=MOST)["x"]
    assert read.dtype == np.int32
    assert read.tolist() == [1, 2]


def test_texts_are_bytes_outside_of_the_file_and_equal_arrays_are_equal_files():
    texts = np.array([["é", b"\xff"], ["", "long"]], object)
    written = write_archive({"t": texts, "input/x": np.ones(3)}, most=MOST)
    assert write_archive({"t": texts, "input/x": np.ones(3)}, most=MOST) == written
    read = read_archive(written, most=MOST)["t"]
    assert read.tolist() == [["é".encode(), b"\xff"], [b"", b"long"]]
    assert read_archive(saved(t=np.array(["é"])), most=MOST)["t"].tolist() == ["é".encode()]


def test_texts_that_the_format_would_lose_or_that_grow_beyond_the_bound_are_refused():
    for texts, said in (
        ([b"a\0"], "do not end with a zero byte"),
        ([b"x" * 1000] + [b"y"] * 2000, "too large"),  # one long text makes all others as long
    ):
        with pytest.raises(Invalid, match=said):
            write_archive({"t": np.array(texts, object)}, most=MOST)


def test_a_header_that_lies_or_a_kind_that_is_no_tensor_is_refused() -> None:
    for content in (
        npy("'|O'", "(1,)", b"\x80\x04N."),
        npy("'<f4'", "(1000000000000,)"),
        npy("'<f4'", "(-1, 4)"),
        npy("'<f4'", "(2,)", b"\0" * 7),
        npy("'<f4'", "(2,)", b"\0" * 9),
        npy("'|S0'", "(1000000000000,)"),
        npy("'<U1'", "(1,)", b"\xff" * 4),
        npy("'<c8'", "(1,)", b"\0" * 8),
        npy("'<M8[s]'", "(1,)", b"\0" * 8),
        npy("[('a', '<f4')]", "(1,)", b"\0" * 4),
        npy("'<f16'", "(1,)", b"\0" * 16),
        npy("'<f4'", "(" + "1," * 40 + ")", b"\0" * 4),
        npy("'<f4'", "(" * 500, b""),
        npy("__import__('os')", "(1,)"),
        b"\x93NUMPY\x03\x00\x00\x00",
        b"no array",
        b"",
    ):
        tracemalloc.start()
        refusal(Invalid, read_archive, packed(x=content), most=MOST)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 4 * MOST, content


def test_too_many_arrays_or_too_much_to_unpack_are_refused():
    bomb = saved(x=np.zeros(64 << 20, np.uint8))
    assert len(bomb) < MOST
    many = packed(**{f"x{n}": b"" for n in range(MOST_ARRAYS + 1)})
    for archive, said in ((bomb, "too large"), (many, "has 1001 arrays")):
        with pytest.raises(Invalid, match=said):
            read_archive(archive, most=MOST)


def test_a_damaged_archive_is_invalid_and_nothing_else():
    whole = saved(x=np.arange(50), t=np.array(["a", "bc"]))
    draw = random.Random(7)
    for _ in range(2000):
        damaged = bytearray(whole)
        for _ in range(draw.randint(1, 4)):
            damaged[draw.randrange(len(damaged))] = draw.randrange(256)
        try:
            read_archive(bytes(damaged[: draw.randint(1, len(damaged))]), most=MOST)
        except Invalid:
            pass
