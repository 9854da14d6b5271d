"""Graphs that no layer makes: control flow, odd names, odd inputs and outputs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .rows import graph, row, save

Outputs = Mapping[str, Any]
THREE: tuple[list[int | None], str] = ([None, 3], "float32")
FOUR: tuple[list[int | None], str] = ([None, 4], "float32")


@graph("while", {"x": FOUR}, is_slow=False)
def while_loop(tf: Any, x: Any) -> Outputs:
    """A loop with a number of rounds that the input decides."""

    def is_small(value: Any) -> Any:
        return tf.reduce_max(value) < 100.0

    rounds = tf.while_loop(is_small, lambda value: (value * 2.0 + 1.0,), (tf.nn.relu(x),))
    return {"y": rounds[0]}


@graph("resize-any-size", {"image": ([None, None, None, 3], "float32")})
def resize_any_size(tf: Any, image: Any) -> Outputs:
    """Pictures of any size brought to one."""
    small = tf.image.resize(image, [8, 8])
    return {"bilinear": small, "nearest": tf.image.resize(image, [6, 6], method="nearest")}


@graph("cond", {"x": FOUR})
def condition(tf: Any, x: Any) -> Outputs:
    """Two branches, of which the input chooses one."""
    return {"y": tf.cond(tf.reduce_sum(x) > 0.0, lambda: x * 2.0, lambda: tf.tanh(x) - 1.0)}


@graph("map-fn", {"x": FOUR})
def map_fn(tf: Any, x: Any) -> Outputs:
    """A function for each row."""
    return {"y": tf.map_fn(lambda each: tf.cumsum(each) * tf.reduce_max(each), x)}


@graph("nms", {"boxes": FOUR, "scores": ([None], "float32")})
def suppression(tf: Any, boxes: Any, scores: Any) -> Outputs:
    """Boxes that overlap less than a half, the best first; their number differs."""
    kept = tf.image.non_max_suppression(boxes, scores, 5, 0.5, 0.1)
    return {"kept": kept, "best": tf.gather(boxes, kept)}


@graph("combined-nms", {"boxes": ([None, 10, 4], "float32"), "scores": ([None, 10], "float32")})
def combined_suppression(tf: Any, boxes: Any, scores: Any) -> Outputs:
    """Suppression for a batch, with a fixed number of boxes."""

    def one(pair: Any) -> Any:
        return tf.image.non_max_suppression_padded(
            pair[0], pair[1], 5, 0.5, 0.1, pad_to_max_output_size=True
        )

    answers = (tf.TensorSpec([5], tf.int32), tf.TensorSpec([], tf.int32))
    kept, count = tf.map_fn(one, (boxes, scores), fn_output_signature=answers)
    return {"kept": kept, "count": count}


@graph("odd-names", {"b": THREE, "a": THREE}, is_slow=False)
def odd_names(tf: Any, b: Any, a: Any) -> Outputs:
    """Two inputs and two outputs of one shape, whose order is not the alphabet's."""
    return {"z/second": a - 2.0 * b, "a first": b * 3.0}


@graph("odd-outputs", {"x": THREE, "unused": ([None, 2], "int32")}, is_slow=False)
def odd_outputs(tf: Any, x: Any, unused: Any) -> Outputs:
    """An input that nothing uses, one that is given back, one output twice, and a constant."""
    y = x + 1.0
    return {"same": x, "y": y, "y_again": y, "constant": tf.constant([1.0, 2.0])}


@row("several-signatures", signature="double", is_slow=False)
def several_signatures(folder: Path) -> Path:
    """Two signatures that give different answers; one is asked for."""
    import tensorflow as tf

    module = tf.Module()
    spec = tf.TensorSpec([None, 3], tf.float32, name="x")
    module.double = tf.function(lambda x: {"y": x * 2.0}, input_signature=[spec])
    module.halve = tf.function(lambda x: {"y": x / 2.0}, input_signature=[spec])
    signatures = {"halve": module.halve, "double": module.double}
    tf.saved_model.save(module, str(folder / "model"), signatures=signatures)
    return folder / "model"


@graph("fixed-batch", {"x": ([2, 4], "float32")})
def fixed_batch(tf: Any, x: Any) -> Outputs:
    """The number of rows is fixed."""
    return {"y": tf.nn.softmax(x)}


@graph("scalars", {"x": FOUR, "k": ([], "float32")})
def scalars(tf: Any, x: Any, k: Any) -> Outputs:
    """A tensor without any dimension."""
    return {"y": x * k}


@graph("jit-compiled", {"x": FOUR})
def jit_compiled(tf: Any, x: Any) -> Outputs:
    """A function that is to be compiled by XLA."""
    inner = tf.function(lambda value: tf.nn.softmax(value * 2.0), jit_compile=True)
    return {"y": inner(x)}


@graph("einsum-and-friends", {"x": ([None, 4, 5], "float32")})
def einsum_and_friends(tf: Any, x: Any) -> Outputs:
    """Operators that tf2onnx builds from several others."""
    y = tf.einsum("bij,bkj->bik", x, x)
    top = tf.math.top_k(tf.reshape(y, [-1, 16]), 3)
    hot = tf.one_hot(top.indices, 16)
    where = tf.where(y > 0.0, y, tf.math.softplus(y))
    return {
        "values": top.values,
        "indices": top.indices,
        "hot": tf.reduce_sum(hot, 1),
        "where": tf.reverse(where, [1]),
        "moments": tf.stack(tf.nn.moments(x, [1, 2]), 1),
    }


@graph(
    "doubles-and-integers",
    {"d": ([None, 3], "float64"), "i": ([None, 3], "int32"), "b": ([None, 3], "bool")},
)
def doubles_and_integers(tf: Any, d: Any, i: Any, b: Any) -> Outputs:
    """Types beside float32."""
    chosen = tf.where(b, d, -d)
    integers = i // 3 + tf.cast(chosen, tf.int32)
    return {"doubles": chosen * 2.0, "integers": integers, "truths": tf.logical_not(b)}


@graph("upper-and-lower", {"words": ([None, 2], "string")})
def upper_and_lower(tf: Any, words: Any) -> Outputs:
    """Texts in other letters, and compared."""
    return {"up": tf.strings.upper(words), "low": tf.strings.lower(words, encoding="utf-8")}


@graph("standardised-pictures", {"pictures": ([None, 16, 16, 3], "uint8")})
def standardised_pictures(tf: Any, pictures: Any) -> Outputs:
    """Pictures of bytes, resized, each with its own mean and spread taken out."""
    resized = tf.image.resize(tf.cast(pictures, tf.float32), [9, 9])
    return {"y": tf.image.per_image_standardization(resized)}


@row("words-of-a-file", is_slow=False)
def words_of_a_file(folder: Path) -> Path:
    """A table that is filled from an asset."""
    import tensorflow as tf

    words = folder / "words.txt"
    words.write_text("a\nb\n")
    path = looking_up(
        folder, tf.lookup.TextFileInitializer(str(words), tf.string, -2, tf.int64, -1)
    )
    words.unlink()
    return path


def looking_up(folder: Path, initializer: Any) -> Path:
    """A SavedModel that looks words up in a table."""
    import tensorflow as tf

    module = tf.Module()
    module.table = tf.lookup.StaticHashTable(initializer, -1)
    return save(folder, lambda x: {"y": module.table.lookup(x)}, {"x": ([None], "string")}, module)


# --- TensorFlow 1 --------------------------------------------------------------------------------


@row("v1-session")
def from_a_session(folder: Path) -> Path:
    """A SavedModel as TensorFlow 1 wrote it, whose tensors the signature names otherwise."""
    import tensorflow as tf

    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [None, 3], name="some/placeholder")
        weight = v1.get_variable("weight", [3, 2], initializer=v1.ones_initializer())
        y = tf.matmul(x, weight)
        session.run(v1.global_variables_initializer())
        v1.saved_model.simple_save(session, str(folder / "model"), {"x:0": x}, {"y": y})
    return folder / "model"


@row("v1-reference-variables", is_slow=False)
def from_a_session_of_references(folder: Path) -> Path:
    """With reference variables, TensorFlow 1's default, and a dropout that is off by default."""
    import tensorflow as tf

    def answer(x: Any, training: Any) -> Any:
        v1 = tf.compat.v1
        weight = v1.get_variable("w", [3, 2], initializer=v1.ones_initializer(), use_resource=False)
        bias = v1.get_variable("b", [2], initializer=v1.ones_initializer(), use_resource=False)
        hidden = tf.nn.relu(tf.matmul(x, weight) + bias)
        return v1.cond(training, lambda: v1.nn.dropout(hidden, rate=0.5), lambda: hidden)

    return in_a_session(folder, answer, False)


@row("v1-dropout", is_slow=False)
def from_a_session_with_dropout(folder: Path) -> Path:
    """Dropout that is off unless a caller says otherwise: by a placeholder with a default."""
    return in_a_session(folder, dropped_out, 1.0)


def dropped_out(x: Any, keep: Any) -> Any:
    """A product of what dropout keeps."""
    import tensorflow as tf

    weight = tf.compat.v1.get_variable("w", [3, 2], initializer=tf.ones_initializer())
    return tf.matmul(tf.compat.v1.nn.dropout(x, rate=1 - keep), weight)


def in_a_session(folder: Path, answer: Any, default: Any) -> Path:
    """What `simple_save` writes of an answer to `x` and to a placeholder with a default."""
    import tensorflow as tf

    v1 = tf.compat.v1
    v1.disable_control_flow_v2()
    try:
        with tf.Graph().as_default(), v1.Session() as session:
            x = v1.placeholder(tf.float32, [None, 3], name="x")
            y = answer(x, v1.placeholder_with_default(default, [], name="switch"))
            session.run(v1.global_variables_initializer())
            v1.saved_model.simple_save(session, str(folder / "model"), {"x": x}, {"y": y})
    finally:
        v1.enable_control_flow_v2()
    return folder / "model"
