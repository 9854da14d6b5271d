"""The two steps of the big example: CIFAR-10, and Keras' ResNet-50 trained from random weights.

50,000 colour pictures of 32x32 in ten classes, of which a tenth validates, and 10,000 held out, as
the data set's authors divide them. Parts are as in `digits.py`.

Source: Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009;
https://www.cs.toronto.edu/~kriz/cifar.html, the archive for Python. Its batches are pickles, which
can run code when they are opened: so the digest of the whole archive is checked first.
"""

# ruff: noqa: F821

from kfp.dsl import Dataset, Input, Metrics, Model, Output

ARCHIVE = "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"
SHA256 = "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce"


def preprocess(
    archive: str,
    sha256: str,
    seed: int,
    train: Output[Dataset],
    validation: Output[Dataset],
    held_out: Output[Dataset],
    counts: Output[Metrics],
):
    """Fetch the archive, check it, and cut it into three parts; the test batch is held out."""
    import tempfile
    from pathlib import Path
    from urllib.parse import urlsplit
    from urllib.request import urlretrieve

    import numpy as np
    from sklearn.model_selection import train_test_split

    with tempfile.TemporaryDirectory() as folder:
        path = archive
        if urlsplit(archive).scheme in ("http", "https"):
            path = urlretrieve(archive, f"{folder}/cifar-10.tar.gz")[0]
        batches = read_batches(path, sha256)
    classes = np.array(batches.pop("classes"))
    tested = batches.pop("test_batch")
    pictures = np.concatenate([batch[0] for batch in batches.values()])
    labels = np.concatenate([batch[1] for batch in batches.values()])
    learned, chosen = train_test_split(
        np.arange(len(pictures)), test_size=0.1, random_state=seed, stratify=labels
    )
    parts = {
        "train": (train, pictures[learned], labels[learned]),
        "validation": (validation, pictures[chosen], labels[chosen]),
        "held_out": (held_out, *tested),
    }
    for name, (artifact, rows, answers) in parts.items():
        with Path(artifact.path).open("wb") as file:
            np.savez_compressed(file, pictures=rows, labels=answers, classes=classes)
        counts.log_metric(f"{name}_rows", len(rows))
    say(", ".join(f"{len(part[1])} rows {name}" for name, part in parts.items()))


def read_batches(path: str, sha256: str) -> dict:
    """The batches by name, each as pictures [n, 32, 32, 3] and labels; and the `classes`."""
    import hashlib
    import pickle
    import tarfile
    from pathlib import Path

    import numpy as np

    with Path(path).open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != sha256:
        raise SystemExit(f"- {path} is not the archive: its SHA-256 is {digest}, not {sha256}")
    found = {}
    with tarfile.open(path) as archive:
        for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
            page = pickle.load(archive.extractfile(f"cifar-10-batches-py/{name}"), encoding="bytes")
            planes = page[b"data"].reshape(-1, 3, 32, 32)  # all of red, then green, then blue
            found[name] = (planes.transpose(0, 2, 3, 1).copy(), np.array(page[b"labels"]))
        names = pickle.load(archive.extractfile("cifar-10-batches-py/batches.meta"))
    found["classes"] = names["label_names"]
    return found


def resnet50(classes: int):
    """ResNet-50; its first layers were made for large pictures, so these small ones are doubled."""
    import keras

    given = keras.Input((32, 32, 3), name="x")
    trunk = keras.applications.ResNet50(
        include_top=False, weights=None, input_shape=(64, 64, 3), pooling="avg"
    )
    features = trunk(keras.layers.UpSampling2D(2)(given))
    # FP32 also where the rest computes in FP16: a softmax needs the range.
    scores = keras.layers.Dense(classes, activation="softmax", dtype="float32")(features)
    return keras.Model(given, {"probabilities": scores})


def learnable(part: str, batch: int, seed: int):
    """A part's rows in batches, in a new order each epoch, shifted and mirrored at random."""
    import numpy as np
    import tensorflow as tf

    with np.load(part) as rows:
        x, y = tensors(rows["pictures"]), rows["labels"]

    def varied(picture, label):
        wide = tf.pad(picture, [[4, 4], [4, 4], [0, 0]], mode="REFLECT")
        shifted = tf.image.random_crop(wide, (32, 32, 3), seed=seed)
        return tf.image.random_flip_left_right(shifted, seed=seed), label

    rows = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(len(x), seed=seed)
    return rows.map(varied, tf.data.AUTOTUNE).batch(batch).prefetch(tf.data.AUTOTUNE)


def fit(
    train: Input[Dataset],
    validation: Input[Dataset],
    epochs: int,
    batch: int,
    mixed_precision: bool,
    seed: int,
    trained: Output[Model],
    learning: Output[Metrics],
):
    """Train on one GPU, and keep the weights of the epoch that was best on the validation rows."""
    import tempfile

    import keras
    import numpy as np

    keras.utils.set_random_seed(seed)
    if mixed_precision:
        keras.mixed_precision.set_global_policy("mixed_float16")
    with np.load(validation.path) as rows:
        judged = (tensors(rows["pictures"]), rows["labels"])
        model = resnet50(len(rows["classes"]))
    batches = learnable(train.path, batch, seed)
    falling = keras.optimizers.schedules.CosineDecay(0.1, epochs * len(batches))
    sgd = keras.optimizers.SGD(falling, momentum=0.9, nesterov=True, weight_decay=5e-4)
    model.compile(sgd, "sparse_categorical_crossentropy", metrics=["accuracy"])
    with tempfile.TemporaryDirectory() as folder:
        best = f"{folder}/best.weights.h5"
        keep = keras.callbacks.ModelCheckpoint(
            best, monitor="val_accuracy", mode="max", save_best_only=True, save_weights_only=True
        )
        fitted = model.fit(
            batches, epochs=epochs, validation_data=judged, callbacks=[keep], verbose=2
        )
        model.load_weights(best)
    model.export(trained.path, format="tf_saved_model", verbose=False)
    shares = fitted.history["val_accuracy"]
    learning.log_metric("parameters", model.count_params())
    learning.log_metric("best_epoch", int(np.argmax(shares)) + 1)
    learning.log_metric("validation_accuracy", float(max(shares)))
    say(f"epoch {int(np.argmax(shares)) + 1} of {epochs}: {max(shares):.2%} of validation right")
