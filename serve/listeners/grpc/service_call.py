"""Calls of further services: messages put together, and a task for each call (`services`)."""

import asyncio
import contextlib
import logging
from abc import abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial
from typing import Any

from serve.core.errors import BodyTooLarge, ServegateError
from serve.listeners.grpc.call import ClientCall
from serve.listeners.grpc.context import ClientLink, GrpcContext
from serve.listeners.grpc.services import (
    LARGEST_IN_STREAM,
    Service,
    ServiceRequest,
    StreamHandler,
    Unary,
    UnaryHandler,
)
from serve.wire.grpc_heads import OK_HEAD, OK_TRAILERS
from serve.wire.grpc_messages import MessageCutter, cut_off, inflate, message, read_prefix, second
from serve.wire.grpc_requests import RequestHead, metadata
from serve.wire.http2_stream import Piece

_log = logging.getLogger("servegate.grpc")


def serve(
    link: ClientLink, number: int, context: GrpcContext, head: RequestHead, service: Service
) -> ClientCall:
    """A call of the service, as a stream of the client's connection."""
    if isinstance(service, Unary):
        return UnaryService(link, number, context, head, service.answer)
    return StreamingService(link, number, context, head, service.answer)


class ServiceCall(ClientCall):
    """What both kinds have in common: whole messages in, and a task that ends with the call."""

    __slots__ = ("_flag", "_held", "_messages", "_parts", "_task", "_was_run")

    def __init__(
        self, link: ClientLink, number: int, context: GrpcContext, head: RequestHead
    ) -> None:
        super().__init__(link, number, context, head)
        self._messages = MessageCutter()
        self._parts: list[Piece] = []  # of the present message
        self._flag = 0
        self._held = 0  # bytes that the board counts for this call
        self._task: asyncio.Task[None] | None = None
        self._was_run = False

    @property
    def has_begun(self) -> bool:
        """See `ClientCall`."""
        return self._was_run

    @abstractmethod
    def on_message(self, body: bytes, size: int) -> None:
        """A whole message, which took `size` bytes on the wire."""

    def on_asked(self) -> None:
        """The client has sent all that it will."""

    @property
    def largest(self) -> int:
        """Bytes that a message may have."""
        return self.context.limits.body

    def on_data(self, piece: Piece, end: int) -> None:
        """Pieces of messages, cut anywhere."""
        self.received += len(piece)
        if self.is_ended:
            return
        try:
            for prefix, part, is_last in self._messages.cut(piece):
                self._take(prefix, part, is_last)
            if end and not self._messages.is_between:
                raise cut_off(self.received)
            if end:
                self.on_asked()
        except ServegateError as error:
            self.fail(error)

    def _take(self, prefix: bytes, part: Piece, is_last: bool) -> None:
        if prefix:
            self._flag, length = read_prefix(prefix)
            if length > self.largest:
                raise BodyTooLarge(self.largest)
            self.check_room()
        self._parts.append(part)
        self.hold(len(part))
        if not is_last:
            return
        body, self._parts = b"".join(self._parts), []
        size = len(body)
        if self._flag:
            body = inflate(
                body, self.head.encoding, min(self.context.limits.inflated, self.largest)
            )
        self.on_message(body, size)

    def hold(self, count: int) -> None:
        """So many more bytes are held for this call."""
        self._held += count
        self.context.board.held += count

    def asked(self, body: bytes) -> ServiceRequest:
        """The call as its handler sees it."""
        head = self.head
        return ServiceRequest(
            method=head.method,
            message=body,
            metadata=metadata(head, self.context.heads.fields),
            credential=head.authorization,
            deadline=self.deadline,
            request_id=self.request_id,
            origin=self,
        )

    def run(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start the task, which sends the answer."""
        self._was_run = True
        self._task = asyncio.get_running_loop().create_task(self._run(work))

    async def _run(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await work()
        except ServegateError as error:
            self.fail(error)
        except Exception:
            _log.exception("%s failed", self.head.method)
            self.fail(ServegateError("the gateway failed", why="see its log"))
        finally:
            self._task = None
            self._let_go()
            self.context.board.flush()

    def give_up(self, error: ServegateError | None) -> None:
        """See `ClientCall`."""
        task, self._task = self._task, None
        if task is not None and task is not asyncio.current_task():
            task.cancel()
        self._let_go()

    def _let_go(self) -> None:
        self._parts.clear()
        self.hold(-self._held)


class UnaryService(ServiceCall):
    """One message and one answer."""

    __slots__ = ("_handler", "_message")

    def __init__(
        self,
        link: ClientLink,
        number: int,
        context: GrpcContext,
        head: RequestHead,
        handler: UnaryHandler,
    ) -> None:
        super().__init__(link, number, context, head)
        self._handler = handler
        self._message: bytes | None = None

    def on_data(self, piece: Piece, end: int) -> None:
        """The message is held as a whole, so its credit goes back as it comes."""
        super().on_data(piece, end)
        self.consume(len(piece))

    def on_message(self, body: bytes, size: int) -> None:
        """The only one."""
        if self._message is not None:
            raise second()
        self._message = body

    def on_asked(self) -> None:
        """Now it can be answered."""
        body, self._message = self._message, None
        if body is None:
            raise cut_off(0)
        self.run(partial(self._answer, body))

    async def _answer(self, body: bytes) -> None:
        reply = await self._handler(self.asked(body))
        if not self.is_ended:
            self.answer_reply(reply)


class StreamingService(ServiceCall):
    """Any number of messages and answers. The handler starts with the first byte, or the end."""

    __slots__ = ("_drained", "_handler", "_inbox")

    def __init__(
        self,
        link: ClientLink,
        number: int,
        context: GrpcContext,
        head: RequestHead,
        handler: StreamHandler,
    ) -> None:
        super().__init__(link, number, context, head)
        self.deadline = context.clock() + head.timeout  # streams may live long
        self._drained = asyncio.Event()
        self._inbox = Inbox(self._took)
        self._handler: StreamHandler | None = handler

    @property
    def largest(self) -> int:
        """See `ServiceCall`: less than the window, which is open while one waits."""
        return LARGEST_IN_STREAM

    @property
    def owes(self) -> bool:
        """Between messages a client may take its time."""
        return not self.is_remote_closed and not self._messages.is_between

    def on_data(self, piece: Piece, end: int) -> None:
        """See `ServiceCall`."""
        super().on_data(piece, end)
        handler, self._handler = self._handler, None
        if handler is not None and not self.is_ended:
            self.run(partial(self._answer, handler))

    def on_message(self, body: bytes, size: int) -> None:
        """The next one; its credit goes back when the handler takes it."""
        self._inbox.put(body, size)

    def on_asked(self) -> None:
        """There are no more."""
        self._inbox.end()

    def on_drained(self) -> None:
        """The client has taken what was said."""
        self._drained.set()

    def _took(self, size: int) -> None:
        if not self.is_ended:
            self.hold(-size)
            self.consume(size)
            self.context.board.flush()

    async def _answer(self, handler: StreamHandler) -> None:
        async with contextlib.aclosing(handler(self.asked(b""), self._inbox)) as said:
            async for body in said:
                while self.queue:
                    self._drained.clear()
                    await self._drained.wait()
                if not self.is_head_sent:
                    self.is_head_sent = True
                    self.link.send_head(self, OK_HEAD)
                self.link.send_data(self, message(body))
                self.context.board.flush()
        if not self.is_ended:
            self.end_with(OK_TRAILERS if self.is_head_sent else OK_HEAD + OK_TRAILERS)


class Inbox(AsyncIterator[bytes]):
    """Messages that wait for a handler; `took` is told the size of each that it takes."""

    def __init__(self, took: Callable[[int], None]) -> None:
        self._waiting: deque[tuple[bytes, int]] = deque()
        self._is_over = False
        self._changed = asyncio.Event()
        self._took = took

    def __repr__(self) -> str:
        return f"<Inbox {len(self._waiting)} waiting>"

    def put(self, body: bytes, size: int) -> None:
        """One more message."""
        self._waiting.append((body, size))
        self._changed.set()

    def end(self) -> None:
        """No more will come."""
        self._is_over = True
        self._changed.set()

    async def __anext__(self) -> bytes:
        """The next message, when there is one."""
        while not self._waiting:
            if self._is_over:
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()
        body, size = self._waiting.popleft()
        self._took(size)
        return body
