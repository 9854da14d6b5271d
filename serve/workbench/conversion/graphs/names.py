"""Names of what is inside of a graph, made after its place there.

A converter numbers what it makes with counters, so the same model gives other names each time. Here
a node is called by its scope in the source, without such a number, and by how often that has been
met before; a tensor is called after the node that gives it. Equal graphs have equal names.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import onnx

from serve.workbench.conversion.graphs.elements import bodies

_NUMBERS = re.compile(r"(__\d+|:\d+)+(?=$|_|/|:)")
_CALLS = re.compile(r"^((Stateful)?PartitionedCall(_\d+)?/)+(?=.)")
_LONGEST = 200


def without_calls(name: str) -> str:
    """A node's name in the source, without the calls that TensorFlow puts around a signature."""
    return _CALLS.sub("", name)


def name_by_place(model: onnx.ModelProto) -> None:
    """Name everything but inputs and outputs, in place. What is known of inner shapes is lost."""
    graph = model.graph
    kept = {each.name for each in (*graph.input, *graph.output)}
    _Namer(kept).rename(graph, {name: name for name in kept})


class _Namer:
    """Gives each name once, over all nested graphs: an inner tensor may not hide an outer one."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = set(taken)
        self._counts: Counter[str] = Counter()

    def rename(self, graph: Any, known: dict[str, str]) -> None:
        """Rename in this graph and those inside of it; `known` are the new names by the old."""
        del graph.value_info[:]
        for weight in _weights(graph):
            known[weight.name] = known.get(weight.name) or self._fresh(weight.name)
            weight.name = known[weight.name]
        for node in graph.node:
            node.name = self._fresh(node.name or node.op_type)
            for place, name in enumerate(node.output):
                if name and name not in known:
                    known[name] = self._fresh(f"{node.name}/{place}")
        for node in graph.node:
            node.input[:] = [known.get(name, name) for name in node.input]
            node.output[:] = [known.get(name, name) for name in node.output]
            for body in bodies(node):
                self._rename_body(body, known)

    def _rename_body(self, body: Any, outer: dict[str, str]) -> None:
        """Inputs and outputs of a body go by place, so that they are renamed as well."""
        own = {name for node in body.node for name in node.output}
        own |= {weight.name for weight in _weights(body)}
        known = {old: new for old, new in outer.items() if old not in own}
        for each in body.input:
            known[each.name] = self._fresh(each.name)
            each.name = known[each.name]
        self.rename(body, known)
        for each in body.output:
            each.name = known.get(each.name, each.name)

    def _fresh(self, name: str) -> str:
        base = without_calls(_NUMBERS.sub("", name))[-_LONGEST:] or "unnamed"
        while True:
            self._counts[base] += 1
            count = self._counts[base]
            found = base if count == 1 else f"{base}_{count}"
            if found not in self._taken:
                self._taken.add(found)
                return found


def _weights(graph: Any) -> Iterator[Any]:
    yield from graph.initializer
    for each in graph.sparse_initializer:
        yield each.values
