"""Train a ResNet for small pictures on any number of machines; the first writes a SavedModel.

| environment              | set by                                                            |
|--------------------------|-------------------------------------------------------------------|
| `TF_CONFIG`              | whoever knows it; otherwise it is made of the three below         |
| `TRAINJOB`               | the runtime: the name of the TrainJob, and of its hosts           |
| `NODES`                  | the TrainJob: how many machines                                   |
| `JOB_COMPLETION_INDEX`   | Kubernetes: which of them this is                                 |

Every machine runs this, each with its share of every batch; gradients are added up over all GPUs of
all machines (MultiWorkerMirroredStrategy). The loop is written out, because `Model.fit` of Keras 3
does not run under that strategy (keras issue 20585).

Source: He et al., Deep Residual Learning, section 4.2; TensorFlow's guide to TF_CONFIG.
"""

import argparse
import json
import os
from collections.abc import Mapping
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

PORT = 2222
Arrays = Mapping[str, np.ndarray]


def cluster(environment: Mapping[str, str]) -> str:
    """TF_CONFIG for this machine; empty for one that is alone."""
    nodes = int(environment.get("NODES", "1"))
    if "TF_CONFIG" in environment or nodes == 1:
        return environment.get("TF_CONFIG", "")
    job, index = environment["TRAINJOB"], int(environment["JOB_COMPLETION_INDEX"])
    workers = [f"{job}-node-0-{number}.{job}:{PORT}" for number in range(nodes)]
    task = {"type": "worker", "index": index}
    return json.dumps({"cluster": {"worker": workers}, "task": task})


def arrays(file: Path | None) -> Arrays:
    """Pictures as floats from 0 to 1 and their classes; CIFAR-10 where no file is named."""
    if file is not None:
        return dict(np.load(file))
    (train, train_labels), (test, test_labels) = keras.datasets.cifar10.load_data()
    return {
        "train": train.astype("float32") / 255,
        "train_labels": train_labels.ravel(),
        "test": test.astype("float32") / 255,
        "test_labels": test_labels.ravel(),
    }


def resnet(shape: tuple[int, ...], classes: int, blocks: int) -> keras.Model:
    """A ResNet of 6·blocks + 2 layers, which ends with logits."""
    inputs = keras.Input(shape, name="x")
    x = _convolution(inputs, 16)
    for width in (16, 32, 64):
        for number in range(blocks):
            stride = 2 if number == 0 and width > 16 else 1
            y = keras.layers.ReLU()(_convolution(x, width, stride))
            y = _convolution(y, width)
            if stride > 1:
                x = keras.layers.Conv2D(width, 1, stride, use_bias=False)(x)
            x = keras.layers.ReLU()(keras.layers.Add()([x, y]))
    x = keras.layers.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, keras.layers.Dense(classes, name="scores")(x))


def _convolution(x: object, width: int, stride: int = 1) -> object:
    x = keras.layers.Conv2D(width, 3, stride, padding="same", use_bias=False)(x)
    return keras.layers.BatchNormalization()(x)


def train(
    strategy: tf.distribute.Strategy, model: keras.Model, data: Arrays, told: argparse.Namespace
) -> None:
    """Go over the training rows `epochs` times; say the mean loss of each."""
    batch = told.batch * strategy.num_replicas_in_sync
    rows = len(data["train"]) // batch * batch
    pictures = tf.data.Dataset.from_tensor_slices((data["train"], data["train_labels"]))
    batches = pictures.shuffle(rows, seed=told.seed).batch(batch, drop_remainder=True)
    spread = strategy.experimental_distribute_dataset(batches)
    with strategy.scope():
        steps = max(1, rows // batch * told.epochs)
        rate = keras.optimizers.schedules.CosineDecay(0.1, steps)
        optimizer = keras.optimizers.SGD(rate, momentum=0.9, nesterov=True, weight_decay=1e-4)
        optimizer.build(model.trainable_variables)

    def one(x: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            scores = model(x, training=True)
            losses = keras.losses.sparse_categorical_crossentropy(labels, scores, from_logits=True)
            loss = tf.reduce_sum(losses) / batch  # the optimizer adds up the shares of all
        weights = model.trainable_variables
        optimizer.apply(tape.gradient(loss, [each.value for each in weights]), weights)
        return loss

    @tf.function
    def step(x: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        return strategy.reduce("SUM", strategy.run(one, args=(x, labels)), axis=None)

    for epoch in range(told.epochs):
        losses = [float(step(*each)) for each in spread]
        print(f"epoch {epoch + 1} of {told.epochs}: loss {np.mean(losses):.4f}", flush=True)


def averaged(strategy: tf.distribute.Strategy, model: keras.Model) -> list[np.ndarray]:
    """The weights. Each GPU has statistics of its own in its batch normalizations."""

    def one() -> list[tf.Tensor]:
        context = tf.distribute.get_replica_context()
        return [context.all_reduce("MEAN", tf.identity(each.value)) for each in model.weights]

    everywhere = tf.function(lambda: strategy.run(one))()
    return [strategy.experimental_local_results(each)[0].numpy() for each in everywhere]


def accuracy(model: keras.Model, data: Arrays, batch: int = 512) -> float:
    """The share of the test rows whose highest score is right."""
    found = [
        np.argmax(model(data["test"][at : at + batch], training=False), axis=-1)
        for at in range(0, len(data["test"]), batch)
    ]
    return float(np.mean(np.concatenate(found) == data["test_labels"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of the SavedModel")
    parser.add_argument("--data", type=Path, help="an .npz: train, train_labels, test, test_labels")
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--batch", type=int, default=128, help="rows of a step on each GPU")
    parser.add_argument("--blocks", type=int, default=9, help="6·blocks + 2 layers")
    parser.add_argument("--seed", type=int, default=0)
    told = parser.parse_args()
    if config := cluster(os.environ):
        os.environ["TF_CONFIG"] = config
    strategy = tf.distribute.MultiWorkerMirroredStrategy()  # before anything else of TensorFlow
    keras.utils.set_random_seed(told.seed)
    data = arrays(told.data)
    shape, classes = data["train"].shape[1:], int(data["train_labels"].max()) + 1
    with strategy.scope():
        model = resnet(shape, classes, told.blocks)
    train(strategy, model, data, told)
    alone = resnet(shape, classes, told.blocks)  # the same, on this machine only
    alone.set_weights(averaged(strategy, model))
    print(f"accuracy {accuracy(alone, data):.4f} on {len(data['test'])} rows", flush=True)
    if json.loads(config or "{}").get("task", {}).get("index", 0) == 0:
        signature = keras.InputSpec(dtype="float32", shape=(None, *shape), name="x")
        alone.export(told.out, input_signature=[signature])


if __name__ == "__main__":
    main()
