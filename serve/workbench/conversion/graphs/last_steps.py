"""The last steps to an ONNX file that is served: tensors, names, size, and two judges.

The order: tensors as in the signature, onnxslim, names by place, only the operator sets that are
used, shapes inferred, then the checker of the ONNX package, then a load into ONNX Runtime. A model
counts as converted only after both: each finds faults that the other does not.
"""

import contextlib
import io
import logging
from collections.abc import Iterator
from typing import Any

import onnx
import onnxslim

from serve.tensors.signature import DYNAMIC, ModelSignature, ModelTensor
from serve.workbench.conversion.faults import failed
from serve.workbench.conversion.graphs import elements
from serve.workbench.conversion.graphs.blame import blamed
from serve.workbench.conversion.graphs.names import name_by_place
from serve.workbench.conversion.graphs.session import session

BATCH = "batch"
IR_VERSION = 8  # of opset 18; every ONNX Runtime that Triton brings reads it
LARGEST = (1 << 31) - 1  # bytes of a protobuf message
_ELEMENTS = {
    "FP16": onnx.TensorProto.FLOAT16,
    "FP32": onnx.TensorProto.FLOAT,
    "FP64": onnx.TensorProto.DOUBLE,
    "BF16": onnx.TensorProto.BFLOAT16,
    "BYTES": onnx.TensorProto.STRING,
    "BOOL": onnx.TensorProto.BOOL,
    **{f"{sign}INT{bits}": getattr(onnx.TensorProto, f"{sign}INT{bits}")
       for sign in ("", "U") for bits in (8, 16, 32, 64)},
}  # fmt: skip


def finish(model: onnx.ModelProto, signature: ModelSignature) -> onnx.ModelProto:
    """The model as it is served. The one that is given is used up.

    What was ONNX already keeps the names inside of its graph and its operator sets.
    """
    is_own = signature.format == "onnx"
    _set_tensors(model, signature)
    finished = _slim(model)
    _set_tensors(finished, signature)
    if not is_own:
        name_by_place(finished)
        finished.ir_version = IR_VERSION
    _shape_loops(finished)
    elements.drop_unused_domains(finished)
    finished = _inferred(finished)
    if finished.ByteSize() > LARGEST:
        raise failed(
            "model_too_large", f"it has {finished.ByteSize()} bytes, the limit is {LARGEST}"
        )
    _check(finished)
    session(serialized(finished))
    return finished


def serialized(model: onnx.ModelProto) -> bytes:
    """The bytes of the file; equal models give equal bytes."""
    return bytes(model.SerializeToString(deterministic=True))


def _set_tensors(model: onnx.ModelProto, signature: ModelSignature) -> None:
    """Inputs and outputs in the signature's order, with its types and shapes.

    An input that nothing uses is there again, where it was simplified away.
    """
    graph = model.graph
    is_batched = all(spec.shape and spec.shape[0] == DYNAMIC for spec in signature.inputs)
    given = {each.name for each in graph.output}
    if lost := [spec.name for spec in signature.outputs if spec.name not in given]:
        raise failed("invalid_graph", f"the graph has no output '{lost[0]}'", node=lost[0])
    weights = {each.name for each in graph.initializer}
    with_value = [each for each in graph.input if each.name in weights]
    for values, specs, others in (
        (graph.input, signature.inputs, with_value),
        (graph.output, signature.outputs, []),
    ):
        found = {each.name: each for each in values}
        infos = [_info(found.get(spec.name), spec, is_batched) for spec in specs]
        infos += others
        del values[:]
        values.extend(infos)


def _info(found: Any, spec: ModelTensor, is_batched: bool) -> Any:
    """As the signature has it; where that knows no shape, what the converter found."""
    if found is not None and (spec.shape is None or spec.datatype not in _ELEMENTS):
        return onnx.ValueInfoProto.FromString(found.SerializeToString())
    if spec.shape is None or spec.datatype not in _ELEMENTS:
        return onnx.ValueInfoProto(name=spec.name)
    sizes = [
        size if size != DYNAMIC else BATCH if axis == 0 and is_batched else f"{spec.name}_{axis}"
        for axis, size in enumerate(spec.shape)
    ]
    return onnx.helper.make_tensor_value_info(spec.name, _ELEMENTS[spec.datatype], sizes)


def _slim(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without what onnxslim takes away; as it is where that fails, or makes it invalid.

    With bodies inside of bodies onnxslim can lose the tensor that an inner one takes from outside.
    """
    before = serialized(model)
    try:
        with _quiet():
            slimmed = onnxslim.slim(model)
        onnx.checker.check_model(slimmed, full_check=True)
        return slimmed
    except Exception as error:
        logging.getLogger(__name__).warning("onnxslim failed: %s", error)
        return onnx.load_model_from_string(before)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    with contextlib.redirect_stdout(io.StringIO()):
        yield


def _shape_loops(model: onnx.ModelProto) -> None:
    """The counter and the condition that a loop gives its body are scalars; ORT needs it said."""
    for node in (each for part in elements.graphs(model.graph) for each in part.node):
        if not elements.is_standard(node, ("Loop",)):
            continue
        for body in (each.g for each in node.attribute if each.name == "body"):
            for given in body.input[:2]:
                if not given.type.tensor_type.HasField("shape"):
                    given.type.tensor_type.shape.SetInParent()


def _inferred(model: onnx.ModelProto) -> onnx.ModelProto:
    """With the shapes of what is inside, as far as they can be known."""
    try:
        return onnx.shape_inference.infer_shapes(model, data_prop=True)
    except Exception as error:
        raise _invalid(str(error), model) from error


def _check(model: onnx.ModelProto) -> None:
    try:
        onnx.checker.check_model(model, full_check=True)
    except Exception as error:
        raise _invalid(str(error), model) from error


def _invalid(words: str, model: onnx.ModelProto) -> Exception:
    operator, node = blamed(words, model)
    why = words.strip().replace("\n", " ")[:300]
    code = "unsupported_datatype" if "bfloat16" in words else "invalid_graph"
    return failed(code, why, operator=operator, node=node)
