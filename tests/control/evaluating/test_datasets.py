"""Datasets: revisions that never change, rows that are added, pictures, and what is refused."""

import asyncio
import io
import json

import numpy as np
import pytest
from evaluating_scene import npy, three
from PIL import Image

from serve.control.artifacts.folder import FolderObjects
from serve.control.evaluating import datasets as module
from serve.control.evaluating.datasets import KEPT, Datasets
from serve.control.evaluating.rows import Fresh
from serve.core.errors import Invalid, NotFound
from serve.tensors.giving import Form, Given


class InBucket(FolderObjects):
    """Objects that lie nowhere on this machine, as those of a bucket."""

    def path(self, key):
        return self._root / key if "drafts" in key else None

    def _place(self, key):
        target = self._root / key
        target.parent.mkdir(parents=True, exist_ok=True)
        return target

    def _open(self, key):
        import os

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
    return Given(Form.IMAGE, file.getvalue(), "seven.png")


async def add(made, name="three", rows=None, author="ann"):
    return await made.add(name, rows or three(), source="test", author=author)


def test_a_dataset_is_shown_with_what_it_holds(made):
    async def scenario():
        kept = await add(made)
        assert await made.get("three") == kept
        assert await made.all() == (kept,)
        view = await made.view("three")
        return kept, view

    kept, view = asyncio.run(scenario())
    assert (kept.revision, kept.rows, kept.author, kept.at) == (1, 60, "ann", 5.0)
    assert kept.classes == {"0": 20, "1": 20, "2": 20}
    assert (kept.inputs, kept.slices) == ({"x": "npy"}, ("half",))
    assert (view.row(59).name, view.row(59).label) == ("row-59", "2")
    assert view.cells(59)["x"].data == npy([59, 2]).data


def test_the_same_rows_again_are_no_change_and_others_are_a_new_revision(made):
    async def scenario():
        first, again = await add(made), await add(made, author="bob")
        other = await add(made, rows=three(10))
        assert (await made.get("three", 1)).rows == 60
        return first, again, other

    first, again, other = asyncio.run(scenario())
    assert again == first
    assert (other.revision, other.rows) == (2, 10)
    assert other.digest != first.digest


def test_rows_that_are_added_follow_the_others_and_share_a_pack(made):
    async def scenario():
        first = await add(made)
        await made.add_row("three", {"x": npy([7, 1])}, "seven.png", "1", "bob")
        last = await made.add_row("three", {"x": npy([8, 2])}, "eight.png", "2", "bob")
        view = await made.view("three")
        assert len(await made.view("three", 1)) == 60
        return first, last, [view.row(number) for number in (59, 60, 61)], view.cells(61)

    first, last, rows, cells = asyncio.run(scenario())
    assert (last.revision, last.rows, len(last.packs)) == (3, 62, 2)
    assert last.packs[0] == first.packs[0]
    assert [(row.name, row.label) for row in rows] == [
        ("row-59", "2"),
        ("seven.png", "1"),
        ("eight.png", "2"),
    ]
    assert cells["x"].data == npy([8, 2]).data


def test_the_first_row_makes_a_dataset(made):
    kept = asyncio.run(made.add_row("new", picture().data, "seven.png", "7", "bob"))
    assert (kept.rows, kept.classes, kept.has_pictures) == (1, {"7": 1}, True)


def archive():
    file = io.BytesIO()
    np.savez(file, x=np.ones((1, 2), np.float32), words=np.array(["a\nb"]))
    return file.getvalue()


def request():
    x = {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1, 1]}
    words = {"name": "words", "datatype": "BYTES", "shape": [1], "data": ["a\nb"]}
    return json.dumps({"inputs": [x, words]}).encode()


@pytest.mark.parametrize(("data", "name"), [(archive(), "t.npz"), (request(), "t.json")])
def test_a_file_of_several_inputs_is_a_row_by_input(made, data, name):
    async def scenario():
        await made.add_row("new", data, name, "7", "bob")
        return (await made.view("new")).cells(0)

    cells = asyncio.run(scenario())
    assert np.load(io.BytesIO(cells["x"].data)).tolist() == [[1, 1]]
    assert json.loads(cells["words"].data) == ["a\nb"]


@pytest.mark.parametrize(
    ("data", "name", "form"),
    [
        (b"[1, 2]", "x.json", Form.JSON),
        (b"1,2\n", "x.csv", Form.CSV),
        (b"hello", "x.txt", Form.TEXT),
        (npy([1, 2]).data, "x.npy", Form.NPY),
    ],
)
def test_a_file_is_a_row_in_its_form(made, data, name, form):
    async def scenario():
        await made.add_row("new", data, name, "7", "bob")
        return (await made.view("new")).cells(0)

    assert asyncio.run(scenario())[""] == Given(form, data, name)


def test_a_file_that_is_nothing_known_is_no_row(made):
    with pytest.raises(Invalid, match="is no picture"):
        asyncio.run(made.add_row("new", b"hello", "hello", "7", "bob"))


def test_random_values_are_no_row(made):
    with pytest.raises(Invalid, match="random"):
        asyncio.run(made.add_row("new", {"x": Given(Form.RANDOM)}, "", "7", "bob"))


def test_a_bad_row_keeps_nothing(made, tmp_path):
    async def scenario():
        with pytest.raises(Invalid, match="row 60 has no label"):
            await add(made, rows=[*three(), Fresh("", {"x": npy([1, 2])})])
        assert await made.all() == ()

    asyncio.run(scenario())
    assert not list((tmp_path / "scratch").iterdir())
    assert not [path for path in (tmp_path / "storage").rglob("*") if path.is_file()]


def test_old_revisions_go_and_what_they_alone_needed(made, tmp_path):
    async def scenario():
        for number in range(KEPT + 3):
            await add(made, rows=three(number + 1))
        with pytest.raises(NotFound):
            await made.get("three", 3)
        return await made.view("three", 4)

    assert len(asyncio.run(scenario())) == 4
    packs = list((tmp_path / "storage/datasets/three/packs").glob("*.data"))
    assert len(packs) == KEPT


def test_a_removed_dataset_is_gone(made, tmp_path):
    async def scenario():
        await add(made)
        await made.remove("three")
        with pytest.raises(NotFound, match="there is no dataset 'three'"):
            await made.get("three")
        return await made.all()

    assert asyncio.run(scenario()) == ()
    assert not [path for path in (tmp_path / "storage").rglob("*") if path.is_file()]


@pytest.mark.parametrize("name", ["", "..", "a/b", "a b", "-a", "a" * 102, "ä", "a\n"])
def test_names_that_are_no_folders_are_refused(made, name):
    with pytest.raises(Invalid, match="cannot be the name of a dataset"):
        asyncio.run(add(made, name))


def test_packs_of_a_bucket_are_read_through_a_cache(tmp_path):
    async def scenario():
        made = Datasets(
            objects=InBucket(tmp_path / "bucket"), scratch=tmp_path / "scratch", wall=lambda: 5.0
        )
        kept = await add(made)
        (tmp_path / "scratch/left-of-a-crash").mkdir()
        await made.sweep()
        return kept, (await made.view("three")).cells(3)

    kept, cells = asyncio.run(scenario())
    assert cells["x"].data == npy([3, 0]).data
    left = [path.relative_to(tmp_path / "scratch") for path in (tmp_path / "scratch").rglob("*")]
    assert sorted(map(str, left)) == ["cache", f"cache/{kept.packs[0].digest}"]


@pytest.mark.parametrize(
    ("given", "size"),
    [
        (picture(), (8, 8)),
        (picture(size=(2000, 1000)), (512, 256)),
        (picture((10, 20, 30, 40), mode="RGBA"), (8, 8)),
        (npy(np.eye(8)), (8, 8)),
        (npy(np.zeros((6, 9, 1))), (9, 6)),
        (npy(np.zeros((3, 6, 9)), np.uint8), (9, 6)),
        (Given(Form.JSON, b"[[0, 1], [1, 0]]"), (2, 2)),
    ],
)
def test_what_has_the_shape_of_a_picture_is_shown_as_one(made, given, size):
    async def scenario():
        await add(made, "pictures", [Fresh("1", {"": given})])
        return await made.picture("pictures", 0)

    with Image.open(io.BytesIO(asyncio.run(scenario()))) as image:
        assert (image.format, image.size) == ("PNG", size)


def test_a_picture_brings_nothing_of_its_file_along(made):
    from PIL.PngImagePlugin import PngInfo

    file, told = io.BytesIO(), PngInfo()
    told.add_text("comment", "<script>alert(1)</script>")
    Image.new("L", (8, 8)).save(file, "PNG", pnginfo=told)

    async def scenario():
        await add(made, "pictures", [Fresh("1", {"": Given(Form.IMAGE, file.getvalue())})])
        return await made.picture("pictures", 0)

    assert b"script" in file.getvalue()
    assert b"script" not in asyncio.run(scenario())


@pytest.mark.parametrize("given", [npy([1, 2]), Given(Form.TEXT, b"hello"), npy(np.zeros((1, 9)))])
def test_what_is_no_picture_is_not_shown(made, given):
    async def scenario():
        await add(made, "texts", [Fresh("1", {"": given})])
        await made.picture("texts", 0)

    with pytest.raises(NotFound, match="is no picture"):
        asyncio.run(scenario())


def test_there_is_a_bound_for_how_many_there_are():
    assert module.MOST_DATASETS <= 10_000
