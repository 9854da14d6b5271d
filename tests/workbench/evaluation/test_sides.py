"""Sides: rows become tensors as a version wants them, and its answers are read."""

import io
import json

import numpy as np
import pytest
from evaluating_scene import npy
from PIL import Image

from serve.control.recorded import RecordedDocuments
from serve.core.errors import Invalid
from serve.tensors.input_forms import GivenInput, InputForm
from serve.tensors.metadata import Metadata, TensorSpec
from serve.workbench.evaluation.results import OutputKind
from serve.workbench.evaluation.sides import side_of

GREY = {"inputs": {"x": {"kind": "image", "color": "grey", "layout": "HWC", "dtype": "FP32"}}}


def side(
    inputs=None, outputs=None, labels=("0", "1"), *, texts=(), output="", steps=None, kinds=None
):
    inputs = inputs or {"x": ("FP32", (-1, 2, 2, 1))}
    outputs = outputs or {"y": ("FP32", (-1, 3))}
    takes, gives = (
        {name: TensorSpec(name, *spec) for name, spec in each.items()} for each in (inputs, outputs)
    )
    labelled = {"y": texts} if texts else {}
    recorded = RecordedDocuments(steps or {}, labelled, output_kinds=kinds or {})
    return side_of("m", 1, Metadata(takes, gives), recorded, output=output, labels=labels)


def numbers(*values):
    return GivenInput(InputForm.JSON, json.dumps(values).encode(), "row 0")


AGE, WEIGHT = ("INT64", (-1, 1)), ("FP32", (-1, 1))
TWO = ("FP32", (-1, 2))
SQUARE = [[[[1], [2]], [[3], [4]]]]


@pytest.mark.parametrize(
    ("inputs", "cells", "wanted"),
    [
        (None, {"": numbers(1, 2, 3, 4)}, {"x": SQUARE}),
        (None, {"": npy([1, 2, 3, 4])}, {"x": SQUARE}),
        (None, {"": npy([[1, 2], [3, 4]])}, {"x": SQUARE}),
        ({"x": TWO}, {"": numbers(1, 2.5)}, {"x": [[1, 2.5]]}),
        ({"weight": WEIGHT, "age": AGE}, {"": numbers(1, 2.5)}, {"weight": [[2.5]], "age": [[1]]}),
        ({"x": TWO}, {"z": npy([1, 2])}, {"x": [[1, 2]]}),  # the only input, by another name
        (
            {"words": ("BYTES", (-1, 1))},
            {"": GivenInput(InputForm.TEXT, b"a\nb")},
            {"words": [[b"a\nb"]]},
        ),
    ],
)
def test_cells_take_the_shape_of_their_inputs(inputs, cells, wanted):
    made = side(inputs).tensors(cells, ("age", "weight"))
    assert {name: array.tolist() for name, array in made.tensors.items()} == wanted


def test_a_picture_goes_through_the_recorded_preprocessing():
    file = io.BytesIO()
    Image.new("L", (2, 2), 7).save(file, "PNG")
    made = side(steps=GREY).tensors({"": GivenInput(InputForm.IMAGE, file.getvalue())}, ())
    assert made.tensors["x"].tolist() == np.full((1, 2, 2, 1), 7.0).tolist()
    with pytest.raises(Invalid, match="preprocessing"):
        side().tensors({"": GivenInput(InputForm.IMAGE, file.getvalue())}, ())


@pytest.mark.parametrize(
    ("inputs", "cells", "word"),
    [
        (None, {"": numbers(1, 2, 3)}, "shape"),
        (
            None,
            {"x": npy(np.zeros((2, 2, 1))), "z": npy([1])},
            "'z', which model 'm' does not accept",
        ),
        ({"x": TWO, "z": TWO}, {"x": npy([1, 2])}, "no values for input 'z'"),
    ],
)
def test_rows_that_do_not_fit_are_refused(inputs, cells, word):
    with pytest.raises(Invalid, match=word):
        side(inputs).tensors(cells, ())


def test_the_highest_score_is_the_class_and_probabilities_are_confidence():
    scores = np.array([[0.1, 0.7, 0.2], [5.0, 5.0, 1.0], [-0.5, 1.0, 0.5]], dtype=np.float32)
    first, second, third = side().told({"y": scores}, 3, 0.5)
    assert (first.predicted, first.milliseconds) == ("1", 500.0)
    assert first.score == first.confidence == pytest.approx(0.7)
    assert (second.predicted, second.score, second.confidence) == ("0", 5.0, None)
    assert (third.predicted, third.confidence) == ("1", None)


def test_classes_are_told_by_their_texts_where_labels_are_texts():
    texts = ("cat", "dog", "cow")
    told = side(labels=("cat", "dog"), texts=texts).told({"y": np.eye(3)[1:2]}, 1, 0.0)
    assert told[0].predicted == "dog"
    numbered = side(labels=("00", "02"), texts=texts)
    assert (numbered.told({"y": np.eye(3)[2:]}, 1, 0.0)[0].predicted, numbered.label("02")) == (
        "2",
        "2",
    )


SEVERAL = {"features": ("FP32", (-1, 64)), "y": ("FP32", (-1, 3))}
SCORES = {"class": ("INT64", (-1,)), "scores": ("FP32", (-1, 3)), "one": ("FP32", (-1, 1))}
EMBEDDING = {"features": {"kind": "embedding"}}


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"labels": ("cat", "bird"), "texts": ("cat", "dog", "cow")}, "'bird' is not a class"),
        ({"labels": ("cat", "bird"), "texts": ("cat", "dog", "cow")}, "cat, dog, cow"),
        ({"labels": ("cat",)}, "label texts"),
        ({"labels": ("3",)}, "'3' is not a class"),
        ({"labels": ("cat",), "outputs": {"y": ("FP32", (-1, 1))}}, "'cat' is not a number"),
        ({"outputs": SEVERAL}, "which output"),
        ({"outputs": SEVERAL, "output": "z"}, "no output 'z'"),
        ({"outputs": SCORES}, "Try: --output scores$"),  # the only one that can hold scores
        (
            {"outputs": SEVERAL, "output": "features", "kinds": EMBEDDING},
            "output 'features' cannot be evaluated",
        ),
        ({"outputs": SEVERAL, "output": "features", "kinds": EMBEDDING}, "'embedding'"),
        ({"kinds": {"y": {"kind": "number"}}}, "cannot be evaluated"),
    ],
)
def test_labels_and_outputs_that_do_not_fit_are_refused(asked, words):
    with pytest.raises(Invalid, match=words):
        side(**asked)


def test_of_several_outputs_the_one_with_label_texts_or_of_a_kind_with_labels_is_meant():
    assert side(outputs=SEVERAL, texts=("a", "b", "c")).output.name == "y"
    assert side(outputs=SEVERAL, output="features").output.name == "features"
    assert side(outputs=SEVERAL, kinds=EMBEDDING).output.name == "y"


@pytest.mark.parametrize(
    ("spec", "values", "kind", "predicted"),
    [
        (("FP32", (-1, 1)), np.array([[2.5]], np.float32), OutputKind.NUMBERS, "2.5"),
        (("INT64", (-1,)), np.array([7]), OutputKind.VALUES, "7"),
        (("BOOL", (-1, 1)), np.array([[True]]), OutputKind.VALUES, "true"),
        (("BYTES", (-1, 1)), np.array([[b"yes"]], object), OutputKind.VALUES, "yes"),
        (("FP64", (3,)), np.array([0.0, 0.0, 1.0]), OutputKind.CLASSES, "2"),
        (("FP32", (1, 3)), np.array([[0.0, 1.0, 0.0]]), OutputKind.CLASSES, "1"),
    ],
)
def test_what_an_output_says_is_its_kind(spec, values, kind, predicted):
    made = side(outputs={"y": spec})
    assert made.kind is kind
    assert made.told({"y": values}, 1, 0.0)[0].predicted == predicted


@pytest.mark.parametrize(
    "answer",
    [{}, {"y": np.zeros((2, 3))}, {"y": np.full((1, 3), np.nan)}, {"y": np.zeros((1, 1))}],
)
def test_answers_that_are_no_scores_are_refused(answer):
    with pytest.raises(Invalid):
        side().told(answer, 1, 0.0)


def test_a_declared_output_is_evaluated_by_its_kind():
    logits = {"y": {"kind": "classes", "values": "logits"}}
    (told,) = side(kinds=logits).told({"y": np.array([[0.0, np.log(2), 0.0]])}, 1, 0.0)
    assert (told.predicted, told.confidence) == ("1", pytest.approx(0.5))
    indices = {"y": {"kind": "classes", "values": "indices"}}
    chosen = side(
        outputs={"y": ("INT64", (-1,))}, labels=("a", "b"), texts=("a", "b"), kinds=indices
    )
    assert chosen.told({"y": np.array([1])}, 1, 0.0)[0].predicted == "b"
    numbers = {"y": {"kind": "number"}}
    whole = side(outputs={"y": ("INT64", (-1,))}, kinds=numbers)
    assert (whole.kind, whole.told({"y": np.array([3])}, 1, 0.0)[0].predicted) == (
        OutputKind.NUMBERS,
        "3.0",
    )
