"""outputs.json: what may be declared, what fits a model, how rows are read and compared."""

from typing import Any

import numpy as np
import pytest
from refusals import refusal

from serve.core.errors import Invalid
from serve.tensors.metadata import TensorSpec
from serve.tensors.output_comparison import agreement
from serve.tensors.output_kinds import (
    DeclaredOutput,
    check_outputs,
    fitting,
    kinds_of,
    parse_outputs,
)
from serve.tensors.output_values import described, in_words

F32 = np.float32


def declared(**row: Any) -> DeclaredOutput:
    return parse_outputs({"outputs": {"y": row}})["y"]


CLASSES = {"kind": "classes", "values": "logits"}
INDICES = {"kind": "classes", "values": "indices"}
LABELS = {"kind": "multilabel", "values": "probabilities"}
IMAGE = {"kind": "image", "layout": "CHW", "range": [0, 1]}
BOXES = {"kind": "boxes", "format": "xyxy", "scores": "s", "classes": "c"}


def test_what_is_wrong_in_the_document_is_told_with_its_place() -> None:
    for row, said in (
        ({"kind": "labels"}, "'outputs.y.kind' is 'labels'"),
        ({}, "'outputs.y.kind' is missing"),
        (3, "'outputs.y' is 3"),
        ({"kind": "classes"}, "'outputs.y.values' is missing"),
        (CLASSES | {"unit": "m"}, "unknown key 'outputs.y.unit'"),
        (CLASSES | {"labels": ""}, "'outputs.y.labels' is ''"),
        (LABELS | {"threshold": 2}, "'outputs.y.threshold' is 2"),
        ({"kind": "image", "layout": "HWC"}, "'outputs.y.range' is missing"),
        (IMAGE | {"range": [1, 1]}, "'outputs.y.range' is [1, 1]"),
        ({"kind": "boxes", "format": "corners"}, "'outputs.y.format' is 'corners'"),
    ):
        error = refusal(Invalid, parse_outputs, {"outputs": {"y": row}})
        assert said in error.what and error.why, row
    for document in ({}, {"outputs": []}, {"outputs": {}, "inputs": {}}):
        refusal(Invalid, parse_outputs, document)


def test_a_kind_has_to_fit_the_data_type_and_the_shape() -> None:
    for row, datatype, shape, said in (
        (CLASSES, "FP32", (-1, 10), ""),
        (CLASSES, "FP32", (10,), ""),
        (CLASSES, "INT64", (-1, 10), "needs a vector of floats"),
        (CLASSES, "FP32", (-1, 3, 3), "needs a vector of floats"),
        (INDICES, "INT64", (-1,), ""),
        (INDICES, "INT64", (-1, 1), ""),
        (INDICES, "FP32", (-1, 1), "class indices"),
        ({"kind": "text"}, "BYTES", (-1, 1), ""),
        ({"kind": "text"}, "FP32", (-1, 1), "needs BYTES"),
        ({"kind": "stream"}, "BYTES", (1,), "not decoupled"),
        ({"kind": "number"}, "BYTES", (-1, 1), "numeric data type"),
        ({"kind": "embedding"}, "FP32", (-1, 768), ""),
        ({"kind": "embedding"}, "INT8", (-1, 768), "needs a vector"),
        (IMAGE, "FP32", (-1, 3, 8, 8), ""),
        (IMAGE, "FP32", (-1, 8, 8, 3), "8 channels"),
        (IMAGE, "FP32", (-1, 8), "3 dimensions"),
        ({"kind": "mask"}, "UINT8", (-1, 8, 8), ""),
        ({"kind": "mask"}, "UINT8", (-1, 1, 8, 8), ""),
        ({"kind": "mask"}, "FP32", (-1, 8, 8), "[height, width] of integers"),
        ({"kind": "boxes", "format": "xyxy"}, "FP32", (-1, 20, 4), ""),
        ({"kind": "boxes", "format": "xyxy"}, "FP32", (-1, 20, 6), "needs [n, 4]"),
        (BOXES, "FP32", (-1, 20, 4), "'scores' of output 'y' is 's'"),
    ):
        specs = {"y": TensorSpec("y", datatype, shape)}
        found = check_outputs({"y": declared(**row)}, specs, is_decoupled=False)
        assert bool(found) == bool(said), (row, found)
        assert not said or (said in found[0][0] and found[0][1]), (row, found)
    specs = {"z": TensorSpec("z", "FP32", (-1, 3))}
    ((sentence, fix),) = check_outputs({"y": declared(**CLASSES)}, specs, is_decoupled=False)
    assert sentence == "'y' is not an output of the model" and fix == "use one of: z"


def agreed(row: Any, a: Any, b: Any, shape: Any = (-1, 3), **others: Any) -> Any:
    """The agreement of two outputs; `others` are both sides' further outputs."""
    one = {"y": np.asarray(a)} | {name: pair[0] for name, pair in others.items()}
    other = {"y": np.asarray(b)} | {name: pair[1] for name, pair in others.items()}
    return agreement("y", one, other, declared(**row), TensorSpec("y", "FP32", shape))


def test_each_kind_is_compared_in_its_own_way() -> None:
    found = agreed(CLASSES, [[1, 5, 2], [9, 1, 1]], [[1, 5.5, 3], [1, 9, 1]])
    assert (found.agreement, found.differing) == (0.5, (1,))
    assert found.measures == {"top_1": 0.5, "rank_overlap": 1.0}
    found = agreed(INDICES, [3, 4], [3, 5], (-1,))
    assert (found.agreement, found.differing) == (0.5, (1,))
    found = agreed(LABELS, [[0.9, 0.6, 0.1]], [[0.9, 0.4, 0.1]])
    assert (found.agreement, dict(found.measures)) == (0.0, {"jaccard": 0.5})
    found = agreed({"kind": "number"}, [[100.0], [1.0]], [[100.5], [1.1]], (-1, 1))
    assert found.differing == (1,) and found.measures["max_rel"] == pytest.approx(0.1 / 1.1)
    assert found.measures["max_abs"] == pytest.approx(0.5)
    picture = np.zeros((1, 3, 2, 2))
    assert agreed(IMAGE, picture, picture + 0.005, (-1, 3, 2, 2)).agreement == 1
    assert agreed(IMAGE, picture, picture + 0.2, (-1, 3, 2, 2)).agreement == 0
    mask = np.array([[[0, 0], [1, 1]]])
    found = agreed({"kind": "mask"}, mask, np.array([[[0, 0], [0, 1]]]), (-1, 2, 2))
    assert found.agreement == 0 and found.measures["equal"] == 0.75
    assert found.measures["iou"] == pytest.approx((2 / 3 + 1 / 2) / 2)
    found = agreed({"kind": "embedding"}, [[1, 0, 0], [0, 0, 0]], [[2, 0, 0], [0, 0, 0]])
    assert found.agreement == 1 and found.measures["min_cosine"] == 1
    texts = [np.array([[one]], dtype=object) for one in (b"one cat", b"one car")]
    found = agreed({"kind": "text"}, *texts, (-1, 1))
    assert found.agreement == 0 and 0.8 < found.measures["similarity"] < 1
    with pytest.raises(Invalid, match="cannot be compared"):
        agreed(CLASSES, [[1.0, 2, 3]], [[1.0, 2, 3], [4, 5, 6]])


def test_boxes_are_matched_by_class_and_overlap() -> None:
    a = np.array([[[0, 0, 10, 10], [20, 20, 30, 30]]], F32)
    moved = a + 1.0
    scores, classes = np.array([[0.9, 0.8]], F32), np.array([[1, 2]], F32)
    same = {"s": (scores, scores), "c": (classes, classes)}
    found = agreed(BOXES, a, moved, (-1, 2, 4), **same)
    assert found.agreement == 1 and found.measures["f1"] == 1
    assert found.measures["iou"] == pytest.approx(81 / 119)
    found = agreed(BOXES, a, a, (-1, 2, 4), s=(scores, scores), c=(classes, classes[:, ::-1]))
    assert found.agreement == 0 and found.measures["f1"] == 0
    low = np.array([[0.9, 0.2]], F32)  # below the threshold
    found = agreed(BOXES, a, a, (-1, 2, 4), s=(scores, low), c=(classes, classes))
    assert found.measures["f1"] == pytest.approx(2 / 3)
    for form, box in (("xywh", [2, 3, 4, 6]), ("cxcywh", [4, 6, 4, 6]), ("yxyx", [3, 2, 9, 6])):
        row = declared(kind="boxes", format=form)
        ((found,),) = (
            one["boxes"] for one in described("y", {"y": np.array([[box]], F32)}, row, None)
        )
        assert found["corners"] == [2, 3, 6, 9], form


def test_rows_are_described_by_their_kind() -> None:
    labels, multiline = ("cat", "dog", "owl"), np.array([[b"a\nb"]], dtype=object)
    unsure = LABELS | {"values": "logits"}
    for row, array, words in (
        (CLASSES, [[0.0, 2.0, 0.0]], ["dog  0.787", "cat  0.1065", "owl  0.1065"]),
        (INDICES, [2], ["owl  1"]),
        (LABELS, [[0.9, 0.2, 0.7]], ["cat  0.9", "owl  0.7"]),
        (unsure, [[-9.0, -9, -9]], ["no label is above the threshold"]),
        ({"kind": "number", "unit": "°C"}, [[21.5]], ["21.5 °C"]),
        ({"kind": "text"}, multiline, ["a", "b"]),
        ({"kind": "embedding"}, [[3.0, 4.0]], ["vector of 2, norm 5"]),
        (IMAGE, np.zeros((1, 3, 4, 5)), ["4 × 5, 3 channels"]),
        ({**IMAGE, "layout": "HW"}, np.zeros((1, 4, 5)), ["4 × 5, 1 channel"]),
        ({"kind": "mask"}, np.array([[[0, 1], [1, 1]]]), ["2 × 2", "dog  75.0 %", "cat  25.0 %"]),
        ({"kind": "boxes", "format": "xyxy"}, [[[0.0, 1, 2, 3]]], ["cat  1  [0, 1, 2, 3]"]),
    ):
        (found,) = described("y", {"y": np.asarray(array)}, declared(**row), None, labels=labels)
        assert list(in_words(found)) == words, row
    answer = {"y": np.zeros((1, 2, 4), F32), "s": np.array([[0.9]], F32), "c": np.zeros((1, 2))}
    (found,) = described("y", answer, declared(**BOXES), None)
    assert len(found["boxes"]) == 1, "boxes without a score are left out"


def test_an_answer_of_other_sizes_than_declared_is_not_read_by_its_kind() -> None:
    specs = {"y": TensorSpec("y", "FP32", (-1, -1, -1))}
    kinds = parse_outputs({"outputs": {"y": {"kind": "boxes", "format": "xyxy"}, "z": CLASSES}})
    assert list(fitting(kinds, {"y": np.zeros((1, 3, 4), F32)}, specs)) == ["y"]
    for shape in ((1, 3, 5), (1, 3)):
        assert not fitting(kinds, {"y": np.zeros(shape, F32)}, specs)


def test_label_texts_alone_tell_that_an_output_holds_classes() -> None:
    specs = {
        "y": TensorSpec("y", "FP32", (-1, 3)),
        "z": TensorSpec("z", "INT64", (-1,)),
        "w": TensorSpec("w", "FP32", (-1, 3)),
    }
    recorded = {"w": {"kind": "embedding"}}
    found = kinds_of(recorded, ["y", "z", "w", "gone"], specs)
    assert {name: (one.kind, one.values) for name, one in found.items()} == {
        "w": ("embedding", ""),
        "y": ("classes", ""),
        "z": ("classes", "indices"),
    }
    assert set(kinds_of({}, (), specs)) == set()
    answer = {"y": np.array([[1, 5, 2]], F32)}
    (row,) = described("y", answer, found["y"], specs["y"], labels=("a", "b"), k=1)
    assert row == {"top": [{"index": 1, "label": "b", "value": 5.0}]}
