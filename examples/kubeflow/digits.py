"""The two steps of the small example: scikit-learn's digits, and a network that learns in seconds.

The rows are those of examples/digits: 1797 grey pictures of 8x8, every third one held out. Of the
rest a fifth validates. A part is an .npz of `pictures`, `labels` and `classes`.
"""

# ruff: noqa: F821

from kfp.dsl import Dataset, Input, Metrics, Model, Output


def preprocess(
    seed: int,
    train: Output[Dataset],
    validation: Output[Dataset],
    held_out: Output[Dataset],
    counts: Output[Metrics],
):
    """Cut the rows into three parts that share none: to train, to choose by, to measure with."""
    from pathlib import Path

    import numpy as np
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    digits = load_digits()
    pictures = np.rint(digits.images * 255 / 16).astype(np.uint8)
    classes = np.array([str(digit) for digit in range(10)])
    rows = np.arange(len(pictures))
    rest = rows[rows % 3 != 2]
    learned, chosen = train_test_split(
        rest, test_size=0.2, random_state=seed, stratify=digits.target[rest]
    )
    parts = {"train": learned, "validation": chosen, "held_out": rows[rows % 3 == 2]}
    for artifact, (name, part) in zip((train, validation, held_out), parts.items(), strict=True):
        with Path(artifact.path).open("wb") as file:
            np.savez_compressed(
                file, pictures=pictures[part], labels=digits.target[part], classes=classes
            )
        counts.log_metric(f"{name}_rows", len(part))
    say(", ".join(f"{len(part)} rows {name}" for name, part in parts.items()))


def fit(
    train: Input[Dataset],
    validation: Input[Dataset],
    epochs: int,
    width: int,
    seed: int,
    trained: Output[Model],
    learning: Output[Metrics],
):
    """Train, and keep the weights of the epoch that was best on the validation rows."""
    import tempfile

    import keras
    import numpy as np
    import tensorflow as tf

    keras.utils.set_random_seed(seed)
    tf.config.experimental.enable_op_determinism()
    with np.load(train.path) as rows:
        x, y, classes = tensors(rows["pictures"]), rows["labels"], rows["classes"]
    with np.load(validation.path) as rows:
        judged = (tensors(rows["pictures"]), rows["labels"])
    given = keras.Input(x.shape[1:], name="x")
    features = keras.layers.Conv2D(width, 3, padding="same", activation="relu")(given)
    features = keras.layers.MaxPooling2D(2)(features)
    features = keras.layers.Conv2D(2 * width, 3, padding="same", activation="relu")(features)
    scores = keras.layers.Dense(len(classes), activation="softmax")(
        keras.layers.Flatten()(features)
    )
    model = keras.Model(given, {"probabilities": scores})  # the key names the output
    model.compile("adam", "sparse_categorical_crossentropy")
    with tempfile.TemporaryDirectory() as folder:
        best = f"{folder}/best.weights.h5"
        keep = keras.callbacks.ModelCheckpoint(
            best, monitor="val_loss", save_best_only=True, save_weights_only=True
        )
        fitted = model.fit(
            x, y, batch_size=32, epochs=epochs, validation_data=judged, callbacks=[keep], verbose=0
        )
        model.load_weights(best)
    model.export(trained.path, format="tf_saved_model", verbose=False)
    losses = fitted.history["val_loss"]
    learning.log_metric("parameters", model.count_params())
    learning.log_metric("best_epoch", int(np.argmin(losses)) + 1)
    learning.log_metric("validation_loss", float(min(losses)))
    say(
        f"{model.count_params()} parameters; epoch {int(np.argmin(losses)) + 1} of {epochs} is kept"
    )
