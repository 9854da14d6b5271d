"""Datasets as they arrive: what is read of each format, and what is refused, with its place."""

import io
import json
import re
import zipfile
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import pytest
from PIL import Image

from serve.core.errors import Invalid
from serve.tensors.input_forms import InputForm
from serve.workbench.evaluation.incoming_rows import (
    BundlePart,
    DatasetFormat,
    Roles,
    read_file,
    read_parts,
)
from serve.workbench.evaluation.pack_writer import PackWriter
from serve.workbench.evaluation.rows import read_table

NO_SUCH_FILE = b"PK\x03\x04 and nothing more"


def png(value=0, size=(8, 8)):
    file = io.BytesIO()
    Image.new("L", size, value).save(file, "PNG")
    return file.getvalue()


def zipped(files):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for path, data in files.items():
            archive.writestr(path, data)
    return file.getvalue()


def npz(**arrays):
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


@pytest.fixture
def rows_of(tmp_path):
    """What is read of a file, as a table; the notes are its second part."""

    def read(data, file_format, slices=()):
        path, notes = tmp_path / "file", []
        path.write_bytes(data)
        writer = PackWriter(Path(mkdtemp(dir=tmp_path)))
        packed = writer.write(
            read_file(path, DatasetFormat(file_format), Roles(slices=slices), notes)
        )
        table = read_table(writer.rows.read_bytes(), writer.data)
        assert packed.rows == len(table.rows)
        return table, notes

    return read


def labels(table, *slices):
    """Of each row its label, and what it says for these slices."""
    return [(row.label, *(row.slices[name] for name in slices)) for row in table.rows]


def test_a_folder_of_pictures_is_labelled_by_its_folders(rows_of):
    data = zipped({"digits/7/a.png": png(1), "digits/3/b.png": png(2), "digits/README.txt": "hi"})
    table, notes = rows_of(data, "zip")
    assert labels(table) == [("3",), ("7",)]
    assert [row.name for row in table.rows] == ["digits/3/b.png", "digits/7/a.png"]
    assert table.cells(1)[""].data == png(1)
    assert table.cells(1)[""].form is InputForm.IMAGE
    assert notes == ["left out (not a picture file): digits/README.txt"]


def test_a_list_names_pictures_their_labels_and_slices(rows_of):
    listed = "path,label,light\na.png,cat,day\n./b/c.png,dog,night\n"
    files = {"pets/labels.csv": listed, "pets/a.png": png(), "pets/b/c.png": png()}
    table, notes = rows_of(zipped({**files, "pets/left.png": png(), ".DS_Store": "x"}), "zip")
    assert labels(table, "light") == [("cat", "day"), ("dog", "night")]
    assert notes == ["left out (not in labels.csv): pets/left.png"]


def test_columns_of_numbers_are_one_vector(rows_of):
    table, _ = rows_of(b"x0,x1,label,site\n1,2.5,7,north\n-3,4,8,south\n", "csv", slices=("site",))
    assert table.vector == ("x0", "x1")
    assert json.loads(table.cells(0)[""].data) == [1, 2.5]
    assert labels(table, "site") == [("7", "north"), ("8", "south")]


def test_a_column_of_lists_or_of_texts_is_an_input_of_its_name(rows_of):
    data = b'image,words,target\n"[[1, 2], [3, 4]]","a, b\nc",yes\n'
    table, _ = rows_of(data, "csv")
    cells = table.cells(0)
    assert (cells["image"].form, cells["image"].data) == (InputForm.JSON, b"[[1, 2], [3, 4]]")
    assert (cells["words"].form, cells["words"].data) == (InputForm.TEXT, b"a, b\nc")


def test_arrays_have_one_row_per_example(rows_of):
    x = np.arange(24, dtype=np.float32).reshape(3, 2, 4)
    data = npz(x=x, labels=np.array([4, 5, 6]), **{"slice/site": np.array(["n", "s", "n"])})
    table, _ = rows_of(data, "npz")
    assert labels(table, "site") == [("4", "n"), ("5", "s"), ("6", "n")]
    assert (np.load(io.BytesIO(table.cells(1)["x"].data)) == x[1]).all()


def test_parquet_has_numbers_lists_texts_and_pictures(rows_of):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    file = io.BytesIO()
    columns = {
        "age": [1.5, 2.0],
        "x": [[1, 2], [3, 4]],
        "photo": [{"bytes": png(3), "path": "a"}, {"bytes": png(4), "path": "b"}],
        "label": [7, 8],
    }
    parquet.write_table(pyarrow.table(columns), file)
    table, _ = rows_of(file.getvalue(), "parquet")
    cells = table.cells(1)
    assert table.vector == ("age",)
    assert json.loads(cells[""].data) == [2.0]
    assert json.loads(cells["x"].data) == [3, 4]
    assert (cells["photo"].form, cells["photo"].data) == (InputForm.IMAGE, png(4))
    assert table.rows[1].label == "8"
    with pytest.raises(Invalid, match="not a readable"):
        rows_of(NO_SUCH_FILE, "parquet")


FOLDERS = [
    ({"a.png": png()}, "'a.png' has no label"),
    ({"7/a.png": b"no picture"}, "'7/a.png' is not a readable picture"),
    ({"7/a.png": png()[:-30]}, "'7/a.png' is not a readable picture"),
    ({"../a.png": png()}, "must stay within its folder"),
    ({"/etc/a.png": png()}, "must stay within its folder"),
    ({"7/..\\a.png": png()}, "must stay within its folder"),
    ({"7\x1b[31m/a.png": png()}, "not printable"),
    ({"x" * 300 + "/a.png": png()}, "at most 200"),
    ({"labels.csv": "path,label\n../../etc/passwd,7\n"}, "there is no such file"),
    ({"labels.csv": "file,label\na,7\n"}, "lacks the columns path and label"),
    ({"README.txt": "hello"}, "no rows"),
]
LINES = [
    (b"", "the file is empty"),
    (b"x,label\n", "no rows"),
    (b"x,y2\n1,2\n", "no label column"),
    (b"label\n1\n", "no columns for the model's inputs"),
    (b"x,x,label\n1,2,3\n", "must be unique"),
    (b"x,label\n1,2\n3\n", "line 3 has 1 cell"),
    (b"x,label\n1,2\nabc,4\n", "line 3: column 'x' has the value 'abc'"),
    (b"x,label\n1,2\n,4\n", "line 3: column 'x' is empty"),
    (b"x,label\n1,2\n3,\n", "row 1 has no label"),
    (b"x,label\n1,2\n3,\x1b]0;owned\n", "row 1: the label"),
    (b'x,label\n"[1, 2",7\n', "line 2, column 'x' is not a valid JSON list"),
    (b'x,label\n"1,7\n', "cannot be read"),
    (b"x,label\n\xff\xfe,1\n", "not UTF-8"),
]
ARRAYS = [
    ({"x": np.zeros(3)}, "there is no array 'labels'"),
    ({"x": np.zeros((3, 2)), "labels": np.zeros(2)}, "'x' has 3 rows"),
    ({"x": np.zeros((3, 2)), "labels": np.zeros((3, 2))}, "several values per row"),
    ({"x": np.float32(3), "labels": np.zeros(2)}, "must be the rows"),
    ({"x": np.array([{}], dtype=object), "labels": np.zeros(1)}, "numbers, booleans"),
    ({"x": np.asfortranarray(np.zeros((2, 3))), "labels": np.zeros(2)}, "Fortran"),
]


@pytest.mark.parametrize(
    ("file_format", "data", "word"),
    [
        *(("zip", zipped(files), word) for files, word in FOLDERS),
        *(("csv", text, word) for text, word in LINES),
        *(("npz", npz(**arrays), word) for arrays, word in ARRAYS),
        *((name, NO_SUCH_FILE, "not a readable") for name in ("zip", "npz")),
    ],
)
def test_what_is_no_dataset_is_refused_with_its_place(rows_of, file_format, data, word):
    with pytest.raises(Invalid, match=re.escape(word)):
        rows_of(data, file_format)


def test_an_array_that_claims_more_than_it_has_is_refused(rows_of):
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f4", "fortran_order": False, "shape": (100_000, 1000)}
    )
    labels = io.BytesIO()
    np.save(labels, np.zeros(100_000, dtype=np.uint8))
    data = zipped({"x.npy": header.getvalue() + bytes(4000), "labels.npy": labels.getvalue()})
    with pytest.raises(Invalid, match="array 'x' ends at row 1"):
        rows_of(data, "npz")


def test_a_bomb_is_unpacked_as_far_as_a_dataset_may_be_large(tmp_path):
    path = tmp_path / "bomb.npz"
    np.savez_compressed(path, x=np.zeros((200, 10_000), np.uint8), labels=np.zeros(200, np.uint8))
    assert path.stat().st_size < 10_000
    writer = PackWriter(tmp_path, largest=100_000)
    with pytest.raises(Invalid, match="exceeds 100000 bytes at row 9"):
        writer.write(read_file(path, DatasetFormat.NPZ, Roles(), []))
    assert writer.data.stat().st_size <= 100_000


def test_an_archive_whose_list_of_files_is_too_long_is_refused_unread(rows_of):
    data = bytearray(zipped({"7/a.png": png()}))
    at = data.rfind(b"PK\x05\x06")
    data[at + 12 : at + 16] = (1 << 30).to_bytes(4, "little")
    with pytest.raises(Invalid, match="too many files"):
        rows_of(bytes(data), "zip")


def test_files_that_were_sent_one_by_one_are_a_folder(tmp_path):
    path = tmp_path / "sent"
    path.write_bytes(png(1) + png(2))
    size = len(png(1))
    parts = [BundlePart("set/7/a.png", 0, size), BundlePart("set/3/b.png", size, len(png(2)))]
    rows = list(read_parts(path, parts, Roles(), [], tmp_path))
    assert [(row.label, row.cells[""].data) for row in rows] == [("3", png(2)), ("7", png(1))]


def test_one_file_that_was_sent_is_read_by_its_suffix(tmp_path):
    path = tmp_path / "sent"
    path.write_bytes(b"x,label\n1,7\n")
    rows = list(read_parts(path, [BundlePart("rows.CSV", 0, 12)], Roles(), [], tmp_path))
    assert [row.label for row in rows] == ["7"]
