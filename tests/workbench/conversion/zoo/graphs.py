"""Graphs that no layer makes: control flow, odd names, odd inputs and outputs."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .rows import row


def save(
    folder: Path, call: Callable[..., Mapping[str, Any]], /, **specs: tuple[list[int | None], str]
) -> Path:
    """A SavedModel whose signature is this function of tensors of these shapes and types."""
    import tensorflow as tf

    module = tf.Module()
    wanted = [
        tf.TensorSpec(shape, getattr(tf, dtype), name=name)
        for name, (shape, dtype) in specs.items()
    ]
    module.call = tf.function(call, input_signature=wanted)
    tf.saved_model.save(module, str(folder / "model"), signatures=module.call)
    return folder / "model"


@row("while", is_slow=False)
def while_loop(folder: Path) -> Path:
    """A loop with a number of rounds that the input decides."""
    import tensorflow as tf

    def call(x: Any) -> Mapping[str, Any]:
        def is_small(value: Any) -> Any:
            return tf.reduce_max(value) < 100.0

        rounds = tf.while_loop(is_small, lambda value: (value * 2.0 + 1.0,), (tf.nn.relu(x),))
        return {"y": rounds[0]}

    return save(folder, call, x=([None, 4], "float32"))


@row("resize-any-size")
def resize_any_size(folder: Path) -> Path:
    """Pictures of any size brought to one."""
    import tensorflow as tf

    def call(image: Any) -> Mapping[str, Any]:
        small = tf.image.resize(image, [8, 8])
        return {"bilinear": small, "nearest": tf.image.resize(image, [6, 6], method="nearest")}

    return save(folder, call, image=([None, None, None, 3], "float32"))


@row("cond")
def condition(folder: Path) -> Path:
    """Two branches, of which the input chooses one."""
    import tensorflow as tf

    def call(x: Any) -> Mapping[str, Any]:
        y = tf.cond(tf.reduce_sum(x) > 0.0, lambda: x * 2.0, lambda: tf.tanh(x) - 1.0)
        return {"y": y}

    return save(folder, call, x=([None, 4], "float32"))


@row("map-fn")
def map_fn(folder: Path) -> Path:
    """A function for each row."""
    import tensorflow as tf

    def call(x: Any) -> Mapping[str, Any]:
        return {"y": tf.map_fn(lambda each: tf.cumsum(each) * tf.reduce_max(each), x)}

    return save(folder, call, x=([None, 4], "float32"))


@row("nms")
def suppression(folder: Path) -> Path:
    """Boxes that overlap less than a half, the best first; their number differs."""
    import tensorflow as tf

    def call(boxes: Any, scores: Any) -> Mapping[str, Any]:
        kept = tf.image.non_max_suppression(boxes, scores, 5, 0.5, 0.1)
        return {"kept": kept, "best": tf.gather(boxes, kept)}

    return save(folder, call, boxes=([None, 4], "float32"), scores=([None], "float32"))


@row("combined-nms")
def combined_suppression(folder: Path) -> Path:
    """Suppression for a batch, with a fixed number of boxes."""
    import tensorflow as tf

    def call(boxes: Any, scores: Any) -> Mapping[str, Any]:
        def one(pair: Any) -> Any:
            kept, count = tf.image.non_max_suppression_padded(
                pair[0], pair[1], 5, 0.5, 0.1, pad_to_max_output_size=True
            )
            return kept, count

        kept, count = tf.map_fn(
            one,
            (boxes, scores),
            fn_output_signature=(
                tf.TensorSpec([5], tf.int32),
                tf.TensorSpec([], tf.int32),
            ),
        )
        return {"kept": kept, "count": count}

    return save(folder, call, boxes=([None, 10, 4], "float32"), scores=([None, 10], "float32"))


@row("odd-names", is_slow=False)
def odd_names(folder: Path) -> Path:
    """Two inputs and two outputs of one shape, whose order is not the alphabet's."""

    def call(b: Any, a: Any) -> Mapping[str, Any]:
        return {"z/second": a - 2.0 * b, "a first": b * 3.0}

    return save(folder, call, b=([None, 3], "float32"), a=([None, 3], "float32"))


@row("odd-outputs", is_slow=False)
def odd_outputs(folder: Path) -> Path:
    """An input that nothing uses, one that is given back, one output twice, and a constant."""
    import tensorflow as tf

    def call(x: Any, unused: Any) -> Mapping[str, Any]:
        y = x + 1.0
        return {"same": x, "y": y, "y_again": y, "constant": tf.constant([1.0, 2.0])}

    return save(folder, call, x=([None, 3], "float32"), unused=([None, 2], "int32"))


@row("several-signatures", signature="double", is_slow=False)
def several_signatures(folder: Path) -> Path:
    """Two signatures that give different answers; one is asked for."""
    import tensorflow as tf

    module = tf.Module()
    spec = tf.TensorSpec([None, 3], tf.float32, name="x")
    module.double = tf.function(lambda x: {"y": x * 2.0}, input_signature=[spec])
    module.halve = tf.function(lambda x: {"y": x / 2.0}, input_signature=[spec])
    tf.saved_model.save(
        module,
        str(folder / "model"),
        signatures={"halve": module.halve, "double": module.double},
    )
    return folder / "model"


@row("fixed-batch")
def fixed_batch(folder: Path) -> Path:
    """The number of rows is fixed."""
    import tensorflow as tf

    return save(folder, lambda x: {"y": tf.nn.softmax(x)}, x=([2, 4], "float32"))


@row("scalars")
def scalars(folder: Path) -> Path:
    """Tensors without any dimension."""
    return save(folder, lambda x, k: {"y": x * k}, x=([None, 4], "float32"), k=([], "float32"))


@row("einsum-and-friends")
def einsum_and_friends(folder: Path) -> Path:
    """Operators that tf2onnx builds from several others."""
    import tensorflow as tf

    def call(x: Any) -> Mapping[str, Any]:
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

    return save(folder, call, x=([None, 4, 5], "float32"))


@row("doubles-and-integers")
def doubles_and_integers(folder: Path) -> Path:
    """Types beside float32."""
    import tensorflow as tf

    def call(d: Any, i: Any, b: Any) -> Mapping[str, Any]:
        chosen = tf.where(b, d, -d)
        return {
            "doubles": chosen * 2.0,
            "integers": i // 3 + tf.cast(chosen, tf.int32),
            "truths": tf.logical_not(b),
        }

    return save(
        folder, call, d=([None, 3], "float64"), i=([None, 3], "int32"), b=([None, 3], "bool")
    )


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


@row("upper-and-lower")
def upper_and_lower(folder: Path) -> Path:
    """Texts in other letters, and compared."""
    import tensorflow as tf

    def call(words: Any) -> Mapping[str, Any]:
        up, low = tf.strings.upper(words), tf.strings.lower(words, encoding="utf-8")
        return {"up": up, "low": low}

    return save(folder, call, words=([None, 2], "string"))


@row("standardised-pictures")
def standardised_pictures(folder: Path) -> Path:
    """Pictures of bytes, resized, each with its own mean and spread taken out."""
    import tensorflow as tf

    def call(pictures: Any) -> Mapping[str, Any]:
        resized = tf.image.resize(tf.cast(pictures, tf.float32), [9, 9])
        return {"y": tf.image.per_image_standardization(resized)}

    return save(folder, call, pictures=([None, 16, 16, 3], "uint8"))
