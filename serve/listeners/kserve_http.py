"""KServe v2 over HTTP: the listener, and the calls that are not fast.

Predict calls go from connection to connection (`http_client`, `http_exchange`). Everything else is
answered by the ASGI application in this file: health, readiness, metadata, configuration,
statistics, and the refusals.
"""

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from serve.core.calls import Call, Headers, Reply, Verb
from serve.core.errors import NotSent, ServegateError
from serve.core.limits import Limits
from serve.listeners.http_desk import Desk
from serve.proxy.gateway import Attempt, Gateway
from serve.triton.http_pool import Pool, header_lines, request_line
from serve.wire import kserve_http, restoring
from serve.wire.kserve_http import Probe
from serve.wire.status import http_error, not_ready

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class KServeHttp(Desk):
    """The data plane's HTTP listener: the desk of its connections, and an ASGI application."""

    def __init__(
        self,
        gateway: Gateway,
        pool: Pool,
        *,
        limits: Limits,
        clock: Callable[[], float],
        is_draining: Callable[[], bool],
    ) -> None:
        super().__init__(gateway, pool, limits=limits, clock=clock)
        self._is_draining = is_draining

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request that is no predict call."""
        if scope["type"] != "http":
            return
        try:
            reply = await self._answer(scope)
        except ServegateError as error:
            reply = http_error(error)
        length = (b"content-length", b"%d" % len(reply.body))
        headers = [(key, value) for key, value in reply.headers if key != b"content-length"]
        start = {
            "type": "http.response.start",
            "status": reply.status,
            "headers": [*headers, length],
        }
        await send(start)
        await send({"type": "http.response.body", "body": reply.body})

    async def _answer(self, scope: Scope) -> Reply:
        asked = kserve_http.parse(scope["method"], scope["raw_path"])
        if isinstance(asked, Probe):
            return self._health(asked)
        deadline = self.clock() + self.limits.call
        call = Call("http", asked.verb, asked.model, asked.selector, deadline)
        try:
            attempt = self.gateway.begin(call)
            reply = await self._ask(attempt, tuple(scope["headers"]))
        except ServegateError as error:
            told = not_ready("http", error) if asked.verb is Verb.READY else None
            return told or http_error(error)
        if attempt.choice is None:
            return reply
        body = reply.body
        if attempt.choice.is_renamed:
            body = restoring.in_description(body, attempt.choice.target)
        decision = (b"servegate-version", attempt.decision.encode("latin-1", "replace"))
        return Reply(reply.status, body, (*reply.headers, decision))

    async def _ask(self, attempt: Attempt, headers: Headers) -> Reply:
        """Ask one replica after the other, as long as the rule allows."""
        lines = header_lines(kserve_http.end_to_end(headers))
        try:
            while True:
                start = request_line("GET", attempt.replica, _path(attempt))
                try:
                    reply = await self.pool.fetch(
                        attempt.replica, start + lines + b"\r\n", attempt.call.deadline
                    )
                except NotSent as error:
                    attempt.not_sent(error)
                    continue
                if not attempt.refused(reply):
                    attempt.answered(reply.status, good=200 <= reply.status < 300)
                    return reply
        except ServegateError as error:
            attempt.failed(error)
            raise
        finally:
            attempt.left()

    def _health(self, probe: Probe) -> Reply:
        """An empty answer satisfies Triton's clients, a JSON object those of Open Inference."""
        good = probe is Probe.LIVE or (self.gateway.is_ready() and not self._is_draining())
        body = json.dumps({probe.value: good}, separators=(",", ":")).encode()
        return Reply(200 if good else 400, body, ((b"content-type", b"application/json"),))


def _path(attempt: Attempt) -> str:
    choice, verb = attempt.choice, attempt.call.verb
    if choice is None:
        return kserve_http.upstream_path(verb, "", None)
    target = choice.target
    version = target.physical_version if choice.pinned else None
    return kserve_http.upstream_path(verb, target.physical_name, version)
