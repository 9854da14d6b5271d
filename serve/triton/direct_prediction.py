"""One prediction, straight from one Triton: no gateway, no routes, physical names."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Protocol

import grpc
import grpc.aio
from tritonclient.grpc import service_pb2

from serve.core.errors import DeadlineExceeded, TritonFailed, Unavailable
from serve.core.replicas import Replica
from serve.tensors.codec import MalformedReply, grpc_request, read_grpc_reply
from serve.tensors.datatypes import Array
from serve.wire import kserve_grpc

_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),  # a connection of its own, and no waiting for an old one
    ("grpc.enable_retries", 0),
)
_NONE: Mapping[str, Any] = MappingProxyType({})


class Predict(Protocol):
    """How `predict` is called, for those that are given another one."""

    async def __call__(
        self,
        replica: Replica,
        name: str,
        version: int,
        inputs: Mapping[str, Array],
        *,
        timeout: float,  # noqa: ASYNC109 - it goes to gRPC
        datatypes: Mapping[str, str] = _NONE,
        parameters: Mapping[str, bool | int | str] = _NONE,
    ) -> Mapping[str, Array]: ...


async def predict(
    replica: Replica,
    name: str,
    version: int,
    inputs: Mapping[str, Array],
    *,
    timeout: float,  # noqa: ASYNC109 - it goes to gRPC
    datatypes: Mapping[str, str] = _NONE,
    parameters: Mapping[str, bool | int | str] = _NONE,
) -> Mapping[str, Array]:
    """The outputs of a version under its physical name; `timeout` in seconds.

    `parameters` are those of the request, such as `sequence_id`. `Unavailable`: the replica is not
    reached, or says that it cannot answer now. `DeadlineExceeded`: no answer in time.
    `TritonFailed`: it refuses, or answers in a way that cannot be read.
    """
    body = grpc_request(name, inputs, version=str(version), datatypes=datatypes)
    if parameters:  # protobuf messages merge when their bytes stand one behind the other
        body += _parameters(parameters).SerializeToString()
    async with grpc.aio.insecure_channel(replica.grpc_target, options=_OPTIONS) as channel:
        call = channel.unary_unary(kserve_grpc.SERVICE + "ModelInfer")
        try:
            answer: bytes = await call(body, timeout=timeout)
        except grpc.aio.AioRpcError as error:
            raise _translate(error, replica, timeout) from error
    try:
        return read_grpc_reply(answer).outputs
    except MalformedReply as error:
        raise TritonFailed(str(error)) from error


def _parameters(values: Mapping[str, bool | int | str]) -> Any:
    message = service_pb2.ModelInferRequest()
    for name, value in values.items():
        if isinstance(value, bool):
            message.parameters[name].bool_param = value
        elif isinstance(value, int):
            message.parameters[name].int64_param = value
        else:
            message.parameters[name].string_param = value
    return message


def _translate(
    error: grpc.aio.AioRpcError, replica: Replica, timeout: float
) -> TritonFailed | Unavailable | DeadlineExceeded:
    details = error.details() or error.code().name
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return DeadlineExceeded(f"replica {replica.name} gave no answer within {timeout:g} s")
    if error.code() is grpc.StatusCode.UNAVAILABLE:
        return Unavailable(f"the request to replica {replica.name} failed", why=details)
    return TritonFailed(details.partition("\n\nAt:\n")[0].strip())  # without Python's traceback
