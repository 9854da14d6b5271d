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
from serve.listeners.http.context import HttpContext
from serve.listeners.http.request import HttpRequest
from serve.listeners.tfserving import tasks
from serve.listeners.tfserving.body import body_of
from serve.listeners.tfserving.facade import TfServing
from serve.wire import tfserving_rest as wire
from serve.wire.request_ids import TOLD
from serve.wire.tfserving_rest import Servable, TfServingQuestion, TfServingTask

_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
_JSON = ((b"content-type", b"application/json"),)
_VERBS = {TfServingTask.STATUS: Verb.READY, TfServingTask.METADATA: Verb.CONFIG}


def router(context: HttpContext, facade: TfServing) -> APIRouter:
    """The routes. `context` counts the bodies that are held."""
    routes = APIRouter(redirect_slashes=False)
    rest = TfServingHttp(context, facade)
    for path in ("/v1/models", "/v1/models/{rest:path}"):
        routes.add_route(path, rest.answer, methods=_METHODS, include_in_schema=False)
    return routes


class _TfServingRequest(HttpRequest):
    """A request, and which version answered it."""

    decision = ""


class TfServingHttp:
    """Answers one request after the other."""

    def __init__(self, context: HttpContext, facade: TfServing) -> None:
        self._context = context
        self._facade = facade

    def __repr__(self) -> str:
        return f"<TfServingHttp {self._facade!r}>"

    async def answer(self, request: Request) -> Response:
        """One request; errors have TensorFlow Serving's shape and words."""
        origin = _TfServingRequest(
            request.scope, self._context.request_id(request.scope["headers"])
        )
        servable: Servable | None = None
        try:
            asked = wire.parse(request.method, request.scope["raw_path"])
            servable = asked.servable
            reply = Reply(200, await self._answer(request, asked, origin), _JSON)
        except ServegateError as error:
            reply = wire.error_reply(error, servable)
            if isinstance(error, BodyTooLarge | NoRoom | TooSlow):  # more of the body may come
                reply = replace(reply, headers=(*reply.headers, (b"connection", b"close")))
        except ClientDisconnect:
            return Response()  # which nobody reads
        response = Response(reply.body, reply.status)
        response.raw_headers.extend((*reply.headers, (TOLD, origin.request_id)))
        if origin.decision:
            decision = origin.decision.encode("latin-1", "replace")
            response.raw_headers.append((b"servegate-version", decision))
        return response

    async def _answer(
        self, request: Request, asked: TfServingQuestion, origin: _TfServingRequest
    ) -> bytes:
        task, servable = asked
        servable.check()
        call = Call(
            "http",
            _VERBS.get(task, Verb.INFER),
            servable.model,
            servable.selector,
            self._facade.clock() + self._facade.limits.call,
            credential=origin.header(b"authorization"),
            origin=origin,
        )
        if task is TfServingTask.STATUS:
            return self._status(call, servable, origin)
        if task is TfServingTask.METADATA:
            return await self._metadata(call, servable, origin)
        self._facade.check(call)
        async with self._asked(request, task, call, origin) as asked_for:
            work = self._carry_out(task, call, origin, asked_for)
            return await _unless_left(request, work)

    def _status(self, call: Call, servable: Servable, origin: _TfServingRequest) -> bytes:
        body = wire.status_json(self._facade.statuses(call, servable))
        origin.answered = len(body)
        self._facade.answered(call)
        return body

    async def _metadata(self, call: Call, servable: Servable, origin: _TfServingRequest) -> bytes:
        async with self._facade.begin(call, origin.headers) as calling:
            origin.decision = calling.attempt.decision
            body = await tasks.metadata(calling, servable)
            origin.answered = len(body)
            calling.answered()
        return body

    async def _carry_out(
        self, task: TfServingTask, call: Call, origin: _TfServingRequest, asked: tasks.JsonRequest
    ) -> bytes:
        async with self._facade.begin(call, origin.headers) as calling:
            origin.decision = calling.attempt.decision
            body = await tasks.carry_out(task, calling, asked)
            origin.answered, origin.upstream = len(body), calling.seconds
            calling.answered()
        return body

    @asynccontextmanager
    async def _asked(
        self, request: Request, task: TfServingTask, call: Call, origin: _TfServingRequest
    ) -> AsyncIterator[tasks.JsonRequest]:
        """The JSON in the body, with room for what it takes; what is wrong with it is counted."""
        async with AsyncExitStack() as stack:
            try:
                body = await stack.enter_async_context(body_of(request, self._context, origin))
                asked = await tasks.asked(self._facade.compute, body, task)
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
