"""What the REST façade does for each task, once the call is on its way: JSON in, JSON out.

Large documents are read and written in a thread, so that other calls go on meanwhile. They are read
where they are converted, and are gone when the tensors are made.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from serve.listeners.tfserving.facade import Calling, away
from serve.tensors.tfserving import LARGE, Port, Signature, Tensor, kind_of
from serve.tensors.tfserving_answers import (
    classes_json,
    outputs_json,
    predictions_json,
    values_json,
)
from serve.tensors.tfserving_examples import (
    check_scores,
    check_values,
    class_outputs,
    class_rows,
    example_inputs,
    examples_of,
    first_row,
    regress_output,
)
from serve.tensors.tfserving_json import (
    PredictBody,
    document_of,
    let_go,
    numbers_inputs,
    predict_inputs,
    signature_name,
)
from serve.tensors.tfserving_numbers import Weighed, weigh
from serve.wire import tfserving as wire
from serve.wire.tfserving import Servable, Task

T = TypeVar("T")


class Asked:
    """The JSON of a request. `weight` is what reading it may take, in bytes of memory."""

    def __init__(self, weighed: Weighed) -> None:
        self._weighed = weighed
        self._document: dict[str, Any] | None = None
        self.weight = weighed.weight
        self.size = len(weighed.body)
        if weighed.is_large:  # in its values, if not in its bytes
            self.size = max(self.size, LARGE + 1)

    def __repr__(self) -> str:
        return f"<Asked of {len(self._weighed.body)} bytes, weight={self.weight}>"

    def read_if_small(self) -> None:
        """Find out at once what is wrong with a small document."""
        if not self._weighed.is_large:
            self._document = self.document()

    def document(self) -> dict[str, Any]:
        """The JSON object, which names no signature that is not there."""
        if self._document is not None:
            return self._document
        found = document_of(self._weighed.body, is_large=self._weighed.is_large)
        wire.check_signature(signature_name(found))
        return found

    def predict_inputs(self, signature: Signature) -> PredictBody:
        """The tensors of a predict request."""
        if self._weighed.numbers is not None:
            wire.check_signature(self._weighed.name)
            return numbers_inputs(self._weighed, signature)
        return self._freed(partial(predict_inputs, signature=signature))

    def example_inputs(self, signature: Signature) -> tuple[dict[str, Tensor], int]:
        """The tensors of a classify or regress request, and of how many examples."""

        def read(document: dict[str, Any]) -> tuple[dict[str, Tensor], int]:
            examples = examples_of(document)
            return example_inputs(examples, signature), len(examples)

        return self._freed(read)

    def _freed(self, read: Callable[[dict[str, Any]], T]) -> T:
        """What is read from the document, which is gone then if it is large."""
        document = self.document()
        try:
            return read(document)
        finally:
            if self._weighed.is_large:
                with suppress(RecursionError):
                    let_go(document)


async def asked(body: bytes, task: Task) -> Asked:
    """What a body asks for."""
    return Asked(await away(len(body), partial(weigh, body, is_predict=task is Task.PREDICT)))


async def carry_out(task: Task, calling: Calling, asked: Asked) -> bytes:
    """The answer."""
    return await _TASKS[task](calling, asked)


async def metadata(calling: Calling, servable: Servable) -> bytes:
    """What the version takes and gives, as TensorFlow Serving describes it."""
    signature = await calling.signature()
    return wire.metadata_json(
        servable, calling.version, _described(signature.inputs), _described(signature.outputs)
    )


async def _predict(calling: Calling, asked: Asked) -> bytes:
    signature = await calling.signature()
    inputs, is_row = await away(asked.size, partial(asked.predict_inputs, signature))
    outputs = await calling.infer(inputs)
    return await away(
        _size(outputs), partial(predictions_json if is_row else outputs_json, outputs)
    )


async def _classify(calling: Calling, asked: Asked) -> bytes:
    signature = await calling.signature()
    ports = class_outputs(signature)
    inputs, examples = await away(asked.size, partial(asked.example_inputs, signature))
    wanted = [port.name for port in ports if port is not None]
    outputs = await calling.infer(inputs, wanted)
    scores = outputs[ports.scores.name]
    check_scores(scores, examples)
    count = scores.shape[1]
    if ports.classes is not None:
        labels = class_rows(outputs[ports.classes.name], scores)
    elif ports.scores.has_labels:
        one = {name: first_row(tensor) for name, tensor in inputs.items()}
        known = await calling.labels(one, ports.scores.name, count)
        labels = [known + (b"",) * (count - len(known))] * examples
    else:
        labels = [(b"",) * count] * examples
    return await away(len(scores.raw), partial(classes_json, scores, labels))


async def _regress(calling: Calling, asked: Asked) -> bytes:
    signature = await calling.signature()
    port = regress_output(signature)
    inputs, examples = await away(asked.size, partial(asked.example_inputs, signature))
    values = (await calling.infer(inputs))[port.name]
    check_values(values, examples)
    return await away(len(values.raw), partial(values_json, values))


_TASKS = {Task.PREDICT: _predict, Task.CLASSIFY: _classify, Task.REGRESS: _regress}


def _size(outputs: Mapping[str, Tensor]) -> int:
    return sum(len(tensor.raw) for tensor in outputs.values())


def _described(ports: tuple[Port, ...]) -> dict[str, Any]:
    return {
        port.name: wire.tensor_info(
            port.name, f"DT_{kind_of(port.datatype).name.upper()}", port.shape
        )
        for port in ports
    }
