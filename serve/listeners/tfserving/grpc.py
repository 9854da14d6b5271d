"""TensorFlow Serving's gRPC API: Predict, GetModelMetadata and GetModelStatus.

`TfServingGrpc.services()` is for `KServeGrpc(services=…)`. The call to Triton is one over HTTP, the
same that the REST façade makes.
"""

import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from serve.core.calls import Account, Call, Headers, Reply, Verb
from serve.core.errors import BadRequest, ServegateError, Unparsable
from serve.listeners.grpc.services import Service, ServiceRequest, Unary
from serve.listeners.tfserving.facade import WEIGHT, Calling, TfServing, away
from serve.tensors.tfserving_proto import declared_size, fill, tensor_of
from serve.tensors.tfserving_tensors import Port, RawTensor, ServingSignature, kind_of
from serve.wire import tfserving_rest as wire
from serve.wire.status import grpc_error
from serve.wire.tfserving_messages import (
    GET_MODEL_METADATA,
    GET_MODEL_STATUS,
    PREDICT,
    SIGNATURE_DEF_MAP,
    messages,
)
from serve.wire.tfserving_rest import Servable, TritonRefused

_STATES = {"AVAILABLE": 30, "LOADING": 20, "END": 50}
_CODES = {"OK": 0, "UNAVAILABLE": 14}
_SIGNATURE_DEF = "signature_def"
_PRINTABLE = re.compile(rb"[\t\x20-\x7e]*\Z")

Handler = Callable[[ServiceRequest, Servable, Any], Coroutine[Any, Any, Reply]]


@dataclass(slots=True)
class _Origin:
    """Where a call came from, and what its answer weighs before it is sent."""

    asked: ServiceRequest
    answered: int = 0
    upstream: float = 0.0

    def account(self) -> Account:
        """See `Origin`."""
        known = self.asked.origin.account()
        return replace(known, answered=self.answered, upstream=self.upstream)

    def header(self, name: bytes) -> bytes:
        """See `CallOrigin`."""
        return self.asked.origin.header(name)


class TfServingGrpc:
    """The services' methods."""

    def __init__(self, facade: TfServing) -> None:
        self._facade = facade

    def __repr__(self) -> str:
        return f"<TfServingGrpc {self._facade!r}>"

    def services(self) -> dict[str, Service]:
        """The methods, for `KServeGrpc(services=…)`."""
        methods: dict[str, tuple[str, Handler]] = {
            PREDICT: ("PredictRequest", self._predict),
            GET_MODEL_METADATA: ("GetModelMetadataRequest", self._metadata),
            GET_MODEL_STATUS: ("GetModelStatusRequest", self._status),
        }
        return {path: Unary(partial(self._answer, *method)) for path, method in methods.items()}

    async def _answer(self, kind: str, handler: Handler, asked: ServiceRequest) -> Reply:
        """One call, with its errors in TensorFlow Serving's words."""
        servable: Servable | None = None
        try:
            size = len(asked.message)
            with self._facade.holding(WEIGHT * size):
                request = await away(size, partial(_parsed, kind, asked.message))
                servable = _servable(request)
                servable.check()
                return await handler(asked, servable, request)
        except ServegateError as error:
            said = wire.told(error, servable)
            ours = () if isinstance(error, TritonRefused) else grpc_error(error).headers
            return Reply(said.grpc, b"", ours, said.message)

    async def _predict(self, asked: ServiceRequest, servable: Servable, request: Any) -> Reply:
        origin = _Origin(asked)
        call = _call(asked, Verb.INFER, servable, origin)
        self._facade.check(call)
        async with AsyncExitStack() as stack:
            calling = await stack.enter_async_context(self._begin(call, asked))
            stack.enter_context(self._facade.holding(declared_size(list(request.inputs.values()))))
            name = request.model_spec.signature_name
            wire.check_signature(name, f'Serving signature key "{name}" not found.')
            signature, size = await calling.signature(), len(asked.message)
            inputs = await away(size, partial(self._inputs, request, signature))
            wanted = _filtered(request.output_filter, signature)
            outputs = await calling.infer(inputs, wanted)
            made = partial(_predicted, servable.model, calling.version, outputs)
            body = await away(sum(len(one.raw) for one in outputs.values()), made)
            origin.answered, origin.upstream = len(body), calling.seconds
            calling.answered()
        return Reply(0, body, ((b"servegate-version", calling.attempt.decision.encode()),))

    async def _metadata(self, asked: ServiceRequest, servable: Servable, request: Any) -> Reply:
        fields = request.metadata_field
        if not fields:
            raise BadRequest("GetModelMetadataRequest must specify at least one metadata_field")
        for field in fields:
            if field != _SIGNATURE_DEF:
                raise BadRequest(f"Metadata field {field} is not supported")
        origin = _Origin(asked)
        call = _call(asked, Verb.CONFIG, servable, origin)
        async with self._begin(call, asked) as calling:
            body = _described(servable.model, calling.version, await calling.signature())
            origin.answered = len(body)
            calling.answered()
        return Reply(0, body, ((b"servegate-version", calling.attempt.decision.encode()),))

    async def _status(self, asked: ServiceRequest, servable: Servable, request: Any) -> Reply:
        origin = _Origin(asked)
        call = _call(asked, Verb.READY, servable, origin)
        body = _statuses(self._facade.statuses(call, servable))
        origin.answered = len(body)
        self._facade.answered(call)
        return Reply(0, body)

    def _begin(self, call: Call, asked: ServiceRequest) -> AbstractAsyncContextManager[Calling]:
        return self._facade.begin(call, _passed_on(asked.metadata))

    def _inputs(self, request: Any, signature: ServingSignature) -> dict[str, RawTensor]:
        _check_names(set(request.inputs), signature)
        limit = self._facade.limits.inflated
        return {name: tensor_of(proto, name, limit) for name, proto in request.inputs.items()}


# --- requests -------------------------------------------------------------------------------------


def _parsed(kind: str, message: bytes) -> Any:
    try:
        return messages().read(kind, message)
    except ValueError as error:
        raise Unparsable(str(error)) from error


def _servable(request: Any) -> Servable:
    """Which model a request names."""
    if not request.HasField("model_spec"):
        raise BadRequest("Missing ModelSpec")
    spec = request.model_spec
    if not spec.name:
        raise BadRequest("ModelSpec has no name specified.")
    version = spec.version.value if spec.HasField("version") else None
    return Servable(spec.name, version, spec.version_label)


def _call(asked: ServiceRequest, verb: Verb, servable: Servable, origin: _Origin) -> Call:
    return replace(asked.call(verb, servable.model, servable.selector), origin=origin)


def _passed_on(metadata: Headers) -> Headers:
    """Metadata that can be an HTTP header."""
    return tuple(
        (name, value)
        for name, value in metadata
        if not name.endswith(b"-bin") and _PRINTABLE.match(value)
    )


def _check_names(sent: set[str], signature: ServingSignature) -> None:
    required = {port.name for port in signature.required}
    extra, missing = sent - {port.name for port in signature.inputs}, required - sent
    if extra or missing:
        raise BadRequest(
            f"input size does not match signature: {len(sent)}!={len(required)} "
            f"len({{{_names(sent)}}}) != len({{{_names(required)}}}). "
            f"Sent extra: {{{_names(extra)}}}. Missing but required: {{{_names(missing)}}}."
        )


def _filtered(wanted: Sequence[str], signature: ServingSignature) -> tuple[str, ...]:
    """The outputs that a request names; empty for all."""
    for number, name in enumerate(wanted):
        if signature.output(name) is None:
            known = _names({port.name for port in signature.outputs})
            raise BadRequest(
                f"output tensor alias not found in signature: {name} "
                f"Outputs expected to be in the set {{{known}}}."
            )
        if name in wanted[:number]:
            raise BadRequest(f"duplicate output tensor alias: {name}")
    return tuple(wanted)


def _names(names: set[str]) -> str:
    return ",".join(sorted(names))


# --- answers --------------------------------------------------------------------------------------


def _predicted(model: str, version: int, outputs: Mapping[str, RawTensor]) -> bytes:
    response = messages().make("PredictResponse")
    _write_spec(response, model, version, wire.DEFAULT_SIGNATURE)
    for name, tensor in outputs.items():
        fill(response.outputs[name], tensor)
    return _serialized(response)


def _described(model: str, version: int, signature: ServingSignature) -> bytes:
    known = messages()
    response, described = known.make("GetModelMetadataResponse"), known.make("SignatureDefMap")
    _write_spec(response, model, version, "")
    one = described.signature_def[wire.DEFAULT_SIGNATURE]
    one.method_name = wire.METHOD_NAME
    for ports, told in ((signature.inputs, one.inputs), (signature.outputs, one.outputs)):
        for port in ports:
            _write_port(told[port.name], port)
    packed = response.metadata[_SIGNATURE_DEF]
    packed.type_url, packed.value = SIGNATURE_DEF_MAP, _serialized(described)
    return _serialized(response)


def _statuses(statuses: list[dict[str, Any]]) -> bytes:
    response = messages().make("GetModelStatusResponse")
    for status in statuses:
        told = response.model_version_status.add(
            version=int(status["version"]), state=_STATES[status["state"]]
        )
        told.status.error_code = _CODES[status["status"]["error_code"]]
        told.status.error_message = status["status"]["error_message"]
    return _serialized(response)


def _write_spec(response: Any, model: str, version: int, signature: str) -> None:
    spec = response.model_spec
    spec.name, spec.version.value, spec.signature_name = model, version, signature


def _write_port(info: Any, port: Port) -> None:
    info.name, info.dtype = f"{port.name}:0", kind_of(port.datatype).number
    info.tensor_shape.SetInParent()
    for size in port.shape:
        info.tensor_shape.dim.add(size=size)


def _serialized(message: Any) -> bytes:
    data: bytes = message.SerializeToString()
    return data
