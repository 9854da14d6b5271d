"""How large tensors inside a graph become: measured with samples, by ONNX Runtime.

The graph is asked for the largest magnitude of each tensor, so only numbers come out of it, and no
tensor lives longer than before. A tensor without elements counts as zeros.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnxruntime.capi import onnxruntime_pybind11_state as state

from serve.tensors.datatypes import Array
from serve.workbench.conversion.graphs.blame import blaming
from serve.workbench.conversion.graphs.session import OnnxModel


def magnitudes(
    model: onnx.ModelProto, names: Collection[str], samples: Iterable[Mapping[str, Array]]
) -> dict[str, float]:
    """The largest |x| of each named FP32 tensor of the outer graph over all samples."""
    if not names:
        return {}
    asked = onnx.ModelProto()
    asked.CopyFrom(model)
    graph = asked.graph
    prefix = _unused(graph)
    flat, zero = f"{prefix}/flat", f"{prefix}/zero"
    graph.initializer.append(numpy_helper.from_array(np.array([-1], np.int64), flat))
    graph.initializer.append(numpy_helper.from_array(np.zeros(1, np.float32), zero))
    del graph.output[:]
    wanted: dict[str, str] = {}
    for count, name in enumerate(names):
        steps = [f"{prefix}/{count}/{step}" for step in ("abs", "row", "filled", "max")]
        graph.node.extend(
            (
                helper.make_node("Abs", [name], steps[:1]),
                helper.make_node("Reshape", [steps[0], flat], [steps[1]]),
                helper.make_node("Concat", [steps[1], zero], [steps[2]], axis=0),
                helper.make_node("ReduceMax", [steps[2]], [steps[3]], keepdims=0),
            )
        )
        graph.output.append(helper.make_tensor_value_info(steps[3], onnx.TensorProto.FLOAT, ()))
        wanted[steps[3]] = name
    run = OnnxModel(asked.SerializeToString())
    found = dict.fromkeys(names, 0.0)
    for sample in samples:
        with samples_that_run():
            answer = run(sample)
        for output, array in answer.items():
            found[wanted[output]] = max(found[wanted[output]], float(array))
    return found


@contextmanager
def samples_that_run() -> Iterator[None]:
    """`samples_invalid` where ONNX Runtime fails with them: ids beyond a table, other shapes."""
    try:
        yield
    except (state.InvalidArgument, state.Fail, state.RuntimeException) as error:
        raise blaming("samples_invalid", error) from error


def _unused(graph: Any) -> str:
    """A beginning that no name in the graph has."""
    names = {each.name for each in (*graph.initializer, *graph.input)}
    names |= {name for node in graph.node for name in node.output}
    prefix = "largest"
    while any(name.startswith(prefix) for name in names):
        prefix += "_"
    return prefix
