"""KServe v2 over HTTP: the listener, and the calls that are not fast.

Predict calls go from connection to connection (`connection`, `predict_call`). Everything else is
answered by the ASGI application in this file: health, readiness, metadata and configuration, which
one replica knows; statistics and the index, which all know together (`fleet`); and refusals.
"""

import json
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import replace
from typing import Any

from serve.core.calls import Call, Reply, Verb
from serve.core.errors import (
    Asleep,
    BodyTooLarge,
    MethodNotAllowed,
    NotLoaded,
    NotSent,
    ServegateError,
    TooSlow,
)
from serve.core.limits import Limits
from serve.listeners.http.context import HttpContext
from serve.listeners.http.fleet import FleetHttp
from serve.listeners.http.request import HttpRequest, Receive, Scope
from serve.listeners.management import Management
from serve.listeners.waits import until_awake, until_loaded
from serve.proxy.attempts import Attempt
from serve.proxy.gateway import Gateway
from serve.triton.http_pool import Pool, header_lines, request_line
from serve.wire import kserve_http, model_names
from serve.wire.kserve_http import HealthProbe, KServeQuestion
from serve.wire.request_ids import TOLD
from serve.wire.status import http_error, no_statistics, not_ready

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_FLEET = (Verb.STATS, Verb.INDEX)  # what all replicas are asked together


class KServeHttp(HttpContext):
    """The data plane's HTTP listener: the context of its connections, and an ASGI application."""

    def __init__(
        self,
        gateway: Gateway,
        pool: Pool,
        *,
        limits: Limits,
        clock: Callable[[], float],
        is_draining: Callable[[], bool],
        management: Management | None = None,
        is_local: bool = False,
    ) -> None:
        super().__init__(gateway, pool, limits=limits, clock=clock, is_local=is_local)
        self._is_draining = is_draining
        self._management = management
        self._fleet = FleetHttp(gateway, pool, clock=clock)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request that is no predict call."""
        if scope["type"] != "http":
            return
        origin = HttpRequest(scope, self.request_id(scope["headers"]))
        path = scope["raw_path"]
        try:
            if self._management is not None and self._management.takes(scope["method"], path):
                reply = await self._manage(self._management, scope, origin, receive)
            else:
                asked = kserve_http.parse(scope["method"], path)
                reply = await self._answer(asked, origin, receive)
        except MethodNotAllowed as error:
            is_plain = path.endswith((b"/infer", b"/ready", b"/live"))
            reply = http_error(error, Verb.READY if is_plain else Verb.METADATA)
        except ServegateError as error:
            reply = http_error(error, Verb.METADATA)
            if isinstance(error, BodyTooLarge | TooSlow):  # more of the body may come
                reply = replace(reply, headers=(*reply.headers, (b"connection", b"close")))
        await send(
            {
                "type": "http.response.start",
                "status": reply.status,
                "headers": [
                    *(pair for pair in reply.headers if pair[0] != b"content-length"),
                    (b"content-length", b"%d" % len(reply.body)),
                    (TOLD, origin.request_id),
                ],
            }
        )
        await send({"type": "http.response.body", "body": reply.body})

    async def _answer(
        self, asked: KServeQuestion | HealthProbe, origin: HttpRequest, receive: Receive
    ) -> Reply:
        if isinstance(asked, HealthProbe):
            return self._health(asked)
        call = Call(
            "http",
            asked.verb,
            asked.model,
            asked.selector,
            self.clock() + self.limits.call,
            credential=origin.header(b"authorization"),
            origin=origin,
        )
        body = b""
        if asked.verb is Verb.INDEX:
            body = await origin.body(receive, within=self.limits.body_idle)
        try:
            if asked.verb in _FLEET:
                return await self._fleet.answer(call, origin, body)
            return await self._ask_one(call, origin)
        except ServegateError as error:
            told = None
            if asked.verb is Verb.READY:
                told = not_ready("http", error)
            elif asked.verb is Verb.STATS:
                told = no_statistics("http", error)
            return told or http_error(error, asked.verb)

    async def _manage(
        self, management: Management, scope: Scope, origin: HttpRequest, receive: Receive
    ) -> Reply:
        return await management.over_http(
            scope["method"],
            scope["raw_path"],
            await origin.body(receive, within=self.limits.body_idle),
            headers=origin.headers,
            credential=origin.header(b"authorization"),
            deadline=self.clock() + self.limits.call,
            origin=origin,
        )

    async def _ask_one(self, call: Call, origin: HttpRequest) -> Reply:
        """The answer of one replica, with the model's own name and all its versions."""
        try:
            attempt = self.gateway.begin(call)
        except Asleep:
            attempt = await until_awake(self.gateway, call)
        while True:
            try:
                reply = await self._ask(attempt, origin)
                break
            except NotLoaded as error:
                attempt = await until_loaded(self.gateway, attempt, error)
        versions, choice = attempt.versions, attempt.choice
        if choice is None:
            return reply
        body = reply.body
        if choice.is_renamed:
            restored = model_names.in_error if reply.status >= 400 else model_names.in_description
            body = restored(body, choice.target)
        if call.verb is Verb.METADATA and reply.status == 200:
            body = model_names.with_versions(body, versions)
        decision = (b"servegate-version", attempt.decision.encode("latin-1", "replace"))
        return Reply(reply.status, body, (*reply.headers, decision))

    async def _ask(self, attempt: Attempt, origin: HttpRequest) -> Reply:
        """Ask one replica after the other, as long as the rule allows."""
        lines = header_lines(kserve_http.end_to_end(origin.headers))
        try:
            while True:
                start = request_line("GET", attempt.replica, _path(attempt))
                began = self.clock()
                try:
                    reply = await self.pool.fetch(
                        attempt.replica, start + lines + b"\r\n", attempt.call.deadline
                    )
                except NotSent as error:
                    attempt.not_sent(error)
                    continue
                origin.upstream = self.clock() - began
                if not attempt.refused(reply):
                    origin.answered = len(reply.body)
                    attempt.answered(reply.status, good=200 <= reply.status < 300)
                    return reply
        except ServegateError as error:
            attempt.failed(error)
            raise
        finally:
            attempt.left()

    def _health(self, probe: HealthProbe) -> Reply:
        """An empty answer satisfies Triton's clients, a JSON object those of Open Inference."""
        good = probe is HealthProbe.LIVE or (self.gateway.is_ready() and not self._is_draining())
        body = json.dumps({probe.value: good}, separators=(",", ":")).encode()
        return Reply(200 if good else 400, body, ((b"content-type", b"application/json"),))


def _path(attempt: Attempt) -> str:
    choice, verb = attempt.choice, attempt.call.verb
    if choice is None:
        return kserve_http.upstream_path(verb, "", None)
    target = choice.target
    version = target.physical_version if choice.pinned else None
    return kserve_http.upstream_path(verb, target.physical_name, version)
