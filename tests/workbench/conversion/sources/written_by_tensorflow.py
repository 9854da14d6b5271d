"""A program that lets TensorFlow and Keras write models, harmless and not, into a folder.

Its first word is the folder. It tells in a line that begins with `>` what the converter and Keras
know.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers
from tensorflow.python.framework import op_def_registry

from serve.workbench.conversion.translation import known_operators

root = sys.argv[1] + "/"
known = sorted(name for name in known_operators() if op_def_registry.get(name) is not None)
extra = sorted(
    {
        name
        for module in (layers, keras.src.layers)
        for name in dir(module)
        if isinstance(getattr(module, name), type)
    }
)
print(">" + json.dumps({"known": known, "layers": extra}))


def of_our_own(wanted: Any, found: Any) -> Any:
    return tf.reduce_mean(wanted - found)


x = keras.Input((8, 5))
keras.Model(x, layers.Bidirectional(layers.LSTM(4))(x)).export(root + "lstm", verbose=False)
x = keras.Input((8, 8, 3))
y = layers.GlobalAveragePooling2D()(layers.Dropout(0.3)(layers.Conv2D(4, 3, activation="gelu")(x)))
model = keras.Model(x, layers.BatchNormalization()(y))
model.compile(loss=of_our_own, optimizer="adam")
model.export(root + "cnn", verbose=False)
model.save(root + "cnn.keras")
model.save(root + "cnn.h5")
x = keras.Input((4,))
code = keras.Model(x, layers.Lambda(lambda a: a * 2)(x))
code.save(root + "code.keras")
code.save(root + "code.h5")


of_rows = tf.function(input_signature=[tf.TensorSpec([None, 3])])


class Many(tf.Module):
    def __init__(self) -> None:
        super().__init__()
        self.v = tf.Variable(np.ones((3, 3), np.float32))

    @of_rows
    def plain(self, x: Any) -> Mapping[str, Any]:
        tf.debugging.assert_greater(tf.shape(x)[0], 0)
        return {"y": tf.matmul(x, tf.math.log1p(self.v))}

    @of_rows
    def writes(self, x: Any) -> Mapping[str, Any]:
        tf.io.write_file(root + "file", "x")
        return {"y": x}

    @of_rows
    def deep(self, x: Any) -> Mapping[str, Any]:
        def inner(row: Any) -> Any:
            return tf.linalg.svd(tf.reshape(row, [1, 3]))[0] * row

        def one(row: Any) -> Any:
            return tf.cond(tf.reduce_sum(row) > 0, lambda: row, lambda: inner(row))

        return {"y": tf.map_fn(one, x)}

    @of_rows
    def calls(self, x: Any) -> Mapping[str, Any]:
        return {"y": tf.numpy_function(lambda a: a, [x], tf.float32)}

    @of_rows
    def draws(self, x: Any) -> Mapping[str, Any]:
        return {"y": x + tf.random.normal(tf.shape(x))}

    @of_rows
    def halves(self, x: Any) -> Mapping[str, Any]:
        y = tf.matmul(tf.cast(x, tf.bfloat16), tf.cast(self.v, tf.bfloat16))
        return {"y": tf.cast(y, tf.float32)}

    @tf.function(input_signature=[tf.RaggedTensorSpec([None, None], tf.float32)])
    def ragged(self, x: Any) -> Mapping[str, Any]:
        return {"y": tf.reduce_sum(x, 1)}


many = Many()
names = ["plain", "writes", "deep", "calls", "draws", "halves", "ragged"]
tf.saved_model.save(many, root + "many", signatures={name: getattr(many, name) for name in names})
Path(root, "words.txt").write_text("a\nb\n")


class Table(tf.Module):
    def __init__(self, initializer: Any) -> None:
        super().__init__()
        self.table = tf.lookup.StaticHashTable(initializer, -1)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def find(self, x: Any) -> Mapping[str, Any]:
        return {"y": self.table.lookup(x)}


class Evil(tf.lookup.KeyValueTensorInitializer):
    def initialize(self, table: Any) -> Any:
        tf.io.write_file(root + "written", "x")
        return super().initialize(table)


words = Table(tf.lookup.TextFileInitializer(root + "words.txt", tf.string, -2, tf.int64, -1))
tf.saved_model.save(words, root + "words", signatures=words.find)
evil = Table(Evil(["a"], [1], tf.string, tf.int64))
tf.saved_model.save(evil, root + "evil", signatures=evil.find)
