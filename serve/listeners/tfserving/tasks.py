"""What the REST façade does for each task, once the call is on its way: JSON in, JSON out.

Large documents are read and written in a thread, so that other calls go on meanwhile.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from serve.listeners.tfserving.facade import Calling, away
from serve.tensors.tfserving import Port, Tensor, kind_of
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
from serve.tensors.tfserving_json import document_of, predict_inputs, signature_name
from serve.wire import tfserving as wire
from serve.wire.tfserving import Servable, Task

Document = dict[str, Any]


async def document(body: bytes) -> Document:
    """The JSON object in a body, which names no signature that is not there."""
    found = await away(len(body), partial(document_of, body))
    wire.check_signature(signature_name(found))
    return found


async def carry_out(task: Task, calling: Calling, asked: Document, size: int) -> bytes:
    """The answer to a document of so many bytes."""
    return await _TASKS[task](calling, asked, size)


async def metadata(calling: Calling, servable: Servable) -> bytes:
    """What the version takes and gives, as TensorFlow Serving describes it."""
    signature = await calling.signature()
    return wire.metadata_json(
        servable, calling.version, _described(signature.inputs), _described(signature.outputs)
    )


async def _predict(calling: Calling, asked: Document, size: int) -> bytes:
    signature = await calling.signature()
    inputs, is_row = await away(size, partial(predict_inputs, asked, signature))
    outputs = await calling.infer(inputs)
    return await away(
        _size(outputs), partial(predictions_json if is_row else outputs_json, outputs)
    )


async def _classify(calling: Calling, asked: Document, size: int) -> bytes:
    signature, examples = await calling.signature(), examples_of(asked)
    ports = class_outputs(signature)
    inputs = await away(size, partial(example_inputs, examples, signature))
    wanted = [port.name for port in ports if port is not None]
    outputs = await calling.infer(inputs, wanted)
    scores = outputs[ports.scores.name]
    check_scores(scores, len(examples))
    count = scores.shape[1]
    if ports.classes is not None:
        labels = class_rows(outputs[ports.classes.name], scores)
    elif ports.scores.has_labels:
        one = {name: first_row(tensor) for name, tensor in inputs.items()}
        known = await calling.labels(one, ports.scores.name, count)
        labels = [known + (b"",) * (count - len(known))] * len(examples)
    else:
        labels = [(b"",) * count] * len(examples)
    return await away(len(scores.raw), partial(classes_json, scores, labels))


async def _regress(calling: Calling, asked: Document, size: int) -> bytes:
    signature, examples = await calling.signature(), examples_of(asked)
    port = regress_output(signature)
    inputs = await away(size, partial(example_inputs, examples, signature))
    values = (await calling.infer(inputs))[port.name]
    check_values(values, len(examples))
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
