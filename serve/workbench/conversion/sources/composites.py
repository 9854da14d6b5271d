"""Inputs that are several tensors to TensorFlow: ragged, sparse. A signature hides that.

A signature lists the parts of a ragged tensor as if they were inputs of their own (`x`, `x_1`), but
their lengths depend on each other. What the function really takes is saved beside it, as a
StructuredValue. Field numbers are those of TensorFlow's struct.proto and saved_object_graph.proto.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from serve.core.errors import ConversionFailed
from serve.workbench.conversion.faults import failed
from serve.workbench.conversion.sources.graph import Graph, Node
from serve.workbench.conversion.sources.messages import Budget, message_of

_TAKEN = 3  # of SavedConcreteFunction
_TYPE_SPEC, _LIST, _TUPLE, _DICT, _NAMED = 34, 51, 52, 53, 54  # of StructuredValue
_WORDS: Mapping[int, str] = MappingProxyType(
    {1: "sparse tensor", 2: "set of indexed slices", 3: "ragged tensor"}
)


def faults_of_composites(graph: Graph, signature: str) -> tuple[ConversionFailed, ...]:
    """`unsupported_input` for each kind of composite that the signature's function takes."""
    called = [node for name in graph.signatures[signature] for node in _node(graph, name)]
    functions = {name for node in called for name in node.calls}
    for name in tuple(functions & graph.functions.keys()):  # the wrapper, and what it calls
        functions |= {each for node in graph.body(name).nodes.values() for each in node.calls}
    kinds: set[int] = set()
    for name in functions & graph.concrete.keys():
        for number, value in graph.budget.fields(graph.concrete[name]):
            if number == _TAKEN:
                kinds |= set(_kinds(message_of(value), graph.budget, 1))
    words = sorted(_WORDS.get(kind, "composite tensor") for kind in kinds)
    return tuple(failed("unsupported_input", f"an input is a {word}") for word in words)


def _node(graph: Graph, name: str) -> Iterator[Node]:
    if name in graph.main.nodes:
        yield graph.main.nodes[name]


def _kinds(value: bytes, budget: Budget, depth: int) -> Iterator[int]:
    """The classes of the composite specs in a StructuredValue."""
    budget.check_depth(depth)
    for number, part in budget.fields(value):
        if number == _TYPE_SPEC:
            kind = dict(budget.fields(message_of(part))).get(1, 0)
            yield kind if isinstance(kind, int) else 0
        elif number in (_LIST, _TUPLE):
            for _, each in budget.fields(message_of(part)):
                yield from _kinds(message_of(each), budget, depth + 1)
        elif number == _DICT:
            for _, each in budget.fields(message_of(part)):
                yield from _kinds(budget.entry(message_of(each))[1], budget, depth + 1)
        elif number == _NAMED:
            for key, each in budget.fields(message_of(part)):
                if key == 2:
                    pair = budget.entry(message_of(each))
                    yield from _kinds(pair[1], budget, depth + 1)
