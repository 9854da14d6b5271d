"""A gRPC server of grpcio for tests: it answers as functions say, on ModelInfer and its stream."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

import grpc
from ports import free_ports
from tritonclient.grpc import service_pb2 as pb

from serve.core.calls import Verb
from serve.wire import kserve_grpc

Unary = Callable[[Any, grpc.ServicerContext], bytes]
Stream = Callable[[Iterator[Any], grpc.ServicerContext], Iterator[bytes]]


def reply(version: str = "3", identity: str = "", *, final: bool | None = None) -> Any:
    """An answer without tensors."""
    made = pb.ModelInferResponse(model_name="m", model_version=version, id=identity)
    if final is not None:
        made.parameters["triton_final_response"].bool_param = final
    return made


def streamed(answer: Any = None, error: str = "") -> bytes:
    """A message of the stream."""
    made = pb.ModelStreamInferResponse(error_message=error, infer_response=answer)
    serialized: bytes = made.SerializeToString()
    return serialized


class ScriptedGrpc(grpc.GenericRpcHandler):
    """The server, from `with` to its end. `metadata` is what each call or stream came with."""

    def __init__(
        self,
        unary: Unary | None = None,
        stream: Stream | None = None,
        *,
        tls: grpc.ServerCredentials | None = None,
    ) -> None:
        self._unary = unary
        self._stream = stream
        self.metadata: list[dict[str, Any]] = []
        self._tls = tls
        self.address = f"127.0.0.1:{free_ports(1)[0]}"
        self._server = grpc.server(ThreadPoolExecutor(100), handlers=[self])

    def __enter__(self) -> Self:
        if self._tls is None:
            self._server.add_insecure_port(self.address)
        else:
            self._server.add_secure_port(self.address, self._tls)
        self._server.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.stop(None).wait()

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        """Which function answers."""
        read = pb.ModelInferRequest.FromString
        self.metadata.append(dict(details.invocation_metadata))
        if details.method == kserve_grpc.method_of(Verb.INFER) and self._unary:
            return grpc.unary_unary_rpc_method_handler(self._unary, request_deserializer=read)
        if details.method == kserve_grpc.method_of(Verb.STREAM) and self._stream:
            return grpc.stream_stream_rpc_method_handler(self._stream, request_deserializer=read)
        return None
