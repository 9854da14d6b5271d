"""Which operators a SavedModel runs: those that one signature reaches, and those of a load.

Theory. A signature's outputs are nodes of the main graph; from there everything is reached by
inputs, by what is waited for, and by the functions that nodes call. A function runs *all* of its
nodes that have effects, so each node of a reached function counts. What a converter has to
translate is less: it keeps what the results need, and computes what depends on constants and
weights only. Nodes that will not be left are told apart (`vanishing`), so that a graph is not
refused for them. Saving and restoring are functions of their own that no signature reaches.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from serve.workbench.conversion.faults import failed
from serve.workbench.conversion.sources.composites import faults_of_composites
from serve.workbench.conversion.sources.dangers import DANGEROUS, RANDOM
from serve.workbench.conversion.sources.graph import Graph, GraphBody, Node, read_graph

SHOWN = 5  # nodes that are told by name
_CALLS = {"PartitionedCall", "StatefulPartitionedCall"}
_FROM_ASSET = {"InitializeTableFromTextFile", "InitializeTableFromTextFileV2"}
_WEIGHTS = {"ReadVariableOp", "VariableV2", "Variable", "Const"}  # a converter makes them constants
_SOURCES = {"Placeholder", "PlaceholderV2", "PlaceholderWithDefault", "VarHandleOp"}
_PASSIVE = {"Cast", "Identity", "IdentityN", "NoOp", "VarHandleOp", "Placeholder", *_WEIGHTS}
STRANGE: Mapping[int, str] = MappingProxyType(
    {11: "QINT8", 12: "QUINT8", 13: "QINT32", 14: "BF16", 15: "QINT16", 16: "QUINT16"}
    | {24: "FP8_E5M2", 25: "FP8_E4M3FN", 29: "INT4", 30: "UINT4"}
)


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator as TensorFlow calls it; `nodes` are the first few, those that stay first.

    `vanishing` of the `count` are left out of a converted graph: nothing needs them, or they are
    constant. `datatypes`: those that neither Triton nor ONNX Runtime computes in.
    """

    name: str
    count: int
    nodes: tuple[str, ...]
    vanishing: int = 0
    datatypes: tuple[str, ...] = ()


@dataclass(slots=True)
class _Tally:
    staying: list[str] = field(default_factory=list)
    vanishing: list[str] = field(default_factory=list)
    count: int = 0
    gone: int = 0
    types: set[str] = field(default_factory=set)


def scan(folder: Path, signature: str) -> tuple[Operator, ...]:
    """The operators that a signature reaches, by name.

    `unknown_signature`, `source_corrupt`, `source_too_large`; `unsupported_input` where the
    signature's function takes what is no plain tensor.
    """
    graph = read_graph(folder)
    if signature not in graph.signatures:
        raise failed("unknown_signature", f"'{signature}'")
    for fault in faults_of_composites(graph, signature):
        raise fault
    return operators_of(graph, graph.signatures[signature])


def loading_of(graph: Graph) -> tuple[Operator, ...]:
    """The operators that TensorFlow runs when it loads the folder, whatever is asked of it then."""
    return operators_of(graph, graph.initializer, graph.loading)


def operators_of(
    graph: Graph, outputs: Iterable[str], functions: Iterable[str] = ()
) -> tuple[Operator, ...]:
    """The operators that these nodes of the main graph, and these functions, reach."""
    tallies: dict[str, _Tally] = {}
    main = _reached(graph.main, tuple(outputs))
    called = _count(graph, main, tallies, is_needed=True, is_main=True)
    needed = [*functions, *(name for name, stays in called if stays)]
    others = [name for name, stays in called if not stays]
    seen: set[str] = set()
    while needed or others:  # what is needed comes first, so that each is counted once and right
        is_needed = bool(needed)
        name = (needed or others).pop()
        if name in seen or name not in graph.functions:
            continue
        seen.add(name)
        for each, stays in _count(
            graph, graph.body(name), tallies, is_needed=is_needed, is_main=False
        ):
            (needed if stays else others).append(each)
    return tuple(_operator(name, tallies[name]) for name in sorted(tallies))


def _operator(name: str, tally: _Tally) -> Operator:
    nodes = (tally.staying + tally.vanishing)[:SHOWN]
    return Operator(name, tally.count, tuple(nodes), tally.gone, tuple(sorted(tally.types)))


def _reached(main: GraphBody, outputs: tuple[str, ...]) -> GraphBody:
    """The part of the main graph that the outputs need or wait for."""
    found: dict[str, Node] = {}
    waiting = list(outputs)
    while waiting:
        node = main.nodes.get(waiting.pop().removeprefix("^"))
        if node is not None and node.name not in found:
            found[node.name] = node
            waiting += node.inputs
    return GraphBody(found, outputs)


def _count(
    graph: Graph, body: GraphBody, tallies: dict[str, _Tally], *, is_needed: bool, is_main: bool
) -> list[tuple[str, bool]]:
    """Count a body's operators; the functions that it calls, and whether their results stay."""
    staying = _needed(body) - _constant(body) if is_needed else set()
    called: list[tuple[str, bool]] = []
    for node in body.nodes.values():
        stays = node.name in staying
        calls = [*node.calls, node.operator] if node.operator in graph.functions else node.calls
        called += ((name, stays) for name in calls)
        is_call = node.operator in _CALLS or node.operator in graph.functions
        if is_call or _reads_asset(node, body, graph, is_main=is_main):
            continue
        tally = tallies.setdefault(_name(node), _Tally())
        tally.count += 1
        tally.gone += not stays
        names = tally.staying if stays else tally.vanishing
        if len(names) < SHOWN:
            names.append(node.name)
        if stays and node.operator not in _PASSIVE:
            tally.types |= {STRANGE[each] for each in node.types if each in STRANGE}
    return called


def _name(node: Node) -> str:
    """The operator; one that prints into a file is called after that file as well."""
    is_file = node.operator == "PrintV2" and node.target.startswith("file:")
    return f"PrintV2({node.target[:100]})" if is_file else node.operator


def _reads_asset(node: Node, body: GraphBody, graph: Graph, *, is_main: bool) -> bool:
    """Whether it fills a table from the model's own asset, which is no other file.

    In a function that comes in as an argument, in the main graph from the asset's node.
    """
    if node.operator not in _FROM_ASSET or len(node.inputs) < 2:
        return False
    source = node.inputs[1]
    return source in graph.assets if is_main else source not in body.nodes


def _needed(body: GraphBody) -> set[str]:
    """The nodes that the results are computed from."""
    found: set[str] = set()
    waiting = [name for name in body.results if not name.startswith("^")]
    while waiting:
        node = body.nodes.get(waiting.pop())
        if node is not None and node.name not in found:
            found.add(node.name)
            waiting += (name for name in node.inputs if not name.startswith("^"))
    return found


def _constant(body: GraphBody) -> set[str]:
    """The nodes that depend on constants and weights only, and that give the same each time."""
    users: dict[str, list[str]] = {}
    missing: dict[str, int] = {}
    for node in body.nodes.values():
        inputs = () if node.operator in _WEIGHTS else [n for n in node.inputs if n[:1] != "^"]
        missing[node.name] = len(inputs)
        for name in inputs:
            users.setdefault(name, []).append(node.name)
    ready = [name for name, count in missing.items() if not count]
    found: set[str] = set()
    while ready:
        name = ready.pop()
        operator = body.nodes[name].operator
        if operator in _SOURCES or operator in RANDOM or operator in DANGEROUS:
            continue
        found.add(name)
        for user in users.get(name, ()):
            missing[user] -= 1
            if not missing[user]:
                ready.append(user)
    return found
