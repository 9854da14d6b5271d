"""Operators of TensorFlow that tf2onnx does not map, in operators that it does.

| TensorFlow               | ONNX             | why it is met                                    |
|--------------------------|------------------|--------------------------------------------------|
| Erfc                     | 1 - Erf          | the exact GELU of Keras                          |
| StringLower, StringUpper | StringNormalizer | its default locale, en_US, is seldom installed   |

Importing this module makes them known to tf2onnx, in this process.
"""

from typing import Any

import numpy as np
import tf2onnx.onnx_opset
import tf2onnx.tfonnx  # noqa: F401 — registers every handler that tf2onnx has
from tf2onnx import utils
from tf2onnx.custom_opsets.string_ops import StringLower
from tf2onnx.handler import tf_op

from serve.workbench.conversion.request import OPSET

# What tf2onnx's rewriters and its reader of graphs take away before anything is mapped.
_REWRITTEN = frozenset(
    {
        "Placeholder",
        "PlaceholderWithDefault",
        "Const",
        "NoOp",
        "Identity",
        "IdentityN",
        "StopGradient",
        "PreventGradient",
        "CheckNumerics",
        "Assert",
        "ReadVariableOp",
        "ResourceGather",
        "VarHandleOp",
        "PartitionedCall",
        "StatefulPartitionedCall",
        "HashTableV2",
        "If",
        "StatelessIf",
        "While",
        "StatelessWhile",
    }
)


def known_operators() -> frozenset[str]:
    """Names of TensorFlow's operators that can be converted, ours among them."""
    return frozenset(tf_op.create_mapping(OPSET, None)) | _REWRITTEN


@tf_op("Erfc")
class _Erfc:
    """1 - Erf(x): loses relative precision only where Erfc is below 1e-7, far below GELU's."""

    @classmethod
    def version_9(cls, graph: Any, node: Any, **_: Any) -> None:
        dtype, shape = graph.get_dtype(node.output[0]), graph.get_shape(node.output[0])
        one = graph.make_const(
            utils.make_name("one"), np.ones((), utils.map_onnx_to_numpy_type(dtype))
        )
        inputs, outputs, name = list(node.input), list(node.output), node.name
        graph.remove_node(name)
        erf = graph.make_node("Erf", inputs, name=utils.make_name(name))
        graph.make_node(
            "Sub",
            [one.output[0], erf.output[0]],
            name=name,
            outputs=outputs,
            dtypes=[dtype],
            shapes=[shape],
        )


@tf_op(["StringLower", "StringUpper"])
class _StringCase:
    """With a locale that every system has. TensorFlow changes ASCII only, unless told UTF-8."""

    @classmethod
    def version_10(cls, graph: Any, node: Any, **more: Any) -> None:
        encoding = node.get_attr_value("encoding", b"")
        StringLower.version_10(graph, node, **more)
        node.set_attr("locale", "C.UTF-8" if encoding in (b"utf-8", "utf-8") else "C")
