"""Networks for sequences, texts and tables."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .rows import Network, network, row


def _recurrent(layer: str, *, both_ways: bool = False, steps: int | None = 6) -> Network:
    def make(keras: Any) -> Any:
        series = keras.Input((steps, 4), name="series")
        inner = getattr(keras.layers, layer)(5, return_sequences=True)
        x = keras.layers.Bidirectional(inner)(series) if both_ways else inner(series)
        x = getattr(keras.layers, layer)(3)(x)
        return keras.Model(series, keras.layers.Dense(2)(x))

    return make


network("lstm")(_recurrent("LSTM"))
network("lstm-any-length")(_recurrent("LSTM", steps=None))
network("bilstm")(_recurrent("LSTM", both_ways=True))
network("gru", is_slow=False)(_recurrent("GRU"))
network("simple-rnn")(_recurrent("SimpleRNN"))


@network("masked-lstm")
def masked_lstm(keras: Any) -> Any:
    """Zeros are padding, which the recurrence leaves out."""
    ids = keras.Input((6,), dtype="int64", name="ids")
    x = keras.layers.Embedding(50, 4, mask_zero=True)(ids)
    return keras.Model(ids, keras.layers.Dense(2)(keras.layers.LSTM(3)(x)))


@network("transformer", is_slow=False)
def transformer(keras: Any) -> Any:
    """Attention, normalisation, and the exact GELU, which TensorFlow computes with Erfc."""
    tokens = keras.Input((8, 16), name="tokens")
    x = keras.layers.LayerNormalization()(tokens)
    x = keras.layers.Add()([tokens, keras.layers.MultiHeadAttention(2, 8)(x, x)])
    y = keras.layers.LayerNormalization()(x)
    y = keras.layers.Dense(32, activation="gelu")(y)
    x = keras.layers.Add()([x, keras.layers.Dense(16)(y)])
    x = keras.layers.GlobalAveragePooling1D()(x)
    return keras.Model(tokens, keras.layers.Dense(3, activation="softmax")(x))


@network("transformer-any-length")
def transformer_any_length(keras: Any) -> Any:
    """Token ids of any number, with a causal mask and the approximate GELU."""
    ids = keras.Input((None,), dtype="int32", name="ids")
    x = keras.layers.Embedding(50, 16)(ids)
    x = keras.layers.MultiHeadAttention(2, 8)(x, x, use_causal_mask=True)
    x = keras.layers.Dense(16)(x)
    x = keras.layers.Activation(lambda y: keras.activations.gelu(y, approximate=True))(x)
    return keras.Model(ids, keras.layers.Dense(50)(x))


@network("recommender", is_slow=False)
def recommender(keras: Any) -> Any:
    """Several inputs, ids of int64 among them, and several outputs."""
    user = keras.Input((1,), dtype="int64", name="user")
    items = keras.Input((3,), dtype="int64", name="items")
    context = keras.Input((4,), name="context")
    u = keras.layers.Flatten()(keras.layers.Embedding(100, 6)(user))
    i = keras.layers.GlobalAveragePooling1D()(keras.layers.Embedding(100, 6)(items))
    x = keras.layers.Concatenate()([u, i, context])
    x = keras.layers.Dense(8, activation="relu")(x)
    rating = keras.layers.Dense(1, name="rating")(x)
    click = keras.layers.Dense(1, activation="sigmoid", name="click")(x)
    match = keras.layers.Dot(1, name="match")([u, i])
    return keras.Model(
        {"user": user, "items": items, "context": context},
        {"rating": rating, "click": click, "match": match},
    )


@network("string-lookup", is_slow=False)
def string_lookup(keras: Any) -> Any:
    """Words to places in a vocabulary, then to numbers; ONNX Runtime only."""
    words = keras.Input((3,), dtype="string", name="words")
    lookup = keras.layers.StringLookup(vocabulary=["apple", "pear", "plum"])
    x = keras.layers.Embedding(5, 4)(lookup(words))
    return keras.Model(words, keras.layers.Flatten()(x))


@row("keras2-lstm", is_slow=False)
def keras2_lstm(folder: Path) -> Path:
    """Recurrent layers in an HDF5 file as Keras 2 wrote it, with a word that Keras 3 refuses."""
    return as_keras2(folder, {"time_major": False})


def as_keras2(folder: Path, words: Mapping[str, Any]) -> Path:
    """An HDF5 file of Keras 2, whose recurrent layers are described in these words as well."""
    import h5py
    import keras

    layers = [keras.layers.Bidirectional(keras.layers.LSTM(4, return_sequences=True))]
    layers += [keras.layers.GRU(3), keras.layers.Dense(2)]
    path = folder / "model.h5"
    keras.Sequential([keras.Input((5, 3)), *layers]).save(path)

    def described(value: Any) -> Any:
        is_recurrent = value.get("class_name") in ("LSTM", "GRU")
        return value | {"config": value["config"] | words} if is_recurrent else value

    with h5py.File(path, "r+") as file:
        page = json.loads(file.attrs["model_config"], object_hook=described)
        file.attrs["model_config"] = json.dumps(page).encode()
        file.attrs["keras_version"] = b"2.15.0"
    return path
