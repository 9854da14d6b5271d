"""The two judges of a changed graph: the checker of the ONNX package, then ONNX Runtime."""

import onnx

from serve.conversion.graphs.blame import blaming
from serve.conversion.graphs.session import session


def check(model: onnx.ModelProto) -> None:
    """`invalid_graph` or `cannot_load`, with the node that is named."""
    try:
        onnx.checker.check_model(model, full_check=True)
    except Exception as error:
        raise blaming("invalid_graph", error, model) from error
    session(model.SerializeToString())
