"""The HTTP data plane between a client that sends anything and replicas that are well-behaved.

The client's bytes come in pieces; the replicas read with h11, which raises at whatever is no HTTP,
and answer as the body asks them to. At the end everything has to be back at zero.

| the body holds   | the replica                                       | executed |
|------------------|---------------------------------------------------|----------|
| `@stop`          | refuses: it is stopping                           | no       |
| `@unknown`       | does not know the model                           | no       |
| `@eof`           | closes without an answer                          | yes      |
| `@short`         | closes in the middle of its answer                | yes      |
| `@chunks`        | answers in chunks                                 | yes      |
| `@close`         | answers without a length and closes               | yes      |
| anything else    | answers with a length                             | yes      |
"""

import asyncio
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import h11
from builders import DataPlane, replica, snapshot, target, view
from fuzz import strict_http
from fuzz.wires import Complaints, Loop, Wire
from uvicorn.server import ServerState

from serve.app.http_server import HttpServer
from serve.core.limits import Limits
from serve.core.snapshot import Snapshot
from serve.listeners.application import application
from serve.listeners.http.connection import HttpClientConnection
from serve.listeners.http.kserve import KServeHttp
from serve.triton.http_pool import Pool

LIMITS = Limits(
    body=3000, head=1200, in_flight=6000, inflated=5000, call=30.0, head_time=5.0, body_idle=5.0,
    body_rate=100.0, idle=20.0, chunks=40, incomplete=4, connections=4, streams=8, frame=1 << 14,
    continuations=3, resets=30, pings=60,
)  # fmt: skip
JSON = b'{"model_name":"%b","model_version":"1","outputs":[]}'
_PORTS = {8000: "a", 8100: "b"}


def fleet() -> Snapshot:
    """Two replicas; `m` is plain, `r` has another name in Triton, `s` serves sequences."""
    both = ("a", "b")
    models = snapshot(
        view(target(1, *both), target(2, *both), labels={"stable": 1}, split="1=1 2=1"),
        view(target(3, "a", model="r", physical="r--0a1b"), name="r"),
        view(target(1, *both, model="s"), name="s", sequences=True),
    )
    named = {"a": replica("a"), "b": replica("b", http=8100, grpc=8101)}
    return Snapshot(models.generation, models.models, named)


@dataclass(slots=True)
class Executed:
    method: str
    path: str
    headers: list[tuple[bytes, bytes]]
    body: bytes


@dataclass(slots=True)
class Outcome:
    answers: list[strict_http.Answer] = field(default_factory=list)
    executed: list[Executed] = field(default_factory=list)
    refused: int = 0
    was_aborted: bool = False


class Replica:
    def __init__(self, wire: Wire, outcome: Outcome, script: list[bytes] | None) -> None:
        self.wire = wire
        self._outcome = outcome
        self._script = script
        self._reader = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
        self._request: h11.Request | None = None
        self._body = b""
        self._said: list[bytes] = []
        self._closes = False

    def play(self) -> bool:
        """Read what has come and answer it; whether anything happened."""
        data = self.wire.take()
        if data:
            self._reader.receive_data(data)
        if self.wire.is_closing():
            data = b"" if self.wire.is_lost else data
        happened = bool(data)
        while self._said and self.wire.may_say:
            self.wire.say(self._said.pop(0))
            happened = True
        if self._closes and not self._said:
            self._closes = False
            self.wire.end()
        while True:
            event = self._reader.next_event()
            if isinstance(event, h11.Request):
                self._request, self._body, happened = event, b"", True
            elif isinstance(event, h11.Data):
                self._body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                self._execute()
                happened = True
            else:
                return happened

    def _execute(self) -> None:
        request, body = self._request, self._body
        assert request is not None
        method, path = request.method.decode(), request.target.decode()
        one = Executed(method, path, list(request.headers), body)
        _check_head(one)
        answer, is_executed, closes = self._answer(one)
        if is_executed:
            self._outcome.executed.append(one)
        else:
            self._outcome.refused += 1
        self._reader.send(h11.Response(status_code=200, headers=[("Content-Length", "0")]))
        self._reader.send(h11.EndOfMessage())
        if not closes and self._reader.our_state is h11.DONE:
            self._reader.start_next_cycle()
        self._said += answer
        self._closes |= closes

    def _answer(self, one: Executed) -> tuple[list[bytes], bool, bool]:
        """The pieces of the answer, whether the call is executed, and whether it closes."""
        body = one.body
        if self._script is not None and one.method == "POST":
            return self._script, True, True
        name = one.path.split("/")[3] if one.path.count("/") > 2 else ""
        said = JSON % name.encode()
        if b"@stop" in body:
            return [_with_length(503, b'{"error":"Server not ready"}')], False, False
        if b"@unknown" in body:
            sentence = b"Request for unknown model: '%b' is not found" % name.encode()
            return [_with_length(404, b'{"error":"%b"}' % sentence)], False, False
        if b"@eof" in body:
            return [], True, True
        if b"@short" in body:
            return [_with_length(200, said)[:-3]], True, True
        if b"@chunks" in body:
            chunks = b"%x\r\n%b\r\n5\r\n12345\r\n0\r\n\r\n" % (len(said), said)
            head = b"HTTP/1.1 200 OK\r\nX-Executed: 1\r\nTransfer-Encoding: chunked\r\n\r\n"
            return [head + chunks], True, False
        if b"@close" in body:
            head = b"HTTP/1.1 200 OK\r\nX-Executed: 1\r\nConnection: close\r\n\r\n"
            return [head + said], True, True
        return [_with_length(200, said)], True, False


class HttpScene:
    _loop: Loop | None = None
    _server: HttpServer | None = None
    _current: KServeHttp

    def __init__(self, *, is_narrow: bool, script: list[bytes] | None = None) -> None:
        cls = type(self)
        if cls._loop is None or asyncio.get_event_loop_policy() is None:
            cls._loop = Loop()
            Complaints(cls._loop)
            cls._server = HttpServer(application(cls._application), protocol=HttpClientConnection)
            cls._server.config.load()
        loop = self.loop = cls._loop
        asyncio.set_event_loop(loop)
        loop.failures.clear()
        loop.is_narrow = is_narrow
        self.outcome = Outcome()
        self.replicas: list[Replica] = []
        self.plane = DataPlane(fleet(), draw=0.7)
        self.pool = Pool(connect_timeout=1.0, clock=self.plane.clock)
        self.listener = cls._current = KServeHttp(
            self.plane.gateway,
            self.pool,
            limits=LIMITS,
            clock=self.plane.clock,
            is_draining=lambda: False,
        )

        def accept(wire: Wire) -> None:
            self.replicas.append(Replica(wire, self.outcome, script))

        loop.listeners = dict.fromkeys(_PORTS, accept)
        assert cls._server is not None
        self._make = partial(
            HttpClientConnection, self.listener, cls._server.config, ServerState(), {}, loop
        )
        self._received = b""
        self.client = Wire(loop, self._make())

    @classmethod
    async def _application(cls, scope: Any, receive: Any, send: Any) -> None:
        await cls._current(scope, receive, send)

    def play(self, pieces: list[bytes], *, is_patient: bool = False) -> Outcome:
        """Send the pieces, each when the gateway reads, and close; everything must be at zero.

        A patient client waits for what comes of a piece before it sends the next one.
        """
        for piece in pieces:
            while not self.client.may_say and not self.client.is_closing():
                before = self.client.is_paused
                self.loop.finish(self._others)
                if self.client.is_paused and before:
                    break
            if not self.client.may_say:
                break
            self.client.say(piece)
            if is_patient:
                self.loop.finish(self._others)
            self._others()
            self._check_held()
        self.loop.finish(self._others)
        self._check_held()
        closed_by_us = self.client.is_closing() or self.client.has_ended
        self._leave()
        methods = [one.method for one in strict_http.requests(b"".join(pieces))]
        self.outcome.was_aborted = self.client.was_aborted
        is_over = closed_by_us and not self.client.was_aborted
        self.outcome.answers = strict_http.answers(self._received, methods, is_over=is_over)
        return self.outcome

    def _others(self) -> bool:
        data = self.client.take()
        self._received += data
        happened = [one.play() for one in self.replicas]
        return bool(data) or any(happened)

    def _check_held(self) -> None:
        assert self.listener.held <= LIMITS.in_flight + LIMITS.body
        assert self.client.most_held < 1 << 20

    def _leave(self) -> None:
        if self.client.has_ended:  # the gateway lingers until the client closes, or time is up
            self.plane.clock.now += 1
            self.listener.sweep()
        self.client.end()
        self.loop.finish(self._others)
        self.plane.clock.now += 100
        self.listener.sweep()
        self.pool.sweep()
        self.loop.finish(self._others)
        assert self.listener.held == 0, self.listener
        assert not self.listener.clients, self.listener
        assert self.plane.loads.total == 0 and not self.plane.loads.replicas, self.plane.loads
        assert self.pool.busy == 0 and self.pool.idle == 0, self.pool
        assert all(one.wire.is_lost for one in self.replicas)
        assert not asyncio.all_tasks(self.loop)


def _with_length(status: int, body: bytes) -> bytes:
    lines = b"X-Executed: 1\r\n" if status == 200 else b""
    lines += b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    return b"HTTP/1.1 %d X\r\n" % status + lines + body


_HOPS = frozenset(b"connection keep-alive proxy-connection te trailer upgrade expect".split())


def _check_head(one: Executed) -> None:
    """What a replica gets has one framing, one host, and nothing that belongs to another hop."""
    names = [name.lower() for name, _ in one.headers]
    assert names.count(b"host") == 1, one
    assert names.count(b"content-length") + names.count(b"transfer-encoding") <= 1, one
    assert not [name for name in names if name in _HOPS], one
