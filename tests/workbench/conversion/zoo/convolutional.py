"""Networks for images: one in every form of source, the well-known ones, and special layers."""

import shutil
from pathlib import Path
from typing import Any

from .rows import ROWS, Network, network, row

SIZE = 16
KERAS2 = Path(__file__).parent / "keras2"


@network("keras-export", is_slow=False)
def _network(keras: Any) -> Any:
    """Convolutions, batch normalisation, pooling, two branches; weights that are not symmetric.

    Keras 3 exports the signatures `serve` and `serving_default`, which are the same one.
    """
    image = keras.Input((SIZE, SIZE, 3), name="image")
    x = keras.layers.Conv2D(8, 3, padding="same", use_bias=False)(image)
    x = keras.layers.BatchNormalization()(x)
    x = keras.layers.ReLU()(x)
    left = keras.layers.Conv2D(8, 3, strides=2, padding="same")(x)
    right = keras.layers.MaxPooling2D(2)(x)
    x = keras.layers.Concatenate()([left, right])
    x = keras.layers.DepthwiseConv2D(3, padding="same", activation="relu6")(x)
    x = keras.layers.GlobalAveragePooling2D()(x)
    scores = keras.layers.Dense(5, activation="softmax", name="scores")(x)
    return _moved(keras.Model(image, scores))


def _moved(model: Any) -> Any:
    """With statistics and biases as training would leave them, not zeros and ones."""
    import numpy as np

    rng = np.random.default_rng(1)
    for layer in model.layers:
        if type(layer).__name__ == "BatchNormalization":
            for weight in layer.weights:
                is_factor = weight.name in ("gamma", "moving_variance")
                low, high = (0.5, 1.5) if is_factor else (-0.3, 0.3)
                weight.assign(rng.uniform(low, high, weight.shape))
    return model


# The converted one takes its images channels first.
row("nchw", nchw=("image",), is_slow=False)(ROWS["keras-export"].build)


def _file(folder: Path, name: str) -> Path:
    """What Keras 3 saves in a file of this name; the loss is a function of somebody's own."""
    import keras

    def own(wanted: Any, found: Any) -> Any:
        return keras.ops.mean(wanted - found)

    keras.utils.set_random_seed(1)
    model = _network(keras)
    model.compile(loss=own, optimizer="adam")
    model.save(folder / name)
    return folder / name


row("keras-file", is_slow=False)(lambda folder: _file(folder, "model.keras"))
row("h5-file")(lambda folder: _file(folder, "model.h5"))


@row("keras2-savedmodel")
def keras2_savedmodel(folder: Path) -> Path:
    """What Keras 2 saves, with signatures of its own making; see `keras2/make.py`."""
    return Path(shutil.copytree(KERAS2 / "saved", folder / "model"))


@row("keras2-h5")
def keras2_h5(folder: Path) -> Path:
    """A .h5 file of Keras 2, which Keras 3 reads."""
    return Path(shutil.copy(KERAS2 / "model.h5", folder / "model.h5"))


@row("tf-module", is_slow=False)
def tf_module(folder: Path) -> Path:
    """A tf.Module with variables, saved with a signature and names of its own."""
    import tensorflow as tf

    class Module(tf.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            rng = tf.random.Generator.from_seed(3)
            self.kernel = tf.Variable(rng.normal((3, 3, 3, 4)))
            self.weight = tf.Variable(rng.normal((4, 2)))

        @tf.function(  # type: ignore[untyped-decorator]
            input_signature=[tf.TensorSpec((None, SIZE, SIZE, 3), tf.float32, name="pixels")]
        )
        def __call__(self, pixels: Any) -> dict[str, Any]:
            hidden = tf.nn.relu(tf.nn.conv2d(pixels, self.kernel, 2, "SAME"))
            pooled = tf.reduce_mean(hidden, [1, 2])
            return {"logits": pooled @ self.weight, "features": pooled}

    module = Module()
    tf.saved_model.save(module, str(folder / "model"), signatures=module.__call__)
    return folder / "model"


def _application(name: str, size: int) -> Network:
    def make(keras: Any) -> Any:
        of = getattr(keras.applications, name)
        return _moved(of(weights=None, input_shape=(size, size, 3), classes=10))

    return make


network("resnet50")(_application("ResNet50", 64))
network("inception-v3")(_application("InceptionV3", 96))
network("densenet121")(_application("DenseNet121", 64))
network("mobilenet-v2")(_application("MobileNetV2", 64))
network("mobilenet-v3")(_application("MobileNetV3Small", 64))
network("efficientnet-v2-b0")(_application("EfficientNetV2B0", 64))
network("convnext-tiny")(_application("ConvNeXtTiny", 64))


@network("grouped-convolution", is_slow=False)
def grouped_convolution(keras: Any) -> Any:
    """TensorFlow compiles convolutions in groups with XLA, without being asked."""
    return keras.Sequential(
        [
            keras.Input((SIZE, SIZE, 4), name="image"),
            keras.layers.Conv2D(8, 3, groups=4, activation="relu"),
            keras.layers.Conv2D(4, 3, groups=2),
        ]
    )


@network("dynamic-size")
def dynamic_size(keras: Any) -> Any:
    """Height and width are known only at run time."""
    image = keras.Input((None, None, 3), name="image")
    x = keras.layers.Conv2D(4, 3, strides=2, padding="same", activation="relu")(image)
    x = keras.layers.Conv2DTranspose(4, 3, strides=2, padding="same")(x)
    mask = keras.layers.Conv2D(1, 1, activation="sigmoid", name="mask")(x)
    return keras.Model(image, mask)


@network("uint8-input", is_slow=False)
def uint8_input(keras: Any) -> Any:
    """Pixels as bytes, rescaled inside."""
    pixels = keras.Input((SIZE, SIZE, 3), dtype="uint8", name="pixels")
    x = keras.layers.Rescaling(1 / 255)(pixels)
    x = keras.layers.Conv2D(4, 3, activation="relu")(x)
    return keras.Model(pixels, keras.layers.Dense(3)(keras.layers.Flatten()(x)))


@network("mixed-float16")
def mixed_float16(keras: Any) -> Any:
    """Computes in float16, keeps float32 outside."""
    policy = keras.DTypePolicy("mixed_float16")
    image = keras.Input((SIZE, SIZE, 3), name="image")
    x = keras.layers.Conv2D(8, 3, activation="relu", dtype=policy)(image)
    x = keras.layers.GlobalAveragePooling2D(dtype=policy)(x)
    return keras.Model(image, keras.layers.Dense(4, activation="softmax", dtype="float32")(x))


@network("transposed-and-3d")
def transposed_and_3d(keras: Any) -> Any:
    """Transposed, separable and three-dimensional convolutions, and normalisation by groups."""
    image = keras.Input((8, 8, 4), name="image")
    x = keras.layers.Conv2DTranspose(4, 3, strides=2, padding="same")(image)
    x = keras.layers.SeparableConv2D(4, 3, padding="same")(x)
    x = keras.layers.GroupNormalization(2)(x)
    x = keras.layers.PReLU(shared_axes=(1, 2))(x)
    flat = keras.layers.GlobalMaxPooling2D()(x)
    cube = keras.layers.Reshape((4, 4, 4, 4))(keras.layers.AveragePooling2D(2)(x))
    cube = keras.layers.Conv3D(2, 3)(cube)
    joined = keras.layers.Concatenate()([flat, keras.layers.Flatten()(cube)])
    return keras.Model(image, keras.layers.Dense(3)(joined))
