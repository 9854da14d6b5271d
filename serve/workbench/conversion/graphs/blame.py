"""Which node a message of the checker or of ONNX Runtime speaks of.

Both name nodes in words of their own, so the names are looked for in every form that is known:
`Node (NAME) Op (TYPE)`, `node_name: NAME`, `Node:NAME`, `OpType: TYPE`, `op_type:TYPE`.
"""

import re

import onnx

from serve.core.errors import ConversionFailed
from serve.workbench.conversion.faults import failed

_NAMES = (
    r"Node \(([^)]+)\)",
    r"[Nn]ode [Nn]ame: ?'?([^\s,')]+)",
    r"node_name: ?([^\s,)]+)",
    r"node with name '([^']+)'",
    r"node '([^']+)'",
    r"Node:([^\s,)]+)",
)
_TYPES = (
    r"Op \(([A-Za-z0-9_]+)\)",
    r"OpType: ?([A-Za-z0-9_]+)",
    r"op_type:? ?'?([A-Za-z0-9_]+)",
    r"for ([A-Z][A-Za-z0-9]+)\(\d+\) node",
    r"No Op registered for ([A-Za-z0-9_]+)",
)


def blamed(words: str, model: bytes | onnx.ModelProto = b"") -> tuple[str, str]:
    """Operator and node, empty where the message names none.

    With a model, a node that is named gives its operator, and an operator its first node.
    """
    operator, node = _first(_TYPES, words), _first(_NAMES, words)
    if bool(operator) == bool(node):
        return operator, node
    if isinstance(model, bytes):
        model = onnx.load_model_from_string(model) if model else onnx.ModelProto()
    for each in model.graph.node:
        if (node and each.name == node) or (operator and each.op_type == operator):
            return each.op_type, each.name
    return operator, node


def blaming(code: str, error: Exception, model: bytes | onnx.ModelProto = b"") -> ConversionFailed:
    """The fault of this code, in the words of the checker or of ONNX Runtime."""
    words = str(error)
    operator, node = blamed(words, model)
    return failed(code, words.strip().replace("\n", " ")[:300], operator=operator, node=node)


def _first(patterns: tuple[str, ...], words: str) -> str:
    for pattern in patterns:
        if found := re.search(pattern, words):
            return found.group(1)
    return ""
