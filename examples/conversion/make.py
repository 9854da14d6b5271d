"""Makes TensorFlow models to convert: a trained one, a large one, and one with attention.

    python examples/conversion/make.py digits DIR

| model         | what it is                                                           | weights |
|---------------|----------------------------------------------------------------------|---------|
| `digits`      | the convolutional network of examples/digits, trained in seconds     | trained |
| `resnet50`    | ResNet50 of Keras: 25.6 million parameters, pictures of 224x224      | random  |
| `transformer` | two layers of attention over 32 token ids, an exact GELU, two outputs | random  |

DIR gets `savedmodel/`; digits also `samples.npz` (rows that train), `held_out.npz` (rows that do
not, with their labels), and transformer `samples.npz` (ids in the range of its vocabulary).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "digits"))
import data

SEED = 20240917
VOCABULARY, LENGTH, WIDTH, HEADS = 500, 32, 48, 4
SAMPLES = 64
Samples = Mapping[str, Mapping[str, Any]]  # name of an .npz to its arrays


def digits() -> tuple[Any, Samples]:
    """The digits classifier after training, with rows to calibrate on and rows to measure on."""
    x = keras.Input((8, 8, 1), name="x")
    features = keras.layers.Conv2D(16, 3, padding="same", activation="relu")(x)
    features = keras.layers.MaxPooling2D(2)(features)
    features = keras.layers.Conv2D(32, 3, padding="same", activation="relu")(features)
    probabilities = keras.layers.Dense(10, activation="softmax")(keras.layers.Flatten()(features))
    model = keras.Model(x, {"probabilities": probabilities})
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy")
    trained, answers = data.training()
    model.fit(trained, answers, batch_size=32, epochs=30, verbose=0)
    rows, labels = data.held_out()
    return model, {
        "samples": {"x": trained[:SAMPLES]},
        "held_out": {"x": rows, "labels": labels},
    }


def resnet50() -> tuple[Any, Samples]:
    """ResNet50 as Keras builds it; nothing is downloaded."""
    return keras.applications.ResNet50(weights=None), {}


def transformer() -> tuple[Any, Samples]:
    """An encoder: ids int32 [batch, 32] to `pooled` [batch, 48] and `scores` [batch, 32, 500]."""
    ids = keras.Input((LENGTH,), dtype="int32", name="ids")
    places = keras.layers.Embedding(LENGTH, WIDTH)(keras.ops.arange(LENGTH))
    x = keras.layers.Embedding(VOCABULARY, WIDTH)(ids) + places
    for _ in range(2):
        attended = keras.layers.MultiHeadAttention(HEADS, WIDTH // HEADS)(x, x)
        x = keras.layers.LayerNormalization()(x + attended)
        wide = keras.layers.Dense(4 * WIDTH)(x)
        wide = keras.layers.Activation(lambda y: keras.activations.gelu(y, approximate=False))(wide)
        x = keras.layers.LayerNormalization()(x + keras.layers.Dense(WIDTH)(wide))
    outputs = {
        "pooled": keras.layers.GlobalAveragePooling1D()(x),
        "scores": keras.layers.Dense(VOCABULARY)(x),
    }
    rng = np.random.default_rng(SEED)
    some = rng.integers(0, VOCABULARY, (SAMPLES, LENGTH)).astype(np.int32)
    return keras.Model(ids, outputs), {"samples": {"ids": some}}


MODELS: Mapping[str, Callable[[], tuple[Any, Samples]]] = {
    "digits": digits,
    "resnet50": resnet50,
    "transformer": transformer,
}


def main() -> None:
    """Make the model that the command line names."""
    parser = argparse.ArgumentParser(description="Make a TensorFlow model to convert.")
    parser.add_argument("model", choices=sorted(MODELS))
    parser.add_argument("folder", type=Path, metavar="DIR")
    chosen = parser.parse_args()
    keras.utils.set_random_seed(SEED)
    model, samples = MODELS[chosen.model]()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    model.export(chosen.folder / "savedmodel", format="tf_saved_model", verbose=False)
    for name, arrays in samples.items():
        np.savez(chosen.folder / f"{name}.npz", **arrays)
    for path in sorted(chosen.folder.iterdir()):
        print(path)


if __name__ == "__main__":
    main()
