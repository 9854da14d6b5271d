"""The label file of a source, and what outputs.json says then."""

import json

from serve.tensors.output_kinds import parse_outputs
from serve.tensors.signature import ModelSignature, ModelTensor
from serve.workbench.conversion.class_labels import class_labels

SIGNATURE = ModelSignature(
    "onnx",
    (ModelTensor("x", "FP32", (-1, 8)),),
    (
        ModelTensor("scores", "FP32", (-1, 3)),
        ModelTensor("tags", "FP32", (-1, 3)),
        ModelTensor("raw", "FP32", (-1, 3)),
        ModelTensor("vector", "FP32", (-1, 4)),
        ModelTensor("place", "INT64", (-1, 3)),
    ),
)
LAST = {"scores": "Softmax", "tags": "Sigmoid", "raw": "Gemm", "vector": "Gemm", "place": ""}


def found(source, *, is_batched=True):
    return class_labels(source, SIGNATURE, LAST, is_batched=is_batched)


def test_outputs_with_a_float_for_each_line_are_declared(tmp_path):
    for place in (".", "assets", "assets.extra"):
        folder = tmp_path / place / "labels.txt"
        folder.parent.mkdir(exist_ok=True)
        folder.write_text("cat\ndog\nowl\n")
        made = found(tmp_path)
        folder.unlink()
    out = tmp_path / "out"
    out.mkdir()
    made.write(out)
    assert (out / "labels.txt").read_text() == "cat\ndog\nowl\n"
    declared = parse_outputs(json.loads((out / "outputs.json").read_text()))
    assert {name: (one.kind, one.values, one.labels) for name, one in declared.items()} == {
        "scores": ("classes", "probabilities", "labels.txt"),
        "tags": ("multilabel", "probabilities", "labels.txt"),
        "raw": ("classes", "logits", "labels.txt"),
    }
    assert "'scores' as classes" in made.notes[0]


def test_a_label_file_that_fits_no_output_is_not_used(tmp_path):
    (tmp_path / "model.keras").touch()
    (tmp_path / "labels.txt").write_text("cat\ndog\n")
    made = found(tmp_path / "model.keras")
    made.write(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()
    assert made.notes == [
        "labels.txt is not used: no output has 2 floats per row, one for each line"
    ]


def test_without_a_label_file_classes_are_proposed(tmp_path):
    notes = found(tmp_path).notes
    assert [note.split(":")[0] for note in notes] == [
        "output 'scores' looks like classes",
        "output 'tags' looks like multilabel",
    ]
    assert "3 lines" in notes[0]
    assert found(tmp_path, is_batched=False).notes == []
