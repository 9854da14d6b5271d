"""Maps of probabilities become the tensor of which they are made."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from workbench.conversion.model_files import classifier

from serve.workbench.conversion.graphs.session import OnnxModel
from serve.workbench.conversion.graphs.zipmap import remove_zipmaps

X = np.random.default_rng(2).standard_normal((5, 4)).astype(np.float32)


@pytest.mark.parametrize("labels", [(3, 5, 8), ("cat", "dog", "owl")])
def test_the_tensor_says_what_the_maps_said(labels: tuple[int | str, ...], tmp_path: Path) -> None:
    path = classifier(tmp_path / "m.onnx", labels=labels)
    before = onnxruntime.InferenceSession(path).run(["output_probability"], {"X": X})[0]
    model = onnx.load(path)
    (sentence,) = remove_zipmaps(model)
    assert sentence.endswith("the classes " + ", ".join(map(str, labels)))
    onnx.checker.check_model(model, full_check=True)
    plain = OnnxModel(model.SerializeToString())
    assert [spec.shape for spec in plain.signature.outputs] == [(-1,), (-1, 3)]
    after = plain({"X": X})["output_probability"]
    assert after.tolist() == [[row[label] for label in labels] for row in before]
