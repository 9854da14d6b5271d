"""Sources that cannot be converted, each with the fault that it ends in."""

from functools import partial
from pathlib import Path
from typing import Any

from .convolutional import tf_module
from .graphs import THREE, Outputs, dropped_out, in_a_session, looking_up, several_signatures
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
    {"x": THREE},
    code="unsupported_operator",
    operator="Svd",
    node="map/while/cond/the_svd",
    is_slow=False,
)
def svd(tf: Any, x: Any) -> Outputs:
    """Linear algebra that ONNX has not, deep inside."""

    def one(values: Any) -> Any:
        def inner() -> Any:
            return tf.linalg.svd(tf.reshape(values, [1, 3]), name="the_svd")[0] * values

        return tf.cond(tf.reduce_sum(values) > 0, lambda: values, inner)

    return {"y": tf.map_fn(one, x)}


@graph("bfloat16", {"x": THREE}, code="unsupported_datatype", node="MatMul", is_slow=False)
def halves(tf: Any, x: Any) -> Outputs:
    """Computes in a type that ONNX Runtime does not."""
    y = tf.matmul(tf.cast(x, tf.bfloat16), tf.ones((3, 3), tf.bfloat16))
    return {"y": tf.cast(y, tf.float32)}


def _code(folder: Path, name: str) -> Path:
    """Code in a file of Keras."""
    import keras

    x = keras.Input((4,))
    keras.Model(x, keras.layers.Lambda(lambda value: value * 2)(x)).save(folder / name)
    return folder / name


for suffix in ("keras", "h5"):
    build = partial(_code, name=f"model.{suffix}")
    row(f"lambda-{suffix}", code="lambda_layer", operator="Lambda", is_slow=False)(build)


@row("ragged", code="unsupported_input", is_slow=False)
def ragged(folder: Path) -> Path:
    """An input of rows of different lengths."""
    import tensorflow as tf

    module = tf.Module()
    spec = tf.RaggedTensorSpec([None, None], tf.float32)
    module.call = tf.function(lambda x: {"y": tf.reduce_sum(x, 1)}, input_signature=[spec])
    tf.saved_model.save(module, str(folder / "model"), signatures=module.call)
    return folder / "model"


def _writing(folder: Path) -> Path:
    """Two signatures, of which one writes a file."""
    import tensorflow as tf

    def writes(x: Any) -> Outputs:
        tf.io.write_file(str(folder / "written"), "x")
        return {"y": x}

    def plain(x: Any) -> Outputs:
        tf.debugging.assert_greater(tf.shape(x)[0], 0)
        return {"y": tf.matmul(x, tf.math.log1p(module.weight))}

    module, spec = tf.Module(), tf.TensorSpec([None, 3], tf.float32, name="x")
    module.weight = tf.Variable(tf.ones((3, 3)))
    module.writes = tf.function(writes, input_signature=[spec])
    module.plain = tf.function(plain, input_signature=[spec])
    signatures = {"writes": module.writes, "plain": module.plain}
    tf.saved_model.save(module, str(folder / "model"), signatures=signatures)
    return folder / "model"


DANGER = {"code": "dangerous_operator", "operator": "WriteFile", "node": "WriteFile"}
row("writing", signature="writes", **DANGER, is_slow=False)(_writing)
row("beside-writing", signature="plain", is_slow=False)(_writing)


@row("table-that-writes", code="dangerous_operator", operator="WriteFile", is_slow=False)
def table_that_writes(folder: Path) -> Path:
    """A table whose words come with a file that is written when the model is loaded."""
    import tensorflow as tf

    class Evil(tf.lookup.KeyValueTensorInitializer):
        def initialize(self, table: Any) -> Any:
            tf.io.write_file(str(folder / "written"), "x")
            return super().initialize(table)

    path = looking_up(folder, Evil(["a"], [1], tf.string, tf.int64))
    (folder / "written").unlink()
    return path


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
