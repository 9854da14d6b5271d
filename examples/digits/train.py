"""Trains the two versions of the demo model `digits` and writes all that is derived from them.

Each version walks the same way: train with Keras, export a SavedModel, convert it with tf2onnx,
compare the ONNX graph with Keras on every held-out row. Only when both pass is anything written:

    model_repo/digits/<version>/model.onnx     the two versions
    model_repo/digits/model_card.json          what was measured on these two files
    examples/digits/*.png, seven*.json         held-out rows to try

The markdown table of results goes to stdout. Training is seeded and uses deterministic kernels, so
a second run on the same machine, with the same library versions, writes the same bytes.
"""

from __future__ import annotations

import argparse
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
import onnx
import onnxruntime
import tensorflow as tf
import tf2onnx
from numpy.typing import NDArray

SEED = 20240917
OPSET = 18
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


class Refused(Exception):
    """The ONNX graph does not do what the Keras model does."""


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
    """Train, export to `savedmodel`, convert, compare. Raises Refused."""
    model = train(recipe)
    model.export(savedmodel, format="tf_saved_model", verbose=False)
    graph = convert(savedmodel)
    compare(graph, model)
    return Version(recipe.number, recipe.summary, model.count_params(), graph)


def train(recipe: Recipe) -> Any:
    keras.utils.set_random_seed(SEED)
    x = keras.Input((8, 8, 1), name="x")
    probabilities = keras.layers.Dense(10, activation="softmax")(recipe.hidden(x))
    # A dictionary, because its key names the output in the SavedModel and from there in ONNX.
    model = keras.Model(x, {"probabilities": probabilities})
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy")
    model.fit(*data.training(), batch_size=32, epochs=recipe.epochs, verbose=0)
    return model


def convert(savedmodel: Path) -> bytes:
    """The SavedModel as a checked ONNX file whose only free dimension is called `batch`."""
    loaded = tf.saved_model.load(str(savedmodel))
    serve = loaded.signatures["serve"]
    signature = [tf.TensorSpec((None, 8, 8, 1), tf.float32, name="x")]
    function = tf.function(lambda x: serve(x=x), input_signature=signature)
    graph, _ = tf2onnx.convert.from_function(function, input_signature=signature, opset=OPSET)

    for tensor in (*graph.graph.input, *graph.graph.output):
        tensor.type.tensor_type.shape.dim[0].dim_param = "batch"
    graph.graph.name = "digits"
    graph.graph.doc_string = ""  # tf2onnx notes a counter of its process here
    rename_inner(graph.graph)
    onnx.checker.check_model(graph, full_check=True)
    return bytes(graph.SerializeToString(deterministic=True))


def rename_inner(graph: Any) -> None:
    """Name nodes, values and constants after their place in the graph, for instance `Conv_1`.

    The names that tf2onnx picks depend on Python's hash seed, so without this two runs would write
    different bytes. Inputs and outputs keep their names. The graph must be flat: no If, no Loop.
    """
    names = {value.name: value.name for value in (*graph.input, *graph.output)}
    for place, node in enumerate(graph.node):
        node.name = f"{node.op_type}_{place}"
        for port, value in enumerate(node.input):
            node.input[port] = names.setdefault(value, f"{node.name}_constant_{port}")
        for port, value in enumerate(node.output):
            node.output[port] = names.setdefault(value, f"{node.name}_out_{port}")
    for constant in graph.initializer:
        constant.name = names[constant.name]
    graph.initializer.sort(key=lambda constant: constant.name)
    del graph.value_info[:]


def compare(graph: bytes, model: Any) -> None:
    """Raises Refused unless ONNX and Keras agree on all held-out rows, batched and one by one."""
    x, _ = data.held_out()
    expected = model.predict(x, batch_size=len(x), verbose=0)["probabilities"]
    session = open_session(graph)
    found = tuple((value.name, value.type, value.shape) for value in session.get_inputs())
    if found != (("x", "tensor(float)", ["batch", 8, 8, 1]),):
        raise Refused(f"the inputs are {found}")
    found = tuple((value.name, value.type, value.shape) for value in session.get_outputs())
    if found != (("probabilities", "tensor(float)", ["batch", 10]),):
        raise Refused(f"the outputs are {found}")

    one_by_one = np.concatenate([run(session, x[i : i + 1]) for i in range(len(x))])
    for answer in (run(session, x), one_by_one):
        if answer.shape != expected.shape:
            raise Refused(f"shape {answer.shape} where Keras answers {expected.shape}")
        error = float(np.abs(answer - expected).max())
        if not error <= TOLERANCE:
            raise Refused(f"a probability differs from Keras by {error:.2e}")
        different = int(np.count_nonzero(answer.argmax(axis=1) != expected.argmax(axis=1)))
        if different:
            raise Refused(f"{different} held-out rows have another digit than with Keras")
        print(f"agrees with Keras on {len(x)} rows, largest error {error:.1e}", file=sys.stderr)


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
        ",\n  ".join("[" + ", ".join(f"[{value}]" for value in line) + "]" for line in picture)
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
        except Refused as refused:
            print(f"nothing was written: {refused}", file=sys.stderr)
            return 1

    measured = tuple(write_version(version, repository) for version in versions)
    card = json.dumps(model_card(measured), indent=2)
    (repository / "model_card.json").write_text(card + "\n")
    write_examples(measured, chosen.root / "examples" / "digits")
    print(table(measured))
    return 0


if __name__ == "__main__":
    sys.exit(main())
