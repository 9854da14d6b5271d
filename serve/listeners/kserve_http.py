"""KServe v2 over HTTP: an ASGI application that turns requests into calls and writes replies."""

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from serve.core.calls import Call, Headers, Reply, Verb
from serve.core.errors import BadRequest, BodyTooLarge, ServegateError
from serve.proxy.gateway import Gateway
from serve.wire import kserve_http
from serve.wire.kserve_http import Probe, Question
from serve.wire.status import http_error, not_ready

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class KServeHttp:
    """The data plane's HTTP listener. `timeout` is in seconds, `max_body` in bytes."""

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

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        try:
            reply = await self._answer(scope, receive)
        except ServegateError as error:
            reply = http_error(error)
        length = (b"content-length", str(len(reply.body)).encode())
        headers = [(key, value) for key, value in reply.headers if key != b"content-length"]
        await send(
            {
                "type": "http.response.start",
                "status": reply.status,
                "headers": [*headers, length],
            }
        )
        await send({"type": "http.response.body", "body": reply.body})

    async def _answer(self, scope: Scope, receive: Receive) -> Reply:
        asked = kserve_http.parse(scope["method"], scope["raw_path"])
        if isinstance(asked, Probe):
            return self._health(asked)
        headers: Headers = tuple(scope["headers"])
        body = await _read(receive, headers, self._max_body) if asked.verb is Verb.INFER else b""
        call = self._call(asked, headers, body)
        try:
            answer = await self._gateway.handle(call)
        except ServegateError as error:
            told = not_ready("http", error) if asked.verb is Verb.READY else None
            return told or http_error(error)
        if not answer.decision:
            return answer.reply
        reply = answer.reply
        decision = (b"servegate-version", answer.decision.encode("latin-1", "replace"))
        return Reply(reply.status, reply.body, (*reply.headers, decision))

    def _call(self, asked: Question, headers: Headers, body: bytes) -> Call:
        pass_on = kserve_http.end_to_end
        if asked.verb is Verb.INFER:
            kserve_http.head_length(headers, body)  # framing is checked on every call
            pass_on = kserve_http.for_infer
        stateful = asked.verb is Verb.INFER and self._gateway.serves_sequences(asked.model)
        return Call(
            protocol="http",
            verb=asked.verb,
            model=asked.model,
            selector=asked.selector,
            body=body,
            headers=pass_on(headers),
            deadline=self._clock() + self._timeout,
            sequence=kserve_http.sequence_of(headers, body) if stateful else "",
        )

    def _health(self, probe: Probe) -> Reply:
        """An empty answer satisfies Triton's clients, a JSON object those of Open Inference."""
        good = probe is Probe.LIVE or (self._gateway.is_ready() and not self._is_draining())
        body = json.dumps({probe.value: good}, separators=(",", ":")).encode()
        return Reply(200 if good else 400, body, ((b"content-type", b"application/json"),))


async def _read(receive: Receive, headers: Headers, limit: int) -> bytes:
    """The whole body, refused as soon as it is known to be too large."""
    for key, value in headers:
        if key == b"content-length" and int(value) > limit:
            raise BodyTooLarge(limit)
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise BadRequest("the client left before its request was complete")
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > limit:
            raise BodyTooLarge(limit)
        chunks.append(chunk)
        if not message.get("more_body", False):
            return b"".join(chunks)
