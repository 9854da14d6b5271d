"""Where an ONNX file says that its weights lie: only beside it, never elsewhere.

Field numbers are those of onnx.proto. The file is walked as protobuf; nothing of it is loaded.
"""

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from serve.workbench.conversion.faults import failed
from serve.workbench.conversion.sources.messages import Budget, message_of, text_of

LARGEST = (1 << 31) - 1  # bytes of a protobuf message
_GRAPH, _FUNCTIONS = 7, 25  # of ModelProto
_NODE, _INITIALIZER, _SPARSE = 1, 5, 15  # of GraphProto
_FUNCTION_NODE = 7  # of FunctionProto
_ATTRIBUTE = 5  # of NodeProto
_T, _G, _TENSORS, _GRAPHS, _SPARSE_TENSOR, _SPARSE_TENSORS = 5, 6, 10, 11, 22, 23  # AttributeProto
_EXTERNAL = 13  # of TensorProto
_OWN_PARTS = (1, 2)  # of SparseTensorProto: values and indices


def check_onnx(path: Path, *, most: int) -> tuple[str, ...]:
    """The files that weights lie in; `archive_unsafe` for one that is not in the same folder."""
    if path.stat().st_size > LARGEST:
        raise failed("source_too_large", "the ONNX file has 2 GiB or more")
    budget = Budget()
    names = set(_external(path.read_bytes(), budget))
    total = path.stat().st_size
    for name in sorted(names):
        parts = PurePosixPath(name).parts
        beside = path.parent / name
        if name.startswith("/") or "\\" in name or ".." in parts or beside.is_symlink():
            raise failed("archive_unsafe", f"its weights have the unsafe path '{name[:200]}'")
        if not beside.is_file() or not beside.resolve().is_relative_to(path.parent.resolve()):
            raise failed("source_corrupt", f"its weights '{name[:200]}' are not in its folder")
        total += beside.stat().st_size
    if total > most:
        raise failed(
            "source_too_large", f"it has {total} bytes with its weights, the limit is {most}"
        )
    return tuple(sorted(names))


def _external(model: bytes, budget: Budget) -> Iterator[str]:
    has_graph = False
    for number, value in budget.fields(model):
        if number == _GRAPH:
            has_graph = True
            yield from _of_body(message_of(value), (_NODE,), budget, 1)
        elif number == _FUNCTIONS:
            yield from _of_body(message_of(value), (_FUNCTION_NODE,), budget, 1)
    if not has_graph:
        raise failed("source_corrupt", "it contains no graph")


def _of_body(body: bytes, nodes: tuple[int, ...], budget: Budget, depth: int) -> Iterator[str]:
    budget.check_depth(depth)
    is_graph = _NODE in nodes
    for number, value in budget.fields(body):
        if number in nodes:
            for key, attribute in budget.fields(message_of(value)):
                if key == _ATTRIBUTE:
                    yield from _of_attribute(message_of(attribute), budget, depth)
        elif is_graph and number == _INITIALIZER:
            yield from _of_tensor(message_of(value), budget)
        elif is_graph and number == _SPARSE:
            yield from _of_sparse(message_of(value), budget)


def _of_attribute(attribute: bytes, budget: Budget, depth: int) -> Iterator[str]:
    for number, value in budget.fields(attribute):
        if number in (_T, _TENSORS):
            yield from _of_tensor(message_of(value), budget)
        elif number in (_SPARSE_TENSOR, _SPARSE_TENSORS):
            yield from _of_sparse(message_of(value), budget)
        elif number in (_G, _GRAPHS):
            yield from _of_body(message_of(value), (_NODE,), budget, depth + 1)


def _of_sparse(tensor: bytes, budget: Budget) -> Iterator[str]:
    for number, value in budget.fields(tensor):
        if number in _OWN_PARTS:
            yield from _of_tensor(message_of(value), budget)


def _of_tensor(tensor: bytes, budget: Budget) -> Iterator[str]:
    for number, value in budget.fields(tensor):
        if number != _EXTERNAL:
            continue
        pair = dict(budget.fields(message_of(value)))
        if pair.get(1) == b"location":
            yield text_of(pair.get(2, b""))
