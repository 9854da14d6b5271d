"""KServe v2 over gRPC: a generic handler on raw messages that turns requests into calls."""

import asyncio
from collections.abc import Awaitable, Callable

import grpc
import grpc.aio

from serve.core.calls import Call, Headers, Reply, Verb
from serve.core.errors import BodyTooLarge, ServegateError
from serve.proxy.gateway import Answer, Gateway
from serve.wire import kserve_grpc, protobuf
from serve.wire.status import OK, grpc_error, not_ready

_CODES = {code.value[0]: code for code in grpc.StatusCode}
OPTIONS = (
    ("grpc.so_reuseport", 1),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    # Clients may ping as often as they like: a gateway is what they keep connections to.
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 1000),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.keepalive_permit_without_calls", 1),
)

Behaviour = Callable[[bytes, grpc.aio.ServicerContext], Awaitable[bytes]]


class KServeGrpc(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc has no types
    """The data plane's gRPC listener. `timeout` is in seconds, `max_body` in bytes."""

    def __init__(
        self,
        gateway: Gateway,
        *,
        max_body: int,
        timeout: float,
        clock: Callable[[], float],
        is_draining: Callable[[], bool],
    ) -> None:
        self._gateway = gateway
        self._max_body = max_body
        self._timeout = timeout
        self._clock = clock
        self._is_draining = is_draining
        self._running: set[asyncio.Future[Answer]] = set()

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        """The behaviour behind a method path."""
        method: str = details.method
        if method == kserve_grpc.SERVER_LIVE:
            return grpc.unary_unary_rpc_method_handler(self._live)
        if method == kserve_grpc.SERVER_READY:
            return grpc.unary_unary_rpc_method_handler(self._ready)
        try:
            behaviour = self._verb(kserve_grpc.parse(method))
        except ServegateError as error:
            behaviour = _refuse(error)
        return grpc.unary_unary_rpc_method_handler(behaviour)

    async def _live(self, message: bytes, context: grpc.aio.ServicerContext) -> bytes:
        return protobuf.boolean(1, True)

    async def _ready(self, message: bytes, context: grpc.aio.ServicerContext) -> bytes:
        return protobuf.boolean(1, self._gateway.is_ready() and not self._is_draining())

    def _verb(self, verb: Verb) -> Behaviour:
        async def behave(message: bytes, context: grpc.aio.ServicerContext) -> bytes:
            try:
                answer = await self._finish(self._call(verb, message, context))
            except ServegateError as error:
                told = not_ready("grpc", error) if verb is Verb.READY else None
                return await _write(told or grpc_error(error), context)
            return await _write(answer.reply, context, answer.decision)

        return behave

    async def _finish(self, call: Call) -> Answer:
        """Handle the call to its end, also when the client leaves before.

        Triton before 24.12 may crash when calls in flight are cancelled (server issues 7368, 8034),
        so a client that has gone does not cancel anything: its answer is dropped.
        """
        task = asyncio.ensure_future(self._gateway.handle(call))
        self._running.add(task)
        task.add_done_callback(self._done)
        return await asyncio.shield(task)

    def _done(self, task: "asyncio.Future[Answer]") -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # looked at, so that nobody complains that nobody did

    def _call(self, verb: Verb, message: bytes, context: grpc.aio.ServicerContext) -> Call:
        if len(message) > self._max_body:
            raise BodyTooLarge(self._max_body)
        remaining = context.time_remaining()
        timeout = self._timeout if remaining is None else min(remaining, self._timeout)
        seen = protobuf.peek(message, infer=verb is Verb.INFER)
        stateful = bool(seen.sequence) and self._gateway.serves_sequences(seen.model)
        return Call(
            protocol="grpc",
            verb=verb,
            model=seen.model,
            selector=seen.version,
            body=message,
            headers=_metadata(context),
            deadline=self._clock() + timeout,
            sequence=seen.sequence if stateful else "",
        )


async def _write(reply: Reply, context: grpc.aio.ServicerContext, decision: str = "") -> bytes:
    trailers = [(key.decode(), _value(key, value)) for key, value in reply.headers]
    if decision:
        trailers.append(("servegate-version", decision))
    context.set_trailing_metadata(tuple(trailers))
    if reply.status != OK:
        await context.abort(_CODES[reply.status], reply.message)
    return reply.body


def _refuse(error: ServegateError) -> Behaviour:
    async def behave(message: bytes, context: grpc.aio.ServicerContext) -> bytes:
        return await _write(grpc_error(error), context)

    return behave


def _metadata(context: grpc.aio.ServicerContext) -> Headers:
    return kserve_grpc.end_to_end(
        tuple(
            (key.encode(), value if isinstance(value, bytes) else value.encode("latin-1"))
            for key, value in context.invocation_metadata() or ()
        )
    )


def _value(key: bytes, value: bytes) -> str | bytes:
    return value if key.endswith(b"-bin") else value.decode("latin-1")
