"""Networks for images: one in every form of source, the well-known ones, and special layers."""

import shutil
from pathlib import Path
from typing import Any

from .rows import Build, row

SIZE = 16
KERAS2 = Path(__file__).parent / "keras2"


def _network() -> Any:
    """Convolutions, batch normalisation, pooling, two branches; weights that are not symmetric."""
    import keras

    keras.utils.set_random_seed(1)
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


@row("keras-export", is_slow=False)
def keras_export(folder: Path) -> Path:
    """What Keras 3 exports: the signatures `serve` and `serving_default` are the same one."""
    _network().export(str(folder / "model"), format="tf_saved_model", verbose=False)
    return folder / "model"


@row("keras-file", is_slow=False)
def keras_file(folder: Path) -> Path:
    """A .keras file."""
    _network().save(folder / "model.keras")
    return folder / "model.keras"


@row("h5-file")
def h5_file(folder: Path) -> Path:
    """A .h5 file of Keras 3."""
    _network().save(folder / "model.h5")
    return folder / "model.h5"


@row("keras2-savedmodel")
def keras2_savedmodel(folder: Path) -> Path:
    """What Keras 2 saves, with signatures of its own making; see `keras2/make.py`."""
    return Path(shutil.copytree(KERAS2 / "saved", folder / "model"))


@row("keras2-h5")
def keras2_h5(folder: Path) -> Path:
    """A .h5 file of Keras 2, which Keras 3 reads."""
    return Path(shutil.copy(KERAS2 / "model.h5", folder / "model.h5"))


@row("nchw", nchw=("image",), is_slow=False)
def nchw(folder: Path) -> Path:
    """The converted one takes its images channels first."""
    return keras_export(folder)


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


def _application(name: str, size: int, **options: Any) -> Build:
    def build(folder: Path) -> Path:
        import keras

        keras.utils.set_random_seed(2)
        make = getattr(keras.applications, name)
        model = make(weights=None, input_shape=(size, size, 3), classes=10, **options)
        _moved(model).export(str(folder / "model"), format="tf_saved_model", verbose=False)
        return folder / "model"

    return build


row("resnet50")(_application("ResNet50", 64))
row("inception-v3")(_application("InceptionV3", 96))
row("densenet121")(_application("DenseNet121", 64))
row("mobilenet-v2")(_application("MobileNetV2", 64))
row("mobilenet-v3")(_application("MobileNetV3Small", 64))
row("efficientnet-v2-b0")(_application("EfficientNetV2B0", 64))
row("convnext-tiny")(_application("ConvNeXtTiny", 64))


@row("grouped-convolution", is_slow=False)
def grouped_convolution(folder: Path) -> Path:
    """TensorFlow compiles convolutions in groups with XLA, without being asked."""
    import keras

    keras.utils.set_random_seed(3)
    model = keras.Sequential(
        [
            keras.Input((SIZE, SIZE, 4), name="image"),
            keras.layers.Conv2D(8, 3, groups=4, activation="relu"),
            keras.layers.Conv2D(4, 3, groups=2),
        ]
    )
    model.export(str(folder / "model"), format="tf_saved_model", verbose=False)
    return folder / "model"


@row("jit-compiled")
def jit_compiled(folder: Path) -> Path:
    """A function that is to be compiled by XLA."""
    import tensorflow as tf

    class Module(tf.Module):  # type: ignore[misc]
        @tf.function(jit_compile=True)  # type: ignore[untyped-decorator]
        def inner(self, x: Any) -> Any:
            return tf.nn.softmax(x * 2.0)

        @tf.function(  # type: ignore[untyped-decorator]
            input_signature=[tf.TensorSpec((None, 4), tf.float32, name="x")]
        )
        def outer(self, x: Any) -> dict[str, Any]:
            return {"y": self.inner(x)}

    module = Module()
    tf.saved_model.save(module, str(folder / "model"), signatures=module.outer)
    return folder / "model"


@row("dynamic-size")
def dynamic_size(folder: Path) -> Path:
    """Height and width are known only at run time."""
    import keras

    keras.utils.set_random_seed(4)
    image = keras.Input((None, None, 3), name="image")
    x = keras.layers.Conv2D(4, 3, strides=2, padding="same", activation="relu")(image)
    x = keras.layers.Conv2DTranspose(4, 3, strides=2, padding="same")(x)
    mask = keras.layers.Conv2D(1, 1, activation="sigmoid", name="mask")(x)
    keras.Model(image, mask).export(str(folder / "model"), format="tf_saved_model", verbose=False)
    return folder / "model"


@row("uint8-input", is_slow=False)
def uint8_input(folder: Path) -> Path:
    """Pixels as bytes, rescaled inside."""
    import keras

    keras.utils.set_random_seed(5)
    pixels = keras.Input((SIZE, SIZE, 3), dtype="uint8", name="pixels")
    x = keras.layers.Rescaling(1 / 255)(pixels)
    x = keras.layers.Conv2D(4, 3, activation="relu")(x)
    scores = keras.layers.Dense(3)(keras.layers.Flatten()(x))
    keras.Model(pixels, scores).export(
        str(folder / "model"), format="tf_saved_model", verbose=False
    )
    return folder / "model"


@row("mixed-float16")
def mixed_float16(folder: Path) -> Path:
    """Computes in float16, keeps float32 outside."""
    import keras

    keras.utils.set_random_seed(6)
    policy = keras.DTypePolicy("mixed_float16")
    image = keras.Input((SIZE, SIZE, 3), name="image")
    x = keras.layers.Conv2D(8, 3, activation="relu", dtype=policy)(image)
    x = keras.layers.GlobalAveragePooling2D(dtype=policy)(x)
    scores = keras.layers.Dense(4, activation="softmax", dtype="float32")(x)
    keras.Model(image, scores).export(str(folder / "model"), format="tf_saved_model", verbose=False)
    return folder / "model"


@row("transposed-and-3d")
def transposed_and_3d(folder: Path) -> Path:
    """Transposed, separable and three-dimensional convolutions, and normalisation by groups."""
    import keras

    keras.utils.set_random_seed(7)
    image = keras.Input((8, 8, 4), name="image")
    x = keras.layers.Conv2DTranspose(4, 3, strides=2, padding="same")(image)
    x = keras.layers.SeparableConv2D(4, 3, padding="same")(x)
    x = keras.layers.GroupNormalization(2)(x)
    x = keras.layers.PReLU(shared_axes=(1, 2))(x)
    flat = keras.layers.GlobalMaxPooling2D()(x)
    cube = keras.layers.Reshape((4, 4, 4, 4))(keras.layers.AveragePooling2D(2)(x))
    cube = keras.layers.Conv3D(2, 3)(cube)
    joined = keras.layers.Concatenate()([flat, keras.layers.Flatten()(cube)])
    keras.Model(image, keras.layers.Dense(3)(joined)).export(
        str(folder / "model"), format="tf_saved_model", verbose=False
    )
    return folder / "model"
