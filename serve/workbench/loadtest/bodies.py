"""Tensors → the request body of each protocol, as the plan of a run carries it.

| protocol      | body                                                 | path                      |
|---------------|------------------------------------------------------|---------------------------|
| `http-json`   | KServe v2, elements written out                      | `/v2/models/M[…]/infer`   |
| `http-binary` | KServe v2, a head in JSON, the tensors behind it     | the same                  |
| `grpc`        | `ModelInferRequest` with raw contents                | `…/ModelInfer`            |
| `grpc-stream` | the same                                             | `…/ModelStreamInfer`      |
| `tfserving`   | `{"instances": [row, …]}`; a row is a value, or with | `/v1/models/M[…]:predict` |
|               | several inputs an object of them                     |                           |
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np

from serve.core.calls import Verb
from serve.core.errors import Invalid
from serve.tensors import codec
from serve.tensors.datatypes import BF16, BYTES, Array, datatype_of, to_raw
from serve.wire import kserve_grpc
from serve.workbench.loadtest.plan import LaneProtocol, Payload
from serve.workbench.loadtest.sequences import MARKER_ID, sequence_marker

Headers = tuple[tuple[str, str], ...]
_MEDIA: Headers = (("Content-Type", "application/json"),)
_NOT_IN_JSON = (BF16, "FP16")  # Triton refuses them there


class _Asked(NamedTuple):
    """What a request says, whatever its protocol. `parameters` are numbers and truth values."""

    model: str
    version: str
    tensors: Mapping[str, Array]
    datatypes: Mapping[str, str]
    outputs: Sequence[str]
    parameters: Mapping[str, int]


def path_of(protocol: LaneProtocol, model: str, version: str) -> str:
    """The path of the URL or of the method. `version`: empty, a number, or a label."""
    if protocol is LaneProtocol.GRPC:
        return kserve_grpc.method_of(Verb.INFER)
    if protocol is LaneProtocol.GRPC_STREAM:
        return kserve_grpc.method_of(Verb.STREAM)
    name, chosen = quote(model, safe=""), quote(version, safe="")
    if protocol is LaneProtocol.TFSERVING:
        kind = "versions" if version.isdecimal() else "labels"
        return f"/v1/models/{name}{f'/{kind}/{chosen}' if version else ''}:predict"
    return f"/v2/models/{name}{f'/versions/{chosen}' if version else ''}/infer"


def payload_of(
    protocol: LaneProtocol,
    model: str,
    version: str,
    tensors: Mapping[str, Array],
    datatypes: Mapping[str, str],
    *,
    outputs: Sequence[str] = (),
    expected: tuple[int, ...] | None = None,
    output: str = "",
    sequences: bool = False,
    rows: int = 0,
) -> Payload:
    """One request for these tensors; `Invalid` where the protocol cannot say them.

    A tensor that `datatypes` does not name has the datatype of its array. `outputs`: the server is
    asked for these only; TF-Serving has no words for that and answers with all. `rows`: of the
    batch; 0 means as many as `expected` has, else as the tensors' first dimensions say.
    `expected`, `output`: see `Payload`. With `sequences` the bodies hold `sequence_marker`.
    """
    known = {name: datatypes.get(name) or datatype_of(x, name) for name, x in tensors.items()}
    encode = _ENCODERS[protocol]

    def written(**parameters: int) -> tuple[bytes, Headers]:
        return encode(_Asked(model, version, tensors, known, tuple(outputs), parameters))

    rows = rows or (len(expected) if expected else _rows(tensors))
    if not sequences:
        body, headers = written()
        return Payload(body, headers, rows, expected, output)
    sequence_marker(protocol)  # or `Invalid`
    (body, headers), (first, _), (last, _), (only, _) = (
        written(sequence_id=MARKER_ID, sequence_start=start, sequence_end=end)
        for start, end in ((False, False), (True, False), (False, True), (True, True))
    )
    return Payload(body, headers, rows, expected, output, first=first, last=last, only=only)


def _rows(tensors: Mapping[str, Array]) -> int:
    """The first dimension, where all tensors have the same; else 1."""
    firsts = {x.shape[0] if x.ndim else 1 for x in tensors.values()}
    return max(1, *firsts) if len(firsts) == 1 else 1


# --- KServe v2 ------------------------------------------------------------------------------------


def _grpc(asked: _Asked) -> tuple[bytes, Headers]:
    from tritonclient.grpc import service_pb2

    message = service_pb2.ModelInferRequest.FromString(
        codec.grpc_request(
            asked.model, asked.tensors, version=asked.version, datatypes=asked.datatypes
        )
    )
    for name in asked.outputs:
        message.outputs.add(name=name)
    for name, value in asked.parameters.items():
        if isinstance(value, bool):
            message.parameters[name].bool_param = value
        else:
            message.parameters[name].int64_param = value
    return message.SerializeToString(deterministic=True), ()


def _http_binary(asked: _Asked) -> tuple[bytes, Headers]:
    request = codec.http_request(asked.tensors, asked.datatypes)
    plain, tensors = request.body[: request.head_length], request.body[request.head_length :]
    document = json.loads(plain)
    # Triton takes `binary_data_output` for the outputs that nobody names, and only for those.
    outputs = [{"name": name, "parameters": {"binary_data": True}} for name in asked.outputs]
    head = _head(document["inputs"], outputs, document["parameters"], asked)
    made = codec.HttpInferRequest(head + tensors, len(head))
    return made.body, tuple(made.headers.items())


def _http_json(asked: _Asked) -> tuple[bytes, Headers]:
    inputs = [
        {
            "name": name,
            "shape": list(array.shape),
            "datatype": asked.datatypes[name],
            "data": _texts(array, name) if _is_text(name, asked) else _numbers(array, name, asked),
        }
        for name, array in asked.tensors.items()
    ]
    return _head(inputs, [{"name": name} for name in asked.outputs], {}, asked), _MEDIA


def _head(
    inputs: list[Any], outputs: list[Any], parameters: Mapping[str, Any], asked: _Asked
) -> bytes:
    """The JSON, parameters first; as long for every truth value, since `true` is a letter short."""
    document: dict[str, Any] = {}
    if parameters or asked.parameters:
        document["parameters"] = {**asked.parameters, **parameters}
    document["inputs"] = inputs
    if outputs:
        document["outputs"] = outputs
    return _json(document) + b" " * sum(value is True for value in asked.parameters.values())


def _texts(array: Array, name: str) -> list[str]:
    try:
        return [
            one.decode() if isinstance(one, bytes) else str(one) for one in array.ravel().tolist()
        ]
    except UnicodeDecodeError as error:
        raise _not_in_json(name, "it contains bytes that are not UTF-8") from error


def _numbers(array: Array, name: str, asked: _Asked) -> list[Any]:
    datatype = asked.datatypes[name]
    if datatype in _NOT_IN_JSON:
        raise _not_in_json(name, f"Triton does not accept {datatype} as JSON")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise _not_in_json(name, "it contains values that are not finite")
    elements: list[Any] = array.ravel().tolist()
    return elements


def _not_in_json(name: str, why: str) -> Invalid:
    return Invalid(
        f"tensor '{name}' cannot be written as JSON",
        why=why,
        try_this="use the protocol http-binary or grpc",
    )


# --- TensorFlow Serving ---------------------------------------------------------------------------


def _tfserving(asked: _Asked) -> tuple[bytes, Headers]:
    firsts = {array.shape[:1] for array in asked.tensors.values()}
    if len(firsts) != 1 or firsts <= {(), (0,)}:
        raise Invalid(
            "the tensors cannot be written as rows",
            why="in TensorFlow Serving's row format, all inputs need the same first "
            "dimension, above 0",
            try_this="use the protocol http-binary or grpc",
        )
    columns = {
        name: _nested(_shown(array)) if _is_text(name, asked) else array.tolist()
        for name, array in asked.tensors.items()
    }
    names = tuple(columns)
    cells = zip(*columns.values(), strict=True)
    rows = (
        list(columns[names[0]])
        if len(names) == 1
        else [dict(zip(names, row, strict=True)) for row in cells]
    )
    return _json({"instances": rows}), _MEDIA


def _shown(array: Array) -> Array:
    """Texts as they are, other bytes as `{"b64": …}`."""
    shown = np.empty(array.shape, dtype=object)
    for place, element in np.ndenumerate(array):
        shown[place] = _text_or_base64(element)
    return shown


def _nested(array: Array) -> list[Any]:
    nested: list[Any] = array.tolist()
    return nested


def _text_or_base64(element: bytes | str) -> Any:
    if isinstance(element, str):
        return element
    try:
        return element.decode()
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(element).decode()}


def _is_text(name: str, asked: _Asked) -> bool:
    """Whether the tensor holds texts; `Invalid` where its array is of another type than it says."""
    to_raw(asked.tensors[name], asked.datatypes[name], name)
    return asked.datatypes[name] == BYTES


def _json(document: dict[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


_ENCODERS: Mapping[LaneProtocol, Callable[[_Asked], tuple[bytes, Headers]]] = MappingProxyType(
    {
        LaneProtocol.HTTP_JSON: _http_json,
        LaneProtocol.HTTP_BINARY: _http_binary,
        LaneProtocol.GRPC: _grpc,
        LaneProtocol.GRPC_STREAM: _grpc,
        LaneProtocol.TFSERVING: _tfserving,
    }
)
