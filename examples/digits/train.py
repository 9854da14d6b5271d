"""Trains the two versions of the demo model `digits` and writes all that is derived from them.

Each version walks the same way: train with Keras, export a SavedModel, convert it as `servegate
convert onnx` does, with the held-out rows as its measure. Only when both pass is anything written:

    model_repo/digits/<version>/model.onnx     the two versions
    model_repo/digits/model_card.json          what was measured on these two files
    examples/digits/*.png, seven*.json         held-out rows to try

The markdown table of results goes to stdout. Training is seeded and uses deterministic kernels, so
a second run on the same machine, with the same library versions, writes the same bytes.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import data
import keras
import numpy as np
import onnxruntime
import tensorflow as tf
from numpy.typing import NDArray

from serve.core.errors import ConversionFailed
from serve.tensors.expected_outputs import Tolerance
from serve.workbench.conversion.request import GENERAL, ConversionRequest
from serve.workbench.conversion.runner import convert, default_limits

SEED = 20240917
TOLERANCE = 1e-5  # of a probability; float32 kernels of two runtimes differ by about 1e-6


@dataclass(frozen=True, slots=True)
class Recipe:
    """How one version is made. `hidden` maps the input `x` to what the softmax reads."""

    number: int
    summary: str
    hidden: Callable[[Any], Any]
    epochs: int


@dataclass(frozen=True, slots=True)
class Version:
    """A version that was converted and agrees with Keras."""

    number: int
    summary: str
    parameters: int
    onnx: bytes


@dataclass(frozen=True, slots=True)
class Measured:
    """A version as its written file behaves. `guesses` holds one digit per held-out row."""

    version: Version
    sha256: str
    guesses: NDArray[np.int64]
    correct: int

    @property
    def accuracy(self) -> float:
        return self.correct / len(self.guesses)


def dense(x: Any) -> Any:
    return keras.layers.Dense(16, activation="relu")(keras.layers.Flatten()(x))


def convolutional(x: Any) -> Any:
    features = keras.layers.Conv2D(16, 3, padding="same", activation="relu")(x)
    features = keras.layers.MaxPooling2D(2)(features)
    features = keras.layers.Conv2D(32, 3, padding="same", activation="relu")(features)
    return keras.layers.Flatten()(features)


RECIPES = (
    Recipe(1, "one hidden layer of 16 units", dense, epochs=24),
    Recipe(2, "two convolutions of 16 and 32 filters", convolutional, epochs=30),
)


def make(recipe: Recipe, savedmodel: Path) -> Version:
    """Train, export to `savedmodel`, convert. Raises ConversionFailed."""
    model = train(recipe)
    model.export(savedmodel, format="tf_saved_model", verbose=False)
    return Version(recipe.number, recipe.summary, model.count_params(), converted(savedmodel))


def train(recipe: Recipe) -> Any:
    keras.utils.set_random_seed(SEED)
    x = keras.Input((8, 8, 1), name="x")
    probabilities = keras.layers.Dense(10, activation="softmax")(recipe.hidden(x))
    # A dictionary, because its key names the output in the SavedModel and from there in ONNX.
    model = keras.Model(x, {"probabilities": probabilities})
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy")
    model.fit(*data.training(), batch_size=32, epochs=recipe.epochs, verbose=0)
    return model


def converted(savedmodel: Path) -> bytes:
    """The SavedModel as an ONNX file that answers every held-out row as TensorFlow does."""
    rows, labels = data.held_out()
    with tempfile.TemporaryDirectory() as folder:
        labelled = Path(folder) / "held_out.npz"
        np.savez(labelled, x=rows, labels=labels)
        request = ConversionRequest(
            str(savedmodel),
            labelled=str(labelled),
            max_drop=0.0,
            tolerances={GENERAL: Tolerance(atol=TOLERANCE, rtol=0.0)},
            seed=SEED,
        )
        work, limits = Path(folder) / "work", default_limits()
        report = asyncio.run(convert(request, work, limits=limits, on_event=lambda event: None))
        for step in report.steps:
            print(f"{step.step}: {step.summary}", file=sys.stderr)
        return (work / "model.onnx").read_bytes()


def open_session(graph: bytes) -> Any:
    return onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])


def run(session: Any, x: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.asarray(session.run(["probabilities"], {"x": x})[0], dtype=np.float32)


def write_version(version: Version, repository: Path) -> Measured:
    """Write `model.onnx`, then measure the file that is there."""
    path = repository / str(version.number) / "model.onnx"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(version.onnx)

    written = path.read_bytes()
    x, y = data.held_out()
    guesses = run(open_session(written), x).argmax(axis=1)
    digest = hashlib.sha256(written).hexdigest()
    return Measured(version, digest, guesses, int(np.count_nonzero(guesses == y)))


def model_card(measured: tuple[Measured, ...]) -> dict[str, Any]:
    pictures, _ = data.pictures()
    return {
        "model": "digits",
        "summary": "Handwritten digits, 8x8 grey pictures, ten classes.",
        "data": {
            "source": data.SOURCE,
            "rows": len(pictures),
            "held_out_rule": data.HELD_OUT_RULE,
            "held_out_rows": len(data.held_out_rows()),
        },
        "versions": {
            str(one.version.number): {
                "summary": one.version.summary,
                "parameters": one.version.parameters,
                "held_out_rows": len(one.guesses),
                "held_out_correct": one.correct,
                "held_out_accuracy": round(one.accuracy, 4),
                "sha256": one.sha256,
            }
            for one in measured
        },
    }


def write_examples(measured: tuple[Measured, ...], folder: Path) -> None:
    """Write the first held-out row of each kind as a PNG, and the seven as a request body too."""
    _, y = data.held_out()
    first, second = (one.guesses == y for one in measured)
    examples = {
        "seven": (y == 7) & first & second,
        "three": (y == 3) & first & second,
        "disagree": ~first & second,
    }
    folder.mkdir(parents=True, exist_ok=True)
    pictures = data.pictures()[0][data.held_out_rows()]
    for name, suitable in examples.items():
        picture = pictures[np.flatnonzero(suitable)[0]]
        (folder / f"{name}.png").write_bytes(data.png(picture))
        if name == "seven":
            x = data.tensors(picture[np.newaxis])
            (folder / "seven.json").write_text(request_body(x))
            (folder / "seven.rows.json").write_text(instances_body(x))


def request_body(x: NDArray[np.float32]) -> str:
    """A KServe v2 infer request for `x`, with one line of numbers per line of the picture.

    `str` of a float32 is the shortest number that reads back as the same float32.
    """
    lines = (", ".join(str(value) for value in line) for line in x.reshape(-1, x.shape[2]))
    body = ",\n  ".join(lines)
    head = f'"name": "x", "shape": {list(x.shape)}, "datatype": "FP32"'
    return f'{{"inputs": [{{{head}, "data": [\n  {body}\n]}}]}}\n'


def instances_body(x: NDArray[np.float32]) -> str:
    """The same as a TensorFlow Serving predict request: a row per picture, nested as its shape."""
    rows = (
        ",\n  ".join("[" + ", ".join(f"[{value!s}]" for value in line) + "]" for line in picture)
        for picture in x.reshape(x.shape[:3])
    )
    return '{"instances": [[\n  ' + "\n], [\n  ".join(rows) + "\n]]}\n"


def table(measured: tuple[Measured, ...]) -> str:
    rows = (
        f"| {one.version.number} | {one.version.summary} | {one.version.parameters} "
        f"| {one.correct} of {len(one.guesses)} | {one.accuracy:.4f} |"
        for one in measured
    )
    head = "| version | network | parameters | held-out rows right | accuracy |"
    return "\n".join((head, "|---|---|---|---|---|", *rows))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Train, convert, check and write the model digits."
    )
    parser.add_argument(
        "--root",
        type=Path,
        metavar="DIR",
        default=Path(__file__).resolve().parents[2],
        help="write model_repo/ and examples/ under DIR (default: this checkout)",
    )
    parser.add_argument(
        "--keep-savedmodels",
        type=Path,
        metavar="DIR",
        help="keep the exported SavedModels as DIR/1 and DIR/2 (default: a temporary folder)",
    )
    return parser.parse_args()


def main() -> int:
    chosen = arguments()
    tf.config.experimental.enable_op_determinism()
    repository = chosen.root / "model_repo" / "digits"

    with tempfile.TemporaryDirectory() as scratch:
        savedmodels = chosen.keep_savedmodels or Path(scratch)
        try:
            versions = [make(recipe, savedmodels / str(recipe.number)) for recipe in RECIPES]
        except ConversionFailed as error:
            print(f"nothing was written: {error}", file=sys.stderr)
            return 1

    measured = tuple(write_version(version, repository) for version in versions)
    card = json.dumps(model_card(measured), indent=2)
    (repository / "model_card.json").write_text(card + "\n")
    write_examples(measured, chosen.root / "examples" / "digits")
    print(table(measured))
    return 0


if __name__ == "__main__":
    sys.exit(main())
