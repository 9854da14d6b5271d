"""Made `saved/` and `model.h5` here with Keras 2, which does not go into our environment.

tf_keras asks for the package `tensorflow`, and that would overwrite tensorflow-cpu. So these files
were written once, by tf_keras 2.21.0, which was installed with `--no-deps` into a folder aside:

    pip install --no-deps --target ASIDE tf_keras==2.21.0
    PYTHONPATH=ASIDE python tests/workbench/conversion/zoo/keras2/make.py
"""

from pathlib import Path

import tf_keras
from tf_keras import layers

HERE = Path(__file__).parent

tf_keras.utils.set_random_seed(7)
model = tf_keras.Sequential(
    [
        tf_keras.Input((8, 8, 1), name="image"),
        layers.Conv2D(4, 3, padding="same", activation="relu"),
        layers.BatchNormalization(),
        layers.GlobalAveragePooling2D(),
        layers.Dense(3, activation="softmax", name="scores"),
    ]
)
model.save(HERE / "saved")
model.save(HERE / "model.h5")
