"""What `--input` says, as tensors that fit a model."""

import contextlib
import json

import numpy as np
import pytest
from PIL import Image
from refusals import refusal

from serve.cli.inputs import InputReader
from serve.core.errors import Invalid, NoControl
from serve.tensors.metadata import TensorSpec

X = TensorSpec("x", "FP32", (-1, 2, 2, 1))
ID = TensorSpec("id", "INT64", (-1, 1))
TEXT = TensorSpec("text", "BYTES", (-1, 1))
STEPS = {"kind": "image", "color": "grey", "layout": "HWC", "dtype": "FP32", "scale": [1, 255]}
RECORD = {"inputs": {"x": STEPS}}
SQUARE = [[[0], [51]], [[102], [255]]]


def reader(*specs, record=RECORD):
    wanted = {spec.name: spec for spec in specs or (X,)}
    return InputReader("m", wanted, lambda: record, np.random.default_rng(0))


@pytest.fixture
def folder(tmp_path):
    """A folder with one file of each kind, which is the current one."""
    with contextlib.chdir(tmp_path):
        Image.fromarray(np.array(SQUARE, dtype=np.uint8)[..., 0]).save("cat.png")
        np.save("a.npy", np.ones((2, 2, 1), dtype=np.float32))
        np.savez("a.npz", x=np.full((3, 2, 2, 1), 2, dtype=np.float32), id=np.array([[7]] * 3))
        (tmp_path / "plain.json").write_text("[[[1], [2]], [[3], [4]]]", "utf-8")
        row = {"name": "x", "shape": [1, 2, 2, 1], "datatype": "FP32", "data": [1, 2, 3, 4]}
        (tmp_path / "request.json").write_text(json.dumps({"id": "1", "inputs": [row]}), "utf-8")
        yield tmp_path


def write(folder, name, document):
    (folder / name).write_text(json.dumps(document), "utf-8")


@pytest.mark.parametrize("name", ["x=", ""])
def test_a_file_of_each_kind_becomes_a_tensor(folder, name):
    made = reader().read([f"{name}@cat.png"]).tensors["x"]
    expected = np.array([SQUARE], dtype=np.float32) * np.float32(1 / 255)
    assert made.tobytes() == expected.tobytes() and made.shape == (1, 2, 2, 1)
    ready = reader().read([f"{name}@a.npy"])
    assert ready.tensors["x"].shape == (1, 2, 2, 1), "the batch dimension is added"
    assert (ready.datatypes, ready.notes) == ({"x": "FP32"}, ())
    for file in ("plain.json", "request.json"):
        made = reader().read([f"{name}@{file}"]).tensors["x"]
        assert made.dtype == np.float32 and made.shape == (1, 2, 2, 1)
        assert made.ravel().tolist() == [1, 2, 3, 4]
    found = reader(X, ID).read([f"{name}@a.npz"]).tensors
    assert found["x"].shape == (3, 2, 2, 1)
    assert name or found["id"].tolist() == [[7], [7], [7]]


def test_what_a_request_file_says_beside_its_inputs_is_not_dropped_silently(folder):
    write(folder, "r.json", {"inputs": [], "parameters": {"sequence_id": 1}, "outputs": []})
    notes = reader().read(["@r.json", "random"]).notes
    assert notes == ("r.json: 'outputs' is not sent", "r.json: 'parameters' is not sent")


def test_random_fills_one_input_or_all_that_are_left(folder):
    one = reader(X, ID, TEXT).read(["id=random"])
    assert set(one.tensors) == {"id"} and one.notes == ("missing inputs: x, text",)
    rest = reader(X, ID, TEXT).read(["random", "x=@a.npy"])
    assert list(rest.tensors) == ["x", "id", "text"] and rest.notes == ()


def test_batch_makes_random_rows_and_repeats_a_single_one(folder):
    rows = reader().read(["random"], batch=4).tensors["x"]
    assert rows.shape == (4, 2, 2, 1) and (rows[0] != rows[1]).any()
    assert reader().read(["@a.npy"], batch=3).tensors["x"].shape == (3, 2, 2, 1)
    assert reader().read(["x=@a.npz"], batch=3).tensors["x"].shape == (3, 2, 2, 1)
    with pytest.raises(Invalid, match="a batch of 2 does not fit input 'x': it has 3 rows"):
        reader().read(["x=@a.npz"], batch=2)
    with pytest.raises(Invalid, match="has no batch dimension"):
        reader(TensorSpec("x", "FP32", (2, 2, 1))).read(["@a.npy"], batch=2)


def test_another_datatype_is_cast_and_the_cast_is_told(folder):
    np.save("wide.npy", np.ones((1, 2, 2, 1)))
    ready = reader().read(["@wide.npy"])
    assert ready.tensors["x"].dtype == np.float32
    assert ready.notes == ("x: FP64 is sent as FP32",)
    np.save("half.npy", np.array([[0.5]]))
    with pytest.raises(Invalid, match="do not fit INT64"):
        reader(ID).read(["@half.npy"])
    np.save("words.npy", np.array([["a"], ["bc"]]))
    assert reader(TEXT).read(["@words.npy"]).tensors["text"].shape == (2, 1)
    write(folder, "words.json", ["a"])
    assert reader(TEXT).read(["@words.json"]).tensors["text"].tolist() == [[b"a"]]


def test_the_record_is_fetched_for_pictures_only(folder):
    def fetch():
        raise NoControl("nobody answers")

    lazy = InputReader("m", {"x": X}, fetch, np.random.default_rng(0))
    assert lazy.read(["@a.npy"]).tensors
    with pytest.raises(NoControl):
        lazy.read(["@cat.png"])


def test_without_recorded_preprocessing_a_picture_says_how_to_record_it(folder):
    for record in ({}, {"inputs": {}}, {"inputs": {"y": STEPS}}):
        with pytest.raises(Invalid, match="no recorded preprocessing") as raised:
            reader(record=record).read(["@cat.png"])
        example = raised.value.try_this.split(": ", 1)[1]
        assert "m/preprocessing.json" in raised.value.try_this
        (folder / "small.png").write_bytes((folder / "cat.png").read_bytes())
        wide = TensorSpec("x", "FP32", (-1, 224, 224, 3))
        assert reader(wide, record=json.loads(example)).read(["@small.png"]).tensors["x"].any()


def test_what_cannot_be_read_says_why(folder):
    for name in ("broken.png", "broken.npz", "notes.md"):
        (folder / name).write_bytes(b"\x93NUMPY nonsense")
    write(folder, "ragged.json", [[1], [2, 3]])
    write(folder, "words.json", ["a"])
    row = {"name": "x", "shape": [1], "datatype": "FP32", "data": [1]}
    binary = {"name": "x", "shape": [1], "datatype": "FP32", "parameters": {"binary_data_size": 4}}
    requests = {"lacks": [{"name": "x"}], "binary": [binary], "number": [7], "twice": [row, row]}
    for name, inputs in (requests | {"shape": [row | {"shape": [-1]}]}).items():
        write(folder, f"{name}.json", {"inputs": inputs})
    for text, said in (
        *((text, "is not valid") for text in ("x", "x=", "x=cat.png", "=@cat.png", "x=@", "@", "")),
        ("y=random", "no input 'y'"),
        ("y=@a.npy", "no input 'y'"),
        ("@a.npz", "no input 'id'"),
        ("x=@missing.npy", "cannot read 'missing.npy': No such file"),
        ("x=@notes.md", "unknown file type '.md'"),
        ("x=@broken.npz", "broken.npz cannot be read"),
        ("x=@broken.png", "broken.png: the picture cannot be read"),
        ("x=@ragged.json", "different lengths"),
        ("x=@words.json", "not a value of FP32"),
        ("@lacks.json", "an input lacks 'datatype'"),
        ("@binary.json", "an input lacks 'data'"),
        ("@number.json", "an input lacks"),
        ("@shape.json", "input 'x' has the shape [-1]"),
        ("@twice.json", "twice.json has input 'x' twice"),
    ):
        assert said in str(refusal(Invalid, reader().read, [text])), text


def test_what_is_missing_or_given_twice_is_told_with_the_inputs_of_the_model(folder):
    assert "two values" in str(refusal(Invalid, reader().read, ["@a.npy", "x=random"]))
    nothing = refusal(Invalid, reader(X, TEXT).read, [])
    assert "x FP32 [-1, 2, 2, 1], text BYTES [-1, 1]" in nothing.why
    unnamed = refusal(Invalid, reader(X, ID).read, ["@cat.png"])
    assert "x FP32" in unnamed.why and "id INT64" in unnamed.why
    assert unnamed.try_this == "--input x=@cat.png"
