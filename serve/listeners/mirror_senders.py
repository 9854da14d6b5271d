"""How the copy of a mirrored call is sent, over HTTP or gRPC as the call itself, and compared."""

from collections.abc import Callable, Mapping
from typing import Any

from serve.core.calls import Reply, Verb
from serve.core.replicas import Replica
from serve.processes.compute import ComputeProcess
from serve.proxy.mirrors import MOST_RESPONSE, Compare, MirroredCall, Send
from serve.triton.grpc_pool import GrpcPool
from serve.triton.grpc_question import send
from serve.triton.http_pool import Pool, request_line
from serve.wire import protobuf
from serve.wire.kserve_http import upstream_path


def senders(
    http: Pool, grpc: GrpcPool, *, clock: Callable[[], float], limit: int = MOST_RESPONSE
) -> Mapping[str, Send]:
    """By protocol; the connections are of mirrored calls only. `limit`: bytes of a response.

    `MirroredCall.head` holds header lines and the empty line behind them, or a block of header
    fields that begins with `:path`; the pieces are the body, or one message without its prefix.
    """

    async def over_http(call: MirroredCall, replica: Replica, until: float) -> Reply:
        target = call.target
        path = upstream_path(Verb.INFER, target.physical_name, target.physical_version)
        head = request_line("POST", replica, path) + call.head
        return await http.fetch(replica, head, until, body=call.pieces, most=limit)

    async def over_grpc(call: MirroredCall, replica: Replica, until: float) -> Reply:
        target = call.target
        names = protobuf.field(1, target.physical_name.encode())
        names += protobuf.field(2, str(target.physical_version).encode())
        message, seconds = b"".join((*call.pieces, names)), until - clock()  # the last names count
        return await send(grpc, replica, call.head, message, seconds=seconds, limit=limit)

    return {"http": over_http, "grpc": over_grpc}


def comparison(compute: ComputeProcess) -> Compare:
    """Compares in a child process: decoding responses would keep the calls of others waiting."""

    async def compare(call: MirroredCall, reply: Reply) -> Mapping[str, tuple[int, int]]:
        assert call.choice.mirror is not None and call.response is not None
        how = call.choice.mirror.compared
        return await compute.run(
            _compare,
            call.protocol,
            (call.response.body, call.response.headers),
            (reply.body, reply.headers),
            dict(how.declared),
            how.labelled,
            how.is_batched,
        )

    return compare


def _compare(*arguments: Any) -> Mapping[str, tuple[int, int]]:
    """In the child process, which imports NumPy; a worker without a mirror never does."""
    from serve.tensors.mirrored import compare_responses

    return compare_responses(*arguments)
