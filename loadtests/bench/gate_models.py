"""Small models with random weights, right and wrong ones, for measuring the gate.

| model    | inputs                             | what is in it                                    |
|----------|------------------------------------|--------------------------------------------------|
| `cnn`    | pictures 8 x 8 x 3                 | convolutions, BatchNorm, ReLU, pooling, softmax  |
| `tokens` | six ids out of 50                  | embedding, attention, LayerNorm, GELU, two heads |
| `towers` | a user and an item of the same size| two towers, ReLU, joined; a rating and a rank    |
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from onnx import TensorProto

from loadtests.bench.gate_graphs import PLAIN, RIGHT, Fault, Graph, Style

CLASSES = (
    "weights",
    "biases",
    "swapped inputs",
    "wrong signature",
    "wrong scale",
    "dropped operator",
    "wrong axis",
)


def build(name: str, seed: int, fault: Fault = RIGHT, style: Style = PLAIN) -> bytes:
    """The file of a model; the same seed gives the same weights, whatever fault and style."""
    graph = Graph(np.random.default_rng(seed), fault, style)
    MODELS[name](graph)
    return graph.model()


def cnn(g: Graph) -> None:
    """Pictures to probabilities."""
    x = g.scaled(g.takes("image", TensorProto.FLOAT, 8, 8, 3))
    x = g.turned(
        x, lambda y, wrong: g.node("Transpose", y, perm=[0, 3, 2, 1] if wrong else [0, 3, 1, 2])
    )
    order = g.order(8)
    kernel, bias = g.weight(8, 3, 3, 3), g.bias(8)
    factor, shift = 1 + 0.2 * g.rng.standard_normal(8), g.bias(8)
    kernel, bias, factor, shift = kernel[order], bias[order], factor[order], shift[order]
    if g.style.is_folded:
        kernel, bias = kernel * factor[:, None, None, None], bias * factor + shift
    x = g.node("Conv", x, g.constant(kernel), g.constant(bias), pads=[1, 1, 1, 1])
    if not g.style.is_folded:
        parts = (factor, shift, np.zeros(8), np.ones(8) - 1e-5)
        normal = [g.constant(part) for part in parts]
        x = g.operator(x, lambda y: g.node("BatchNormalization", y, *normal))
    x = g.operator(x, lambda y: g.node("Relu", y))
    kernel = g.weight(16, 8, 3, 3)[:, order]
    x = g.node("Conv", x, g.constant(kernel), g.constant(g.bias(16)), strides=[2, 2])
    x = g.node("Relu", x)
    x = g.node("Flatten", g.node("GlobalAveragePool", x))
    x = g.scaled(g.dense(x, 3 * g.weight(16, 10), g.bias(10)))
    g.gives(g.node("Softmax", x, axis=-1), "probabilities", 10)


def tokens(g: Graph) -> None:
    """Token ids to scores, and to what is hidden behind them."""
    ids = g.takes("ids", TensorProto.INT64, 6)
    x = g.node("Gather", g.constant(g.weight(50, 16) * 4), ids)
    x = g.scaled(x)
    query, key, value = (g.dense(x, g.weight(16, 16), g.bias(16)) for _ in range(3))
    heat = g.node("MatMul", query, g.node("Transpose", key, perm=[0, 2, 1]))
    heat = g.node("Mul", g.scaled(heat), g.constant(np.array(0.25)))
    heat = g.turned(heat, lambda y, wrong: g.node("Softmax", y, axis=1 if wrong else 2))
    x = g.node("Add", x, g.node("MatMul", heat, value))
    ones, zeros = g.constant(np.ones(16)), g.constant(np.zeros(16))
    x = g.operator(x, lambda y: g.node("LayerNormalization", y, ones, zeros, axis=-1, epsilon=1e-6))
    order = g.order(32)
    x = g.dense(x, g.weight(16, 32)[:, order], g.bias(32)[order])
    x = g.operator(x, lambda y: gelu(g, y))
    x = g.dense(x, g.weight(32, 16)[order], g.bias(16))
    scores = g.dense(
        g.node("ReduceMean", x, g.constant(np.array([1])), keepdims=0), g.weight(16, 5), g.bias(5)
    )
    g.gives(scores, "scores", 5)
    g.gives(x, "hidden", 6, 16)


def towers(g: Graph) -> None:
    """A user and an item to a rating and a rank."""
    user, item = (g.takes(name, TensorProto.FLOAT, 8) for name in ("user", "item"))
    if g.is_here("swapped inputs", 1):
        user, item = g.mixed(user, item), g.mixed(item, user)
    sides = []
    order = g.order(24)
    for side in (g.scaled(user), item):
        hidden = g.dense(side, g.weight(8, 24)[:, order], g.bias(24)[order])
        sides.append(g.operator(hidden, lambda y: g.node("Relu", y)))
    joined = g.turned(
        sides[0], lambda y, wrong: g.node("Concat", *(sides[::-1] if wrong else sides), axis=1)
    )
    both = np.concatenate([order, order + 24])
    first, second = g.weight(48, 3)[both], g.weight(48, 3)[both]
    rating = g.dense(joined, first, g.bias(3))
    rank = g.dense(joined, second, g.bias(3))
    if g.is_here("wrong signature", 1):
        rating, rank = g.mixed(rating, rank), g.mixed(rank, rating)
    g.gives(g.node("Sigmoid", g.scaled(rating)), "rating", 3)
    g.gives(rank, "rank", 3)


def gelu(g: Graph, x: str) -> str:
    """The exact one: x/2 · (1 + erf(x / √2))."""
    half = g.node("Mul", x, g.constant(np.array(0.5)))
    bent = g.node("Erf", g.node("Mul", x, g.constant(np.array(np.sqrt(0.5)))))
    return g.node("Mul", half, g.node("Add", bent, g.constant(np.array(1.0))))


MODELS: Mapping[str, Callable[[Graph], None]] = {"cnn": cnn, "tokens": tokens, "towers": towers}
PLACES: Mapping[str, Sequence[str]] = {
    "weights": ("cnn", "tokens", "towers"),
    "biases": ("cnn", "tokens", "towers"),
    "swapped inputs": ("towers",),
    "wrong signature": ("towers",),
    "wrong scale": ("cnn", "tokens", "towers"),
    "dropped operator": ("cnn", "tokens", "towers"),
    "wrong axis": ("cnn", "tokens", "towers"),
}
