"""Sources that cannot be converted, each with the fault that it ends in."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .graphs import dropped_out, in_a_session, save
from .rows import row
from .sequences import as_keras2


@row("text-vectorization", code="unsupported_operator", operator="StaticRegexReplace")
def text_vectorization(folder: Path) -> Path:
    """Splits texts into words inside of the model."""
    import keras
    import tensorflow as tf

    text = keras.Input((1,), dtype=tf.string, name="text")
    layer = keras.layers.TextVectorization(vocabulary=["a", "b"], output_sequence_length=4)
    x = keras.layers.Embedding(10, 3)(layer(text))
    keras.Model(text, keras.layers.Flatten()(x)).export(
        str(folder / "model"), format="tf_saved_model", verbose=False
    )
    return folder / "model"


@row("decode-jpeg", code="unsupported_operator", operator="DecodeJpeg", node="")
def decode_jpeg(folder: Path) -> Path:
    """Unpacks images inside of the model."""
    import tensorflow as tf

    def call(files: Any) -> Mapping[str, Any]:
        def one(file: Any) -> Any:
            return tf.image.resize(tf.io.decode_jpeg(file, channels=3), [8, 8])

        return {"image": tf.map_fn(one, files, fn_output_signature=tf.float32)}

    return save(folder, call, files=([None], "string"))


@row("numpy-function", code="python_operator", operator="PyFunc", is_slow=False)
def numpy_function(folder: Path) -> Path:
    """Calls Python."""
    import tensorflow as tf

    def call(x: Any) -> Mapping[str, Any]:
        y = tf.numpy_function(lambda value: value * 2, [x], tf.float32)
        return {"y": tf.ensure_shape(y, [None, 3])}

    return save(folder, call, x=([None, 3], "float32"))


@row("svd", code="unsupported_operator", operator="Svd", node="the_svd", is_slow=False)
def svd(folder: Path) -> Path:
    """Linear algebra that ONNX has not."""
    import tensorflow as tf

    def call(x: Any) -> Mapping[str, Any]:
        return {"s": tf.linalg.svd(x, compute_uv=False, name="the_svd")}

    return save(folder, call, x=([None, 3, 3], "float32"))


@row("lambda-layer", code="lambda_layer", is_slow=False)
def lambda_layer(folder: Path) -> Path:
    """Code in a .keras file."""
    import keras

    x = keras.Input((4,))
    keras.Model(x, keras.layers.Lambda(lambda value: value * 2)(x)).save(folder / "model.keras")
    return folder / "model.keras"


@row("random", code="not_deterministic", is_slow=False)
def random_noise(folder: Path) -> Path:
    """Noise in the answer."""
    import tensorflow as tf

    def call(x: Any) -> Mapping[str, Any]:
        return {"y": x + tf.random.normal(tf.shape(x))}

    return save(folder, call, x=([None, 3], "float32"))


@row("ambiguous-signature", code="ambiguous_signature", is_slow=False)
def ambiguous_signature(folder: Path) -> Path:
    """Two signatures, and nothing says which."""
    from .graphs import several_signatures

    return several_signatures(folder)


@row("same-name", code="same_name", is_slow=False)
def same_name(folder: Path) -> Path:
    """An input and an output have one name, which ONNX cannot tell apart."""
    return save(folder, lambda x: {"x": x * 2.0}, x=([None, 3], "float32"))


@row("corrupt", code="source_corrupt", is_slow=False)
def corrupt(folder: Path) -> Path:
    """saved_model.pb is cut off."""
    path = save(folder, lambda x: {"y": x * 2.0}, x=([None, 3], "float32"))
    data = (path / "saved_model.pb").read_bytes()
    (path / "saved_model.pb").write_bytes(data[: len(data) // 2])
    return path


@row("weights-lost", code="source_corrupt")
def weights_lost(folder: Path) -> Path:
    """The weights are gone."""
    from .convolutional import tf_module

    path = tf_module(folder)
    for each in (path / "variables").iterdir():
        each.unlink()
    return path


@row("too-large", code="model_too_large")
def too_large(folder: Path) -> Path:
    """More weights than one ONNX file can hold."""
    import tensorflow as tf

    class Wide(tf.Module):
        def __init__(self) -> None:
            self.weights = [tf.Variable(tf.zeros((1 << 16, 1 << 12))) for _ in range(2)]

        @tf.function(input_signature=[tf.TensorSpec((None, 1 << 16), tf.float32, name="x")])
        def serve(self, x: Any) -> Any:
            return {"y": sum(tf.matmul(x, each) for each in self.weights)}

    module = Wide()
    tf.saved_model.save(module, str(folder / "model"), signatures=module.serve)
    return folder / "model"


@row("v1-dropout-on", code="not_deterministic", is_slow=False)
def v1_dropout_on(folder: Path) -> Path:
    """Dropout whose placeholder leaves it on by default."""
    return in_a_session(folder, dropped_out, 0.5)


@row("keras2-only", code="keras_2", is_slow=False)
def keras2_only(folder: Path) -> Path:
    """An HDF5 file of Keras 2 that says what Keras 3 has no word for."""
    return as_keras2(folder, {"time_major": True})
