"""Sources that cannot be converted, each with the fault that it ends in."""

from pathlib import Path
from typing import Any

from .convolutional import tf_module
from .graphs import THREE, Outputs, dropped_out, in_a_session, several_signatures
from .rows import graph, network, row, save
from .sequences import as_keras2


@network("text-vectorization", code="unsupported_operator", operator="StaticRegexReplace")
def text_vectorization(keras: Any) -> Any:
    """Splits texts into words inside of the model."""
    text = keras.Input((1,), dtype="string", name="text")
    layer = keras.layers.TextVectorization(vocabulary=["a", "b"], output_sequence_length=4)
    return keras.Model(text, keras.layers.Flatten()(keras.layers.Embedding(10, 3)(layer(text))))


@graph(
    "decode-jpeg",
    {"files": ([None], "string")},
    code="unsupported_operator",
    operator="DecodeJpeg",
)
def decode_jpeg(tf: Any, files: Any) -> Outputs:
    """Unpacks images inside of the model."""

    def one(file: Any) -> Any:
        return tf.image.resize(tf.io.decode_jpeg(file, channels=3), [8, 8])

    return {"image": tf.map_fn(one, files, fn_output_signature=tf.float32)}


@graph("numpy-function", {"x": THREE}, code="python_operator", operator="PyFunc", is_slow=False)
def numpy_function(tf: Any, x: Any) -> Outputs:
    """Calls Python."""
    y = tf.numpy_function(lambda value: value * 2, [x], tf.float32)
    return {"y": tf.ensure_shape(y, [None, 3])}


@graph(
    "svd",
    {"x": ([None, 3, 3], "float32")},
    code="unsupported_operator",
    operator="Svd",
    node="the_svd",
    is_slow=False,
)
def svd(tf: Any, x: Any) -> Outputs:
    """Linear algebra that ONNX has not."""
    return {"s": tf.linalg.svd(x, compute_uv=False, name="the_svd")}


@row("lambda-layer", code="lambda_layer", is_slow=False)
def lambda_layer(folder: Path) -> Path:
    """Code in a .keras file."""
    import keras

    x = keras.Input((4,))
    keras.Model(x, keras.layers.Lambda(lambda value: value * 2)(x)).save(folder / "model.keras")
    return folder / "model.keras"


@graph("random", {"x": THREE}, code="not_deterministic", is_slow=False)
def random_noise(tf: Any, x: Any) -> Outputs:
    """Noise in the answer."""
    return {"y": x + tf.random.normal(tf.shape(x))}


# Nothing says which of the two signatures.
row("ambiguous-signature", code="ambiguous_signature", is_slow=False)(several_signatures)


@graph("same-name", {"x": THREE}, code="same_name", is_slow=False)
def same_name(tf: Any, x: Any) -> Outputs:
    """An input and an output have one name, which ONNX cannot tell apart."""
    return {"x": x * 2.0}


@row("corrupt", code="source_corrupt", is_slow=False)
def corrupt(folder: Path) -> Path:
    """saved_model.pb is cut off."""
    path = save(folder, lambda x: {"y": x * 2.0}, {"x": THREE})
    data = (path / "saved_model.pb").read_bytes()
    (path / "saved_model.pb").write_bytes(data[: len(data) // 2])
    return path


@row("weights-lost", code="source_corrupt")
def weights_lost(folder: Path) -> Path:
    """The weights are gone."""
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
