"""The zoo: one small source model for each row of what must convert, and of what must fail well.

Builders import TensorFlow themselves, or get it and Keras as an argument, so that the rows can be
listed without them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

Build = Callable[[Path], Path]  # writes a source below a folder, and returns its path
Network = Callable[[Any], Any]  # Keras to a model
Specs = Mapping[str, tuple[list[int | None], str]]  # shapes and types of tensors


@dataclass(frozen=True, slots=True)
class Row:
    """A source and how its conversion ends: with a model, or with a fault of this code.

    `operator` and `node` are what the fault names; `node` is part of the whole name. `is_slow`:
    only in the whole matrix.
    """

    name: str
    build: Build
    signature: str = ""
    nchw: tuple[str, ...] = ()
    code: str = ""
    operator: str = ""
    node: str = ""
    is_slow: bool = True


ROWS: dict[str, Row] = {}


def row(name: str, **facts: Any) -> Callable[[Build], Build]:
    """Enter a builder under this name."""

    def enter(build: Build) -> Build:
        assert name not in ROWS, name
        ROWS[name] = Row(name, build, **facts)
        return build

    return enter


def network(name: str, **facts: Any) -> Callable[[Network], Network]:
    """Enter a model of Keras that is exported."""

    def enter(make: Network) -> Network:
        def build(folder: Path) -> Path:
            import keras

            keras.utils.set_random_seed(7)
            make(keras).export(str(folder / "model"), format="tf_saved_model", verbose=False)
            return folder / "model"

        row(name, **facts)(build)
        return make

    return enter


def graph(
    name: str, specs: Specs, **facts: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter a function of TensorFlow and of tensors of these shapes and types."""

    def enter(call: Callable[..., Any]) -> Callable[..., Any]:
        def build(folder: Path) -> Path:
            import tensorflow as tf

            return save(folder, partial(call, tf), specs)

        row(name, **facts)(build)
        return call

    return enter


def save(folder: Path, call: Callable[..., Any], specs: Specs, module: Any = None) -> Path:
    """A SavedModel whose signature is this function, with the variables of a module."""
    import tensorflow as tf

    module = module or tf.Module()
    wanted = [
        tf.TensorSpec(shape, getattr(tf, kind), name=name) for name, (shape, kind) in specs.items()
    ]
    module.call = tf.function(call, input_signature=wanted)
    tf.saved_model.save(module, str(folder / "model"), signatures=module.call)
    return folder / "model"
