"""A SavedModel's signature as an ONNX graph, by tf2onnx.

tf2onnx copies the whole graph before each of its optimiser's passes, to go back to where one fails,
and writes all weights into messages after each, whose memory is never given back; the copies pile
up, because a graph is full of cycles. So the passes are first run in place, nothing is written
until the end, and the garbage is collected after each. Only when a pass fails, which is rare, the
work is done again with copies.

What tf2onnx says while it works. It goes on after errors, which only its log tells.

A translation counts only when the log has no error: without a look at it, an operator that has no
counterpart stays in the graph, which nothing can load.

One signature of a SavedModel as a frozen graph: weights are constants, calls are inlined.

Inputs that a converted model takes with their channels first.

TensorFlow keeps images as rows, columns, channels; many clients have them as channels, rows,
columns. The converted model may take the latter; then its signature is not the source's.
"""

import gc
import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import onnx
import tensorflow as tf
from tf2onnx import optimizer, tf_loader, tfonnx, utils

from serve.core.errors import ConversionFailed
from serve.tensors.signature import ModelSignature, ModelTensor
from serve.workbench.conversion.events import Tell
from serve.workbench.conversion.faults import failed
from serve.workbench.conversion.graphs.names import without_calls
from serve.workbench.conversion.request import ConversionRequest
from serve.workbench.conversion.translation import handlers
from serve.workbench.conversion.translation.order import by_keys, make_orders_repeatable
from serve.workbench.conversion.translation.source_model import SourceModel

# --- channels -------------------------------------------------------------------------------------


TO_FIRST, TO_LAST = (0, 3, 1, 2), (0, 2, 3, 1)  # axes, as transposing takes them


def channels_first(signature: ModelSignature, names: Collection[str]) -> ModelSignature:
    """The signature with these inputs channels first; `unsupported_input` for what is no image."""
    if lost := sorted(set(names) - {spec.name for spec in signature.inputs}):
        raise failed(
            "unsupported_input",
            f"there is no input '{lost[0]}' for --nchw",
            hint=f"use one of {', '.join(spec.name for spec in signature.inputs)}",
        )
    return replace(
        signature,
        inputs=tuple(_turned(each) if each.name in names else each for each in signature.inputs),
    )


def _turned(spec: ModelTensor) -> ModelTensor:
    if spec.shape is None or len(spec.shape) != len(TO_FIRST):
        raise failed(
            "unsupported_input",
            f"input '{spec.name}' does not have four dimensions",
            hint="use --nchw only for images",
        )
    return replace(spec, shape=tuple(spec.shape[axis] for axis in TO_FIRST))


# --- one signature of a SavedModel as a frozen graph ----------------------------------------------


LARGEST = (1 << 31) - 1  # bytes of a protobuf message


@dataclass(frozen=True, slots=True, eq=False)
class Frozen:
    """A GraphDef, its tensors, what the signature calls each, and the lookup tables in it."""

    graph: Any
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    names: Mapping[str, str]
    tables: Mapping[bytes, Any]


def freeze(source: SourceModel, channels_first: Collection[str]) -> Frozen:
    """The graph of the signature, whose tensors are in the order of `source.signature`.

    A function around the signature gives each tensor a place of its own: so an input that is not
    used and an output that is given twice stay, and nothing depends on the order TensorFlow has.
    """
    weights = sum(_size(variable) for variable in source.function.graph.variables)
    if weights > LARGEST:
        raise failed("model_too_large", f"its weights have {weights} bytes, the limit is {LARGEST}")
    traced = _around(source, channels_first)
    count = len(source.signature.inputs)
    inputs = [tensor.name for tensor in traced.inputs[:count]]
    outputs = [tensor.name for tensor in traced.outputs]
    if _has_tables(traced):  # they are looked for in an optimised graph only
        graph, found = tf_loader.from_trackable(source.loaded, traced, inputs, outputs, False)
        tables = {name: by_keys(*table) for name, table in found.items()}
    else:
        graph, tables = _lean(source, traced, inputs, outputs), {}
    names = dict(zip(inputs, (spec.name for spec in source.signature.inputs), strict=True))
    names |= zip(outputs, (spec.name for spec in source.signature.outputs), strict=True)
    return Frozen(graph, tuple(inputs), tuple(outputs), names, tables)


def _lean(source: SourceModel, traced: Any, inputs: list[str], outputs: list[str]) -> Any:
    """The same in a third of the memory: nothing holds all weights twice at once."""
    graph, _ = tf_loader.from_trackable(source.loaded, traced, inputs, outputs, True)
    graph = tf_loader.fix_freezing_errors_part2(graph)
    if graph.ByteSize() > LARGEST:
        raise failed("model_too_large", f"it has {graph.ByteSize()} bytes, the limit is {LARGEST}")
    gc.collect()  # a graph is full of cycles, each with all weights
    with tf.Graph().as_default():
        return tf_loader.tf_optimize(inputs, outputs, graph)


def _has_tables(traced: Any) -> bool:
    graph = traced.graph.as_graph_def()
    functions = (node for function in graph.library.function for node in function.node_def)
    return any("Table" in node.op for node in (*graph.node, *functions))


def _around(source: SourceModel, channels_first: Collection[str]) -> Any:
    """The signature as a function of its inputs by place, giving its outputs by place."""
    keys = [spec.name for spec in source.signature.inputs]
    specs = dict(source.function.structured_input_signature[1])

    def call(*tensors: Any) -> list[Any]:
        given = {
            key: tf.transpose(tensor, TO_LAST) if key in channels_first else tensor
            for key, tensor in zip(keys, tensors, strict=True)
        }
        answer = source.function(**given)
        return [
            tf.identity(answer[spec.name], name=f"output_{place}")
            for place, spec in enumerate(source.signature.outputs)
        ]

    wanted = [
        tf.TensorSpec(
            _first(specs[key].shape) if key in channels_first else specs[key].shape,
            specs[key].dtype,
            name=f"input_{place}",
        )
        for place, key in enumerate(keys)
    ]
    return tf.function(call, autograph=False).get_concrete_function(*wanted)


def _first(shape: Any) -> list[int | None]:
    sizes = shape.as_list()
    return [sizes[axis] for axis in TO_FIRST]


def _size(variable: Any) -> int:
    return int(variable.shape.num_elements() or 0) * int(variable.dtype.size)


# --- talk -----------------------------------------------------------------------------------------


_LOGGER = "tf2onnx"
_UNMAPPED = "Tensorflow op [%s: %s] is not supported"
_NOT_CONVERTED = "Failed to convert node"


class TranslationTalk(logging.Handler):
    """The errors that were said, in their order."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.errors: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.errors.append(record)

    def fault(self, error: Exception | None = None) -> ConversionFailed | None:
        """The fault of the first error that names a node, else of any; None when none was said."""
        for record in self.errors:
            if (found := _unmapped(record)) or (found := _not_converted(record)):
                return found
        if error is not None:
            return failed(
                "invalid_graph", f"tf2onnx fails with {type(error).__name__}: {_line(error)}"
            )
        if self.errors:
            return failed("invalid_graph", f"tf2onnx reports: {_line(self.errors[0].getMessage())}")
        return None


@contextmanager
def heard() -> Iterator[TranslationTalk]:
    """Listen to tf2onnx."""
    talk, logger = TranslationTalk(), logging.getLogger(_LOGGER)
    logger.addHandler(talk)
    try:
        yield talk
    finally:
        logger.removeHandler(talk)


def _unmapped(record: logging.LogRecord) -> ConversionFailed | None:
    if record.msg != _UNMAPPED or not isinstance(record.args, tuple):
        return None
    node, operator = map(str, record.args)
    node = without_calls(node)
    return failed(
        "unsupported_operator",
        f"{operator} has no ONNX equivalent (node {node})",
        operator=operator,
        node=node,
    )


def _not_converted(record: logging.LogRecord) -> ConversionFailed | None:
    """A handler refused the node; its summary holds the operator, and the exception says why."""
    if not str(record.msg).startswith(_NOT_CONVERTED) or not isinstance(record.args, tuple):
        return None
    name, handler, summary = record.args
    node = without_calls(str(name))
    raised = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
    operator = _operator(str(summary)) or getattr(handler, "__qualname__", "").partition(".")[0]
    return failed(
        "unsupported_operator",
        f"{operator} cannot be converted in this form (node {node}): {_reason(raised)}",
        operator=operator,
        node=node,
    )


def _operator(summary: str) -> str:
    for line in summary.splitlines():
        if line.startswith("OP="):
            return line.removeprefix("OP=")
    return ""


def _reason(raised: object) -> str:
    return _line(raised).removeprefix("make_sure failure: ")


def _line(words: object) -> str:
    lines = [line.strip() for line in str(words).strip().splitlines() if line.strip()]
    return (lines or [type(words).__name__])[0][:300]


# --- a SavedModel's signature as an ONNX graph, by tf2onnx ----------------------------------------


PRODUCER = "servegate"


def translate(
    folder: Path, signature: str, request: ConversionRequest, tell: Tell
) -> onnx.ModelProto:
    """The graph, its inputs and outputs called and ordered as in the signature.

    `ConversionFailed` names operator and node where one is to blame.
    """
    assert handlers  # they are registered by being imported
    with heard() as talk:
        try:
            source = SourceModel(folder, signature)
            _check_names(source.signature)
            frozen = freeze(source, request.nchw)
            with _only_new_garbage():
                model = _model(frozen, request, tell)
        except (ConversionFailed, MemoryError):
            raise
        except Exception as error:
            raise talk.fault(error) or error from error
        if fault := talk.fault():
            raise fault
    return model


def _check_names(signature: ModelSignature) -> None:
    given = {spec.name for spec in signature.inputs}
    for spec in signature.outputs:
        if spec.name in given:
            raise failed("same_name", f"both have the name '{spec.name}'", node=spec.name)


@contextmanager
def _only_new_garbage() -> Iterator[None]:
    """Collections look at what is made from now on: TensorFlow's own objects take 0.3 s each."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        gc.collect()


def _model(frozen: Frozen, request: ConversionRequest, tell: Tell) -> onnx.ModelProto:
    with tf.device("/cpu:0"):
        try:
            graph = _optimised(_graph(frozen, request), in_place=True)
        except _PassFailed as error:
            logging.getLogger(__name__).info("%s", error)
            tell("note", text=f"{error}; trying again with copies of the graph")
            graph = _optimised(_graph(frozen, request), in_place=False)
    try:
        model = graph.make_model(PRODUCER)
    except ValueError as error:
        raise failed("model_too_large", str(error)[:300]) from error
    if model.ByteSize() > LARGEST:
        raise failed("model_too_large", f"it has {model.ByteSize()} bytes, the limit is {LARGEST}")
    return model


def _graph(frozen: Frozen, request: ConversionRequest) -> Any:
    """The graph in ONNX's operators."""
    utils.INTERNAL_NAME = 1  # of the counter in its names
    make_orders_repeatable()
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(frozen.graph, name="")
        return tfonnx.process_tf_graph(
            graph,
            opset=request.opset,
            input_names=list(frozen.inputs),
            output_names=list(frozen.outputs),
            tensors_to_rename=dict(frozen.names),
            initialized_tables=dict(frozen.tables),
        )


def _optimised(graph: Any, *, in_place: bool) -> Any:
    passes: Mapping[str, Callable[[], Any]] = {
        name: partial(_Pass, name, make, in_place)
        for name, make in optimizer._get_optimizers().items()
    }
    return optimizer.optimize_graph(graph, catch_errors=not in_place, optimizers=passes)


class _PassFailed(Exception):
    """A pass that is run in place failed, so the graph is lost."""


class _Pass:
    """One pass of tf2onnx's optimiser, after which the garbage is collected."""

    def __init__(self, name: str, make: Callable[[], Any], in_place: bool) -> None:
        self._name = name
        self._wrapped = make()
        self._in_place = in_place
        gc.collect()  # the copy that the pass before was given

    @property
    def graph_been_opt(self) -> bool:
        """Whether it has changed anything, in tf2onnx's words."""
        return bool(self._wrapped.graph_been_opt)

    def optimize(self, graph: Any, iteration: int) -> Any:
        """The graph after the pass."""
        try:
            if not self._in_place:
                return self._wrapped.optimize(graph, iteration) or graph
            self._wrapped.opt_iteration = iteration
            graph = self._wrapped._optimize(graph) or graph
            graph.delete_unused_nodes(graph.outputs)
            return graph
        except Exception as error:
            if not self._in_place:
                raise
            raise _PassFailed(f"tf2onnx's pass {self._name} failed: {error}") from error
        finally:
            gc.collect()
