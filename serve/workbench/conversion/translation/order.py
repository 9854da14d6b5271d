"""Equal sources give equal files: the orders in which tf2onnx goes through a graph.

It keeps nodes in sets, whose order is that of addresses in memory, and puts addresses into names.
Which of two equal constants stays, and what is called first, is so decided anew in each process.
Here nodes are hashed by their names, and objects are numbered in the order in which they are met.
Sets of names besides have the order of the hash seed, which the parent process sets. Lookup tables
come in the order of TensorFlow's hashes, which differs, too.
"""

import itertools
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
from tf2onnx.graph import Node
from tf2onnx.optimizer import einsum_optimizer

from serve.tensors.datatypes import Array

_FIRST = 1 << 40  # beyond the small numbers that it uses for inputs beside these


def make_orders_repeatable() -> None:
    """From now on, in this process; numbers begin anew."""
    Node.__hash__ = _hash_of_name
    einsum_optimizer.id = _numbering()


def by_keys(keys: Array, values: Array) -> tuple[Array, Array]:
    """A lookup table, which TensorFlow gives in the order of hashes, in the order of its keys."""
    order = np.argsort(keys, kind="stable")
    return keys[order], values[order]


def _hash_of_name(node: Any) -> int:
    return zlib.crc32(node.name.encode())


def _numbering() -> Callable[[Any], int]:
    """In the place of `id`: equal for one object, and kept alive, so that none is given twice."""
    numbers: dict[int, tuple[int, Any]] = {}
    counter = itertools.count(_FIRST)

    def number(thing: Any) -> int:
        if id(thing) not in numbers:
            numbers[id(thing)] = next(counter), thing
        return numbers[id(thing)][0]

    return number
