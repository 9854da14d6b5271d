"""Datasets: revisions that never change, rows that are added, pictures, and what is refused."""

import io
import json
import os

import numpy as np
import pytest
from evaluating_scene import npy, three
from loops import in_loop
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from serve.control.artifacts.folder import FolderObjects
from serve.core.errors import Invalid, NotFound
from serve.tensors.input_forms import GivenInput, InputForm
from serve.workbench.evaluation.datasets import KEPT, Datasets
from serve.workbench.evaluation.rows import Fresh


class InBucket(FolderObjects):
    """Objects that lie nowhere on this machine, as those of a bucket."""

    def path(self, key):
        return self._root / key if "drafts" in key else None

    def _place(self, key):
        target = self._root / key
        target.parent.mkdir(parents=True, exist_ok=True)
        return target

    def _open(self, key):
        try:
            return os.open(self._root / key, os.O_RDONLY)
        except FileNotFoundError as error:
            raise NotFound(key) from error


@pytest.fixture
def made(tmp_path):
    return Datasets(
        objects=FolderObjects(tmp_path / "storage"), scratch=tmp_path / "scratch", wall=lambda: 5.0
    )


def picture(value=7, size=(8, 8), mode="L"):
    file = io.BytesIO()
    Image.new(mode, size, value).save(file, "PNG")
    return GivenInput(InputForm.IMAGE, file.getvalue(), "seven.png")


async def add(made, name="three", rows=None, author="ann"):
    return await made.add(name, rows or three(), source="test", author=author)


@in_loop
async def test_a_dataset_is_shown_with_what_it_holds(made):
    kept = await add(made)
    assert await made.get("three") == kept
    assert await made.all() == (kept,)
    view = await made.view("three")
    assert (kept.revision, kept.rows, kept.author, kept.at) == (1, 60, "ann", 5.0)
    assert kept.classes == {"0": 20, "1": 20, "2": 20}
    assert (kept.inputs, kept.slices) == ({"x": "npy"}, ("half",))
    assert (view.row(59).name, view.row(59).label) == ("row-59", "2")
    assert view.cells(59)["x"].data == npy([59, 2]).data


@in_loop
async def test_the_same_rows_again_are_no_change_and_others_are_a_new_revision(made):
    first, again = await add(made), await add(made, author="bob")
    other = await add(made, rows=three(10))
    assert (await made.get("three", 1)).rows == 60
    assert again == first
    assert (other.revision, other.rows) == (2, 10)
    assert other.digest != first.digest


@in_loop
async def test_rows_that_are_added_follow_the_others_and_share_a_pack(made):
    first = await add(made)
    await made.add_row("three", {"x": npy([7, 1])}, "seven.png", "1", "bob")
    last = await made.add_row("three", {"x": npy([8, 2])}, "eight.png", "2", "bob")
    view = await made.view("three")
    assert len(await made.view("three", 1)) == 60
    assert (last.revision, last.rows, len(last.packs)) == (3, 62, 2)
    assert last.packs[0] == first.packs[0]
    rows = [(view.row(number).name, view.row(number).label) for number in (59, 60, 61)]
    assert rows == [("row-59", "2"), ("seven.png", "1"), ("eight.png", "2")]
    assert view.cells(61)["x"].data == npy([8, 2]).data


@in_loop
async def test_a_file_of_several_inputs_is_a_row_by_input(made):
    archive = io.BytesIO()
    np.savez(archive, x=np.ones((1, 2), np.float32), words=np.array(["a\nb"]))
    x = {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1, 1]}
    words = {"name": "words", "datatype": "BYTES", "shape": [1], "data": ["a\nb"]}
    request = json.dumps({"inputs": [x, words]}).encode()
    for data, name in ((archive.getvalue(), "t.npz"), (request, "t.json")):
        await made.add_row(name, data, name, "7", "bob")
        cells = (await made.view(name)).cells(0)
        assert np.load(io.BytesIO(cells["x"].data)).tolist() == [[1, 1]], name
        assert json.loads(cells["words"].data) == ["a\nb"], name


@in_loop
async def test_a_file_is_a_row_in_its_form_unless_that_is_unknown(made):
    kept = await made.add_row("new", picture().data, "seven.png", "7", "bob")
    assert (kept.rows, kept.classes, kept.has_pictures) == (1, {"7": 1}, True)
    for data, name, form in (
        (b"[1, 2]", "x.json", InputForm.JSON),
        (b"1,2\n", "x.csv", InputForm.CSV),
        (b"hello", "x.txt", InputForm.TEXT),
        (npy([1, 2]).data, "x.npy", InputForm.NPY),
    ):
        await made.add_row(name, data, name, "7", "bob")
        assert (await made.view(name)).cells(0)[""] == GivenInput(form, data, name)
    with pytest.raises(Invalid, match="is not a readable picture"):
        await made.add_row("new", b"hello", "hello", "7", "bob")
    with pytest.raises(Invalid, match="random"):
        await made.add_row("new", {"x": GivenInput(InputForm.RANDOM)}, "", "7", "bob")


@in_loop
async def test_a_bad_row_keeps_nothing(made, tmp_path):
    with pytest.raises(Invalid, match="row 60 has no label"):
        await add(made, rows=[*three(), Fresh("", {"x": npy([1, 2])})])
    assert await made.all() == ()
    assert not list((tmp_path / "scratch").iterdir())
    assert not [path for path in (tmp_path / "storage").rglob("*") if path.is_file()]


@in_loop
async def test_old_revisions_go_and_what_they_alone_needed(made, tmp_path):
    for number in range(KEPT + 3):
        await add(made, rows=three(number + 1))
    with pytest.raises(NotFound):
        await made.get("three", 3)
    assert len(await made.view("three", 4)) == 4
    packs = list((tmp_path / "storage/datasets/three/packs").glob("*.data"))
    assert len(packs) == KEPT


@in_loop
async def test_a_removed_dataset_is_gone(made, tmp_path):
    await add(made)
    await made.remove("three")
    with pytest.raises(NotFound, match="there is no dataset 'three'"):
        await made.get("three")
    assert await made.all() == ()
    assert not [path for path in (tmp_path / "storage").rglob("*") if path.is_file()]


@in_loop
async def test_names_that_are_no_folders_are_refused(made):
    for name in ("", "..", "a/b", "a b", "-a", "a" * 102, "ä", "a\n"):
        with pytest.raises(Invalid, match="is not a valid dataset name"):
            await add(made, name)


@in_loop
async def test_packs_of_a_bucket_are_read_through_a_cache(tmp_path):
    made = Datasets(
        objects=InBucket(tmp_path / "bucket"), scratch=tmp_path / "scratch", wall=lambda: 5.0
    )
    kept = await add(made)
    (tmp_path / "scratch/left-of-a-crash").mkdir()
    await made.sweep()
    cells = (await made.view("three")).cells(3)
    assert cells["x"].data == npy([3, 0]).data
    left = [path.relative_to(tmp_path / "scratch") for path in (tmp_path / "scratch").rglob("*")]
    assert sorted(map(str, left)) == ["cache", f"cache/{kept.packs[0].digest}"]


@in_loop
async def test_what_has_the_shape_of_a_picture_is_shown_as_one(made):
    shown = (
        (picture(), (8, 8)),
        (picture(size=(2000, 1000)), (512, 256)),
        (picture((10, 20, 30, 40), mode="RGBA"), (8, 8)),
        (npy(np.eye(8)), (8, 8)),
        (npy(np.zeros((6, 9, 1))), (9, 6)),
        (npy(np.zeros((3, 6, 9)), np.uint8), (9, 6)),
        (GivenInput(InputForm.JSON, b"[[0, 1], [1, 0]]"), (2, 2)),
    )
    for place, (given, size) in enumerate(shown):
        await add(made, f"{place}", [Fresh("1", {"": given})])
        with Image.open(io.BytesIO(await made.picture(f"{place}", 0))) as image:
            assert (image.format, image.size) == ("PNG", size), place
    for given in (npy([1, 2]), GivenInput(InputForm.TEXT, b"hello"), npy(np.zeros((1, 9)))):
        await add(made, "texts", [Fresh("1", {"": given})])
        with pytest.raises(NotFound, match="is not a picture"):
            await made.picture("texts", 0)


@in_loop
async def test_a_picture_brings_nothing_of_its_file_along(made):
    file, told = io.BytesIO(), PngInfo()
    told.add_text("comment", "<script>alert(1)</script>")
    Image.new("L", (8, 8)).save(file, "PNG", pnginfo=told)
    assert b"script" in file.getvalue()
    await add(made, "pictures", [Fresh("1", {"": GivenInput(InputForm.IMAGE, file.getvalue())})])
    assert b"script" not in await made.picture("pictures", 0)
