"""A SavedModel's signature as an ONNX graph, by tf2onnx.

tf2onnx copies the whole graph before each of its optimiser's passes, to go back to where one fails,
and writes all weights into messages after each, whose memory is never given back; the copies pile
up, because a graph is full of cycles. So the passes are first run in place, nothing is written
until the end, and the garbage is collected after each. Only when a pass fails, which is rare, the
work is done again with copies.
"""

import gc
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import onnx
import tensorflow as tf
from tf2onnx import optimizer, tfonnx, utils

from serve.conversion.events import Tell
from serve.conversion.faults import failed
from serve.conversion.request import ConversionRequest
from serve.conversion.translation import handlers
from serve.conversion.translation.frozen_graph import LARGEST, Frozen, freeze
from serve.conversion.translation.order import make_orders_repeatable
from serve.conversion.translation.source_model import SourceModel
from serve.conversion.translation.talk import heard
from serve.core.errors import ConversionFailed
from serve.tensors.signature import ModelSignature

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
