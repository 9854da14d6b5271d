"""ZipMap: what skl2onnx puts behind the probabilities of a classifier, which Triton cannot carry.

It makes a list of maps from class to probability out of a tensor with a place for each class. The
tensor says the same, so it takes the output's name.
"""

from collections.abc import Iterator

import onnx
from onnx import TensorProto, helper

OPERATOR, DOMAIN = "ZipMap", "ai.onnx.ml"


def remove_zipmaps(model: onnx.ModelProto) -> Iterator[str]:
    """Make outputs of ZipMaps tensors, in place; a sentence for each."""
    graph = model.graph
    outputs = {each.name: each for each in graph.output}
    for node in list(graph.node):
        if node.op_type != OPERATOR or node.domain != DOMAIN or node.output[0] not in outputs:
            continue
        classes = _classes(node)
        output = outputs[node.output[0]]
        rows = graph.input[0].type.tensor_type.shape.dim[0] if graph.input else None
        first = (rows.dim_param or rows.dim_value or "batch") if rows else "batch"
        tensor = helper.make_tensor_value_info(
            output.name, TensorProto.FLOAT, [first, len(classes)]
        )
        output.CopyFrom(tensor)
        node.CopyFrom(helper.make_node("Identity", [node.input[0]], [output.name]))
        shown = ", ".join(classes[:20]) + (", …" if len(classes) > 20 else "")
        yield (
            f"output '{output.name}' was a list of maps (ZipMap), which Triton does not support; it"
            f" is now a tensor of probabilities, in the order of the classes {shown}"
        )


def _classes(node: onnx.NodeProto) -> list[str]:
    for attribute in node.attribute:
        if attribute.name == "classlabels_int64s" and attribute.ints:
            return [str(each) for each in attribute.ints]
        if attribute.name == "classlabels_strings" and attribute.strings:
            return [each.decode("utf-8", "replace") for each in attribute.strings]
    return []
