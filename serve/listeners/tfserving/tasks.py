"""What the REST façade does for each task, once the call is on its way: JSON in, JSON out.

Large documents are weighed, read and written by a child process, so that other calls go on
meanwhile.
"""

from collections.abc import Callable, Mapping
from typing import Any

from serve.listeners.tfserving.facade import Calling
from serve.processes.compute import ComputeProcess, Pieces
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
    first_row,
    large_examples,
    read_examples,
    regress_output,
)
from serve.tensors.tfserving_infer import read_outputs, written
from serve.tensors.tfserving_json import (
    PredictBody,
    document_of,
    large_inputs,
    predict_inputs,
    signature_name,
)
from serve.tensors.tfserving_numbers import Weighed, weigh
from serve.tensors.tfserving_tensors import LARGE, Port, RawTensor, ServingSignature, kind_of
from serve.wire import tfserving_rest as wire
from serve.wire.tfserving_rest import Servable, TfServingTask


class JsonRequest:
    """The JSON of a request. `weight` is what reading it may take, in bytes of memory."""

    def __init__(self, body: bytes | Pieces, weighed: Weighed) -> None:
        self._body = body
        self._weighed = weighed
        self._document: dict[str, Any] | None = None
        self.weight = weighed.weight

    def __repr__(self) -> str:
        return f"<JsonRequest weight={self.weight}>"

    def read_if_small(self) -> None:
        """Find out at once what is wrong with a small document."""
        if isinstance(self._body, bytes) and not self._weighed.is_large:
            self._document = document_of(self._body)
            wire.check_signature(signature_name(self._document))

    async def predict_inputs(
        self, compute: ComputeProcess, signature: ServingSignature
    ) -> PredictBody:
        """The tensors of a predict request."""
        if self._document is not None:
            return predict_inputs(self._document, signature)
        return await compute.run(large_inputs, self._body, self._weighed, signature)

    async def example_inputs(
        self, compute: ComputeProcess, signature: ServingSignature
    ) -> tuple[dict[str, RawTensor], int]:
        """The tensors of a classify or regress request, and of how many examples."""
        if self._document is not None:
            return read_examples(self._document, signature)
        return await compute.run(large_examples, self._body, signature)


async def asked(compute: ComputeProcess, body: Pieces, task: TfServingTask) -> JsonRequest:
    """What a body asks for."""
    is_predict = task is TfServingTask.PREDICT
    if sum(map(len, body)) > LARGE:
        return JsonRequest(body, await compute.run(weigh, body, is_predict))
    whole = b"".join(body)
    return JsonRequest(whole, weigh(whole, is_predict))


async def carry_out(task: TfServingTask, calling: Calling, asked: JsonRequest) -> bytes:
    """The answer."""
    return await _TASKS[task](calling, asked)


async def metadata(calling: Calling, servable: Servable) -> bytes:
    """What the version takes and gives, as TensorFlow Serving describes it."""
    signature = await calling.signature()
    return wire.metadata_json(
        servable, calling.version, _described(signature.inputs), _described(signature.outputs)
    )


async def _predict(calling: Calling, asked: JsonRequest) -> bytes:
    signature = await calling.signature()
    inputs, is_row = await asked.predict_inputs(calling.compute, signature)
    answer, head = await calling.execute(inputs)
    write = predictions_json if is_row else outputs_json
    if len(answer) <= LARGE:
        return write(read_outputs(answer, head))
    return await calling.compute.run(written, write, answer, head)


async def _classify(calling: Calling, asked: JsonRequest) -> bytes:
    signature = await calling.signature()
    ports = class_outputs(signature)
    inputs, examples = await asked.example_inputs(calling.compute, signature)
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
    return await _written(calling, outputs, classes_json, scores, labels)


async def _regress(calling: Calling, asked: JsonRequest) -> bytes:
    signature = await calling.signature()
    port = regress_output(signature)
    inputs, examples = await asked.example_inputs(calling.compute, signature)
    outputs = await calling.infer(inputs)
    values = outputs[port.name]
    check_values(values, examples)
    return await _written(calling, outputs, values_json, values)


_TASKS = {
    TfServingTask.PREDICT: _predict,
    TfServingTask.CLASSIFY: _classify,
    TfServingTask.REGRESS: _regress,
}


async def _written(
    calling: Calling, outputs: Mapping[str, RawTensor], write: Callable[..., bytes], *arguments: Any
) -> bytes:
    """The answer, written by the child process when the outputs are large."""
    if sum(len(tensor.raw) for tensor in outputs.values()) <= LARGE:
        return write(*arguments)
    return await calling.compute.run(write, *arguments)


def _described(ports: tuple[Port, ...]) -> dict[str, Any]:
    return {
        port.name: wire.tensor_info(
            port.name, f"DT_{kind_of(port.datatype).name.upper()}", port.shape
        )
        for port in ports
    }
