"""The graph of a SavedModel as protobuf tells it: nodes, functions, signatures, what a load runs.

Field numbers are those of TensorFlow's saved_model, meta_graph, graph, function, node_def,
attr_value and saved_object_graph.proto. Functions are kept as bytes and read when they are reached.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from serve.model_files.savedmodel_reader import INITIALIZER, SERVE
from serve.workbench.conversion.faults import failed
from serve.workbench.conversion.sources.kinds import GRAPH_FILE
from serve.workbench.conversion.sources.messages import Budget, message_of, text_of

LARGEST = (1 << 31) - 1  # bytes of a protobuf message
_META_GRAPH = 2  # of SavedModel
_INFO, _GRAPH, _SAVER, _COLLECTION = 1, 2, 3, 4  # of MetaGraphDef
_SIGNATURE, _ASSET, _OBJECTS = 5, 6, 7
_TAG = 4  # of MetaInfoDef
_NODE, _LIBRARY = 1, 2  # of GraphDef
_FUNCTION = 1  # of FunctionDefLibrary
_DECLARATION, _BODY_NODE, _RETURN = 1, 3, 4  # of FunctionDef
_INFO_NAME, _INFO_COO, _INFO_COMPOSITE = 1, 4, 5  # of TensorInfo
_FUNC, _LIST, _TEXT, _TYPE, _LIST_TYPE, _LIST_FUNC = 10, 1, 2, 6, 6, 9  # of AttrValue, its list
_OLD_INITIALIZERS = {"saved_model_main_op", "legacy_init_op"}  # of TensorFlow 1
_LOADED = {"_initialize", "_create_resource", "_destroy_resource", "_deserialize_from_proto"}


@dataclass(frozen=True, slots=True)
class Node:
    """One node. `inputs` are the names of nodes or arguments, `^` before those only waited for.

    `calls` are functions that its attributes name; `types` the numbers of its data types.
    `target`: where PrintV2 prints.
    """

    name: str
    operator: str
    inputs: tuple[str, ...]
    calls: tuple[str, ...]
    types: frozenset[int]
    target: str = ""


@dataclass(frozen=True, slots=True)
class GraphBody:
    """The nodes of a graph or function by name, and those whose values it gives back."""

    nodes: Mapping[str, Node]
    results: tuple[str, ...]


@dataclass(slots=True)
class Graph:
    """One MetaGraphDef. `signatures`: the nodes that each one's outputs come from.

    `initializer` and `loading`: nodes and functions that a load runs; `assets`: nodes that hold the
    name of an asset; `concrete`: what is saved about functions, a SavedConcreteFunction for each.
    """

    budget: Budget
    main: GraphBody = field(default_factory=lambda: GraphBody({}, ()))
    functions: dict[str, bytes] = field(default_factory=dict)
    signatures: dict[str, tuple[str, ...]] = field(default_factory=dict)
    initializer: tuple[str, ...] = ()
    loading: tuple[str, ...] = ()
    assets: frozenset[str] = frozenset()
    concrete: dict[str, bytes] = field(default_factory=dict)
    tags: frozenset[str] = frozenset()

    def body(self, name: str) -> GraphBody:
        """Read the function of this name, which has to be there."""
        nodes: dict[str, Node] = {}
        results: list[str] = []
        for number, value in self.budget.fields(self.functions[name]):
            if number == _BODY_NODE:
                node = _node(message_of(value), self.budget)
                nodes[node.name] = node
            elif number == _RETURN:
                results.append(self.budget.entry(message_of(value))[1].decode("utf-8", "replace"))
        return GraphBody(nodes, tuple(map(_producer, results)))


def read_graph(folder: Path) -> Graph:
    """The graph with the tag `serve`, or the only one; `source_corrupt`, `source_too_large`."""
    path = folder / GRAPH_FILE
    if path.stat().st_size > LARGEST:
        raise failed("source_too_large", f"{GRAPH_FILE} has 2 GiB or more")
    budget = Budget()
    metas = [
        message_of(value)
        for number, value in budget.fields(path.read_bytes())
        if number == _META_GRAPH
    ]
    tagged = [(_tags(meta, budget), meta) for meta in metas]
    chosen = next((each for each in tagged if SERVE in each[0]), None)
    if chosen is None:
        known = ", ".join(sorted({tag for tags, _ in tagged for tag in tags})) or "none"
        why = f"no graph has the tag '{SERVE}' (tags: {known})" if metas else "it contains no graph"
        raise failed("source_corrupt", why)
    return _graph(chosen[1], Graph(budget, tags=chosen[0]))


def _tags(meta: bytes, budget: Budget) -> frozenset[str]:
    return frozenset(
        text_of(tag)
        for number, value in budget.fields(meta)
        if number == _INFO
        for key, tag in budget.fields(message_of(value))
        if key == _TAG
    )


def _graph(meta: bytes, graph: Graph) -> Graph:
    budget = graph.budget
    assets: set[str] = set()
    initializers: list[str] = []
    objects = saver = b""
    for number, value in budget.fields(meta):
        if number == _GRAPH:
            graph.main = _main(message_of(value), graph)
        elif number == _SIGNATURE:
            name, signature = budget.entry(message_of(value))
            sources = tuple(_outputs(signature, budget))
            if name == INITIALIZER:
                initializers += sources
            else:
                graph.signatures[name] = sources
        elif number == _ASSET:
            assets.add(_asset(message_of(value), budget))
        elif number == _COLLECTION:
            initializers += _old_initializers(message_of(value), budget)
        elif number == _OBJECTS:
            objects = message_of(value)
        elif number == _SAVER:
            saver = message_of(value)
    if not objects:  # TensorFlow 1 restores by a node of the graph
        initializers.append(_producer(text_of(dict(budget.fields(saver)).get(3, b""))))
    graph.initializer = tuple(initializers)
    graph.assets = frozenset(assets)
    graph.loading = tuple(_loading(objects, budget))
    graph.concrete = dict(
        budget.entry(message_of(value)) for number, value in budget.fields(objects) if number == 2
    )
    return graph


def _old_initializers(collection: bytes, budget: Budget) -> Iterator[str]:
    name, content = budget.entry(collection)
    if name not in _OLD_INITIALIZERS:
        return
    for number, value in budget.fields(content):
        if number == 1:
            for _, node in budget.fields(message_of(value)):
                yield _producer(text_of(node))


def _main(message: bytes, graph: Graph) -> GraphBody:
    nodes: dict[str, Node] = {}
    for number, value in graph.budget.fields(message):
        if number == _NODE:
            node = _node(message_of(value), graph.budget)
            nodes[node.name] = node
        elif number == _LIBRARY:
            for key, function in graph.budget.fields(message_of(value)):
                if key == _FUNCTION:
                    graph.functions[_declared(message_of(function), graph.budget)] = message_of(
                        function
                    )
    return GraphBody(nodes, ())


def _declared(function: bytes, budget: Budget) -> str:
    for number, value in budget.fields(function):
        if number == _DECLARATION:
            return text_of(dict(budget.fields(message_of(value))).get(1, b""))
    return ""


def _node(message: bytes, budget: Budget) -> Node:
    name = operator = target = ""
    inputs: list[str] = []
    calls: list[str] = []
    types: set[int] = set()
    for number, value in budget.fields(message):
        if number == 1:
            name = text_of(value)
        elif number == 2:
            operator = text_of(value)
        elif number == 3:
            inputs.append(_producer(text_of(value)))
        elif number == 5:
            key, attribute = budget.entry(message_of(value))
            if key == "output_stream":
                target = text_of(dict(budget.fields(attribute)).get(_TEXT, b""))
            _attribute(attribute, calls, types, budget, 1)
    return Node(name, operator, tuple(inputs), tuple(calls), frozenset(types), target)


def _attribute(
    attribute: bytes, calls: list[str], types: set[int], budget: Budget, depth: int
) -> None:
    """Functions and data types that an attribute names, itself or in a list, however deep."""
    budget.check_depth(depth)
    for number, value in budget.fields(attribute):
        if number == _FUNC:
            _function(message_of(value), calls, types, budget, depth)
        elif number == _TYPE and isinstance(value, int):
            types.add(value)
        elif number == _LIST:
            for key, each in budget.fields(message_of(value)):
                if key == _LIST_FUNC:
                    _function(message_of(each), calls, types, budget, depth)
                elif key == _LIST_TYPE:
                    types.update([each] if isinstance(each, int) else each)  # packed: all below 128


def _function(
    message: bytes, calls: list[str], types: set[int], budget: Budget, depth: int
) -> None:
    """A NameAttrList: the function's name, and attributes that may name more."""
    for number, value in budget.fields(message):
        if number == 1:
            calls.append(text_of(value))
        elif number == 2:
            _attribute(budget.entry(message_of(value))[1], calls, types, budget, depth + 1)


def _producer(text: str) -> str:
    """`node:output:0` → `node`; `^node` stays as it is."""
    return text.partition(":")[0]


def _outputs(signature: bytes, budget: Budget) -> Iterator[str]:
    for number, value in budget.fields(signature):
        if number == 2:
            yield from map(_producer, _tensor_names(budget.entry(message_of(value))[1], budget, 1))


def _tensor_names(info: bytes, budget: Budget, depth: int) -> Iterator[str]:
    """The tensors of a TensorInfo: one, three of a sparse tensor, or those of its components."""
    budget.check_depth(depth)
    for number, value in budget.fields(info):
        if number == _INFO_NAME:
            yield text_of(value)
        elif number == _INFO_COO:
            yield from (text_of(each) for _, each in budget.fields(message_of(value)))
        elif number == _INFO_COMPOSITE:
            for key, part in budget.fields(message_of(value)):
                if key == 2:
                    yield from _tensor_names(message_of(part), budget, depth + 1)


def _asset(message: bytes, budget: Budget) -> str:
    """The node that holds the name of an asset, whose file has to lie in the folder."""
    found = dict(budget.fields(message))
    name = text_of(found.get(2, b""))
    path = PurePosixPath(name)
    if not name or path.is_absolute() or ".." in path.parts or "\\" in name:
        raise failed(
            "archive_unsafe",
            f"an asset has the unsafe path '{name[:200]}'",
            hint="save the model again with TensorFlow",
        )
    info = dict(budget.fields(message_of(found.get(1, b""))))
    return _producer(text_of(info.get(_INFO_NAME, b"")))


def _loading(objects: bytes, budget: Budget) -> Iterator[str]:
    """The functions that TensorFlow calls while it loads: of tables, and of restoring."""
    nodes = [message_of(value) for number, value in budget.fields(objects) if number == 1]
    wanted: set[int] = set()
    for node in nodes:
        for number, value in budget.fields(node):
            if number == 1:
                child = dict(budget.fields(message_of(value)))
                place = child.get(1, 0)
                if text_of(child.get(2, b"")) in _LOADED and isinstance(place, int):
                    wanted.add(place)
            elif number == 11:  # how it is saved and restored, by functions
                place = dict(budget.fields(budget.entry(message_of(value))[1])).get(3, 0)
                if isinstance(place, int) and place:
                    wanted.add(place)
    for place in sorted(wanted):
        if place < len(nodes):
            yield from _concrete(nodes[place], budget)


def _concrete(node: bytes, budget: Budget) -> Iterator[str]:
    """The concrete functions of a SavedObject: of a function (6), or a bare one (8)."""
    for number, value in budget.fields(node):
        if number in (6, 8):
            yield from (text_of(each) for key, each in budget.fields(message_of(value)) if key == 1)
