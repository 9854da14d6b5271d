"""locust users that speak to Triton or to the gateway, for people who write their own locustfile.

    from locust import between, task
    from serve.workbench.loadtest.users import KServeHttpUser

    class Visitor(KServeHttpUser):
        model = "digits"
        wait_time = between(0.5, 2)

        @task
        def infer(self):
            self.call()

Such users are a closed loop: who waits for a late answer asks no more questions meanwhile, and the
times that locust shows leave the questions out that nobody asked. `OpenLoopUser` starts calls when
they are meant to start, and its times are from there: `class Visitor(OpenLoopUser,
KServeHttpUser)`.

Each call is a request of locust's, with the name `model@version protocol`; the version is the one
that was asked for, else the one that answered. An answer that is not right is a failure.

Ends calls that are over their time, for all the senders that locust's users have.
"""

import itertools
import logging
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NoReturn
from urllib.parse import quote, urlsplit

import gevent
import numpy as np
from gevent.event import AsyncResult
from gevent.lock import BoundedSemaphore
from locust import User, task
from locust.exception import StopUser
from locust.user.task import LOCUST_STATE_STOPPING

from serve.core.errors import Invalid, ServegateError
from serve.tensors.archive import read_archive
from serve.tensors.datatypes import Array, cast
from serve.tensors.random_inputs import random_tensor
from serve.workbench.loadtest.arrivals import parse_arrivals, starts
from serve.workbench.loadtest.encoded_bodies import (
    CallWay,
    PreparedCall,
    RequestedVersion,
    cut,
    lanes,
)
from serve.workbench.loadtest.engine.model_metadata import Specs, inputs_of
from serve.workbench.loadtest.engine.senders import Sender
from serve.workbench.loadtest.engine.worker import sender_of
from serve.workbench.loadtest.plan import Lane, LaneProtocol, Payload
from serve.workbench.loadtest.record import RIGHT, CallKey

# --- deadline sweep -------------------------------------------------------------------------------


_SWEEP_PAUSE = 0.05  # seconds between two looks


class Sweeping:
    """One greenlet for all of them. Their clock is `time.perf_counter`, as locust's is."""

    def __init__(self) -> None:
        self._senders: weakref.WeakSet[Sender] = weakref.WeakSet()
        self._greenlet: Any = None

    def __repr__(self) -> str:
        return f"<Sweeping {len(self._senders)} senders>"

    def add(self, sender: Sender) -> None:
        """One more, until nobody holds it."""
        self._senders.add(sender)
        if self._greenlet is None:
            self._greenlet = gevent.spawn(self._sweep)

    def _sweep(self) -> None:
        while True:
            gevent.sleep(_SWEEP_PAUSE)
            for each in tuple(self._senders):
                each.sweep(time.perf_counter())


SWEEPING = Sweeping()


# --- users ----------------------------------------------------------------------------------------


logger = logging.getLogger(__name__)

_MOST_INPUT = 256 << 20  # bytes of an archive
_PAUSE = 0.05  # seconds between two looks for calls that have not ended
_PREPARING = BoundedSemaphore(1)
_WORKERS_APART = 100_003  # seeds of users on two workers of locust differ


class CallFailed(Exception):
    """What locust shows of a call that failed: its outcome, `http_503:no_replica` for example."""


@dataclass(frozen=True, slots=True)
class LoadCallEnd:
    """How a call ended. `outcome` is empty when its answer is right; `latency` in seconds."""

    outcome: str
    version: str
    latency: float


class TritonUser(User):  # type: ignore[misc]  # locust has no types here
    """What all of them share. `call` makes one call and waits for its answer.

    Bodies are made once for a class: from the archive `inputs` (NPZ, arrays by the names of the
    model's inputs, rows first), else at random, as the model's metadata says. `labels` names the
    array of that archive which has the class that each row should score highest in `output`.
    """

    abstract = True
    protocol: ClassVar[LaneProtocol]

    model = ""
    version = ""  # a number, a label, or empty for the server's choice
    target = ""  # where to call, if not at locust's `host`
    key = ""  # an API key
    inputs = ""
    labels = ""
    output = ""
    rows = 1  # of a batch
    bodies = 16  # different ones, where they are random
    timeout = 30.0  # seconds
    most = 1  # calls in flight of one user

    _lanes: ClassVar[dict[tuple[type, str], Lane]] = {}
    _numbers = itertools.count()

    def __init__(self, environment: Any) -> None:
        super().__init__(environment)
        runner = environment.runner
        worker = max(0, getattr(runner, "worker_index", 0))
        self._seed = worker * _WORKERS_APART + next(self._numbers)
        self._random = np.random.default_rng(self._seed)
        self._sender: Sender | None = None
        self._waiting: deque[tuple[Payload, float, Callable[[LoadCallEnd], None]]] = deque()
        self._in_flight = 0

    def on_stop(self) -> None:
        """Close the connections."""
        if self._sender is not None:
            self._sender.close()

    def call(self, payload: Payload | None = None) -> LoadCallEnd:
        """Call with one of the bodies, or with this one; wait for the answer."""
        answer: Any = AsyncResult()
        self.begin_call(time.perf_counter(), answer.set, payload)
        ended: LoadCallEnd = answer.get()
        return ended

    def begin_call(
        self, intended: float, done: Callable[[LoadCallEnd], None], payload: Payload | None = None
    ) -> None:
        """Call now, or when one of `most` is free; times count from `intended` (perf_counter)."""
        bodies = self._prepared().payloads
        if payload is None:
            payload = bodies[int(self._random.integers(len(bodies)))]
        self._waiting.append((payload, intended, done))
        self._send_waiting()

    def _send_waiting(self) -> None:
        assert self._sender is not None
        while self._waiting:
            payload, intended, done = self._waiting[0]
            if not self._sender.send(payload, payload.body, self._ending(intended, done)):
                return
            self._waiting.popleft()
            self._in_flight += 1

    def _ending(
        self, intended: float, done: Callable[[LoadCallEnd], None]
    ) -> Callable[[str, str, float], None]:
        began = time.time() - (time.perf_counter() - intended)

        def end(outcome: str, decision: str, at: float) -> None:
            self._in_flight -= 1
            version = CallKey(0, outcome, decision).version
            ended = LoadCallEnd(outcome, version, at - intended)
            self.environment.events.request.fire(
                request_type=str(self.protocol),
                name=f"{self.model}@{self.version or version or '-'} {self.protocol}",
                response_time=ended.latency * 1000,
                response_length=0,
                exception=None if outcome == RIGHT else CallFailed(outcome),
                context={**self.context(), "decision": decision},
                start_time=began,
            )
            done(ended)
            self._send_waiting()

        return end

    def _prepared(self) -> Lane:
        """The lane, and a sender for it; what cannot be prepared ends the whole test."""
        where = self.target or self.host or ""
        key = (type(self), where)
        try:
            with _PREPARING:
                if key not in self._lanes:
                    self._lanes[key] = self._make_lane(where)
                if self._sender is None:
                    lane = self._lanes[key]
                    self._sender = sender_of(
                        lane, most=self.most, timeout=self.timeout, clock=time.perf_counter
                    )
                    SWEEPING.add(self._sender)
        except ServegateError as error:
            self._give_up(error)
        return self._lanes[key]

    def _give_up(self, error: ServegateError) -> NoReturn:
        runner = self.environment.runner
        if self.environment.process_exit_code != 2:
            self.environment.process_exit_code = 2
            logger.error("%s: %s", type(self).__name__, error)
            gevent.spawn(runner.quit)  # it ends this greenlet, too
        raise StopUser

    def _make_lane(self, where: str) -> Lane:
        if not self.model:
            raise Invalid("no model is set", try_this=f'set model = "…" in {type(self).__name__}')
        parts = urlsplit(where if "://" in where else f"http://{where}")
        if not where or not parts.hostname:
            raise Invalid("no host is set", try_this="use --host http://127.0.0.1:8000")
        tls = parts.scheme in ("https", "grpcs")
        headers = (("authorization", f"Bearer {self.key}"),) if self.key else ()
        way = CallWay(self.protocol, parts.netloc, tls=tls, prefix=parts.path.rstrip("/"))
        metadata = f"{way.prefix}/v2/models/{quote(self.model, safe='')}"
        asking = Lane(
            "metadata", self.protocol, way.address, metadata, (), headers=headers, tls=tls
        )
        specs = inputs_of(asking, self.model, self.version)
        datatypes = {name: datatype for name, (datatype, _) in specs.items()}
        output = self.output if self.labels else ""
        asked = RequestedVersion(
            self.model, self.version, datatypes, output=output, headers=headers
        )
        return lanes([way], self._requests(specs), asked)[0]

    def _requests(self, specs: Specs) -> tuple[PreparedCall, ...]:
        batched = [name for name, (_, shape) in specs.items() if shape[:1] == (-1,)]
        if not self.inputs:
            return tuple(
                PreparedCall(
                    {
                        name: random_tensor(datatype, shape, self._random, batch=self.rows)
                        for name, (datatype, shape) in specs.items()
                    },
                    self.rows if batched else 1,
                )
                for _ in range(self.bodies)
            )
        arrays = _read(self.inputs)
        missing = [name for name in (*specs, *filter(None, [self.labels])) if name not in arrays]
        if missing:
            raise Invalid(
                f"{self.inputs} has no array for {', '.join(missing)}",
                why=f"it contains {list(arrays)}",
            )
        tensors = {
            name: cast(arrays[name], datatype, name) for name, (datatype, _) in specs.items()
        }
        return cut(tensors, batched, self.rows, arrays[self.labels] if self.labels else None)


class KServeHttpUser(TritonUser):
    """KServe v2 over HTTP, tensors as bytes; `protocol = Protocol.HTTP_JSON` for JSON."""

    abstract = True
    protocol = LaneProtocol.HTTP_BINARY


class KServeGrpcUser(TritonUser):
    """KServe v2 over gRPC; `protocol = Protocol.GRPC_STREAM` for calls over a stream.

    locust's `--host` is for all users: `target` says where the gRPC port is; see `grpc_url_of`.
    """

    abstract = True
    protocol = LaneProtocol.GRPC


class TFServingUser(TritonUser):
    """TensorFlow Serving's REST predict, as the gateway has it."""

    abstract = True
    protocol = LaneProtocol.TFSERVING


class OpenLoopUser(TritonUser):
    """A crowd: its calls start as `arrivals` say, whatever has become of those before them.

    Stand it before one of the others: `class Crowd(OpenLoopUser, KServeHttpUser)`. `rate` is in
    calls per second of one such user, so that locust's number of users multiplies it. It needs no
    task. `arrivals` as `servegate load run --arrivals` has it, over `seconds`.
    """

    abstract = True

    arrivals = "poisson"
    rate = 10.0
    seconds = 3600.0
    most = 1000

    @task  # type: ignore[untyped-decorator]
    def arrive(self) -> None:
        """Start every call at its time, then end."""
        try:
            due = starts(parse_arrivals(self.arrivals, self.rate), self.seconds, seed=self._seed)
        except ServegateError as error:
            self._give_up(error)
        self._prepared()
        begun = time.perf_counter()
        for start in due:
            gevent.sleep(max(0.0, begun + start - time.perf_counter()))
            if self._state == LOCUST_STATE_STOPPING:
                break
            self.begin_call(begun + start, lambda ended: None)
        while self._waiting or self._in_flight:
            gevent.sleep(_PAUSE)
        raise StopUser


def grpc_url_of(host: str | None) -> str:
    """The gRPC address of a server whose HTTP address is `host`: the next port, as Triton has it.

    `http://gateway:8000` gives `http://gateway:8001`.
    """
    parts = urlsplit(host if host and "://" in host else f"http://{host or ''}")
    if not parts.hostname or parts.port is None:
        raise Invalid(
            f"the host '{host or ''}' has no port", try_this="use --host http://127.0.0.1:8000"
        )
    name = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{name}:{parts.port + 1}"


def _read(path: str) -> Mapping[str, Array]:
    try:
        return read_archive(Path(path).read_bytes(), most=_MOST_INPUT)
    except OSError as error:
        raise Invalid(f"{path} cannot be read", why=error.strerror or str(error)) from error
