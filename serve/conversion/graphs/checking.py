"""The two judges of a changed graph: the checker of the ONNX package, then ONNX Runtime."""

import onnx

from serve.conversion.faults import failed
from serve.conversion.graphs.blame import blamed
from serve.conversion.graphs.session import session


def check(model: onnx.ModelProto) -> None:
    """`invalid_graph` or `cannot_load`, with the node that is named."""
    try:
        onnx.checker.check_model(model, full_check=True)
    except Exception as error:
        operator, node = blamed(str(error), model)
        why = str(error).strip().replace("\n", " ")[:300]
        raise failed("invalid_graph", why, operator=operator, node=node) from error
    session(model.SerializeToString())
