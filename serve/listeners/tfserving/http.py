"""TensorFlow Serving's REST API on the data port, so that its clients work unchanged.

`router` stands in front of KServe v2 and takes what lies at and below `/v1/models`.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any

from fastapi import APIRouter, Request, Response
from starlette.requests import ClientDisconnect

from serve.core.calls import Call, Reply, Verb
from serve.core.errors import BodyTooLarge, NoRoom, ServegateError, TooSlow
from serve.listeners.http.asking import Asking
from serve.listeners.http.desk import Desk
from serve.listeners.tfserving import tasks
from serve.listeners.tfserving.body import body_of
from serve.listeners.tfserving.facade import TfServing
from serve.wire import tfserving as wire
from serve.wire.request_ids import TOLD
from serve.wire.tfserving import Question, Servable, Task

_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
_JSON = ((b"content-type", b"application/json"),)
_VERBS = {Task.STATUS: Verb.READY, Task.METADATA: Verb.CONFIG}


def router(desk: Desk, facade: TfServing) -> APIRouter:
    """The routes. `desk` counts the bodies that are held."""
    routes = APIRouter(redirect_slashes=False)
    rest = TfServingHttp(desk, facade)
    for path in ("/v1/models", "/v1/models/{rest:path}"):
        routes.add_route(path, rest.answer, methods=_METHODS, include_in_schema=False)
    return routes


class _Asking(Asking):
    """A request, and which version answered it."""

    decision = ""


class TfServingHttp:
    """Answers one request after the other."""

    def __init__(self, desk: Desk, facade: TfServing) -> None:
        self._desk = desk
        self._facade = facade

    def __repr__(self) -> str:
        return f"<TfServingHttp {self._facade!r}>"

    async def answer(self, request: Request) -> Response:
        """One request; errors have TensorFlow Serving's shape and words."""
        asking = _Asking(request.scope, self._desk.request_id(request.scope["headers"]))
        servable: Servable | None = None
        try:
            asked = wire.parse(request.method, request.scope["raw_path"])
            servable = asked.servable
            reply = Reply(200, await self._answer(request, asked, asking), _JSON)
        except ServegateError as error:
            reply = wire.error_reply(error, servable)
            if isinstance(error, BodyTooLarge | NoRoom | TooSlow):  # more of the body may come
                reply = replace(reply, headers=(*reply.headers, (b"connection", b"close")))
        except ClientDisconnect:
            return Response()  # which nobody reads
        response = Response(reply.body, reply.status)
        response.raw_headers.extend((*reply.headers, (TOLD, asking.request_id)))
        if asking.decision:
            decision = asking.decision.encode("latin-1", "replace")
            response.raw_headers.append((b"servegate-version", decision))
        return response

    async def _answer(self, request: Request, asked: Question, asking: _Asking) -> bytes:
        task, servable = asked
        servable.check()
        call = Call(
            "http",
            _VERBS.get(task, Verb.INFER),
            servable.model,
            servable.selector,
            self._facade.clock() + self._facade.limits.call,
            credential=asking.header(b"authorization"),
            origin=asking,
        )
        if task is Task.STATUS:
            return self._status(call, servable, asking)
        if task is Task.METADATA:
            return await self._metadata(call, servable, asking)
        self._facade.check(call)
        async with self._asked(request, task, call, asking) as asked_for:
            work = self._carry_out(task, call, asking, asked_for)
            return await _unless_left(request, work)

    def _status(self, call: Call, servable: Servable, asking: _Asking) -> bytes:
        body = wire.status_json(self._facade.statuses(call, servable))
        asking.answered = len(body)
        self._facade.answered(call)
        return body

    async def _metadata(self, call: Call, servable: Servable, asking: _Asking) -> bytes:
        async with self._facade.begin(call, asking.headers) as calling:
            asking.decision = calling.attempt.decision
            body = await tasks.metadata(calling, servable)
            asking.answered = len(body)
            calling.answered()
        return body

    async def _carry_out(
        self, task: Task, call: Call, asking: _Asking, asked: tasks.Asked
    ) -> bytes:
        async with self._facade.begin(call, asking.headers) as calling:
            asking.decision = calling.attempt.decision
            body = await tasks.carry_out(task, calling, asked)
            asking.answered, asking.upstream = len(body), calling.seconds
            calling.answered()
        return body

    @asynccontextmanager
    async def _asked(
        self, request: Request, task: Task, call: Call, asking: _Asking
    ) -> AsyncIterator[tasks.Asked]:
        """The JSON in the body, with room for what it takes; what is wrong with it is counted."""
        async with AsyncExitStack() as stack:
            try:
                body = await stack.enter_async_context(body_of(request, self._desk, asking))
                asked = await tasks.asked(body, task)
                stack.enter_context(self._facade.holding(asked.weight))
                asked.read_if_small()
            except ServegateError as error:
                self._facade.failed(call, error)
                raise
            yield asked


async def _unless_left(request: Request, work: Coroutine[Any, Any, bytes]) -> bytes:
    """What the work gives; it is broken off, and Triton hears of it, when the client leaves."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(request.receive())
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return await working
    finally:
        working.cancel()
        leaving.cancel()
