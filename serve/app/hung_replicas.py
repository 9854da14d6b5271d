"""Hung replicas: a Triton whose connections stay open while nothing answers on them any more.

A process that ends closes its connections, and the calls on them end. One that is stopped (SIGSTOP)
or stuck does not, nor does one whose machine has vanished: its calls would wait until their own
time is up, and hold their slots. So a replica is asked whether it lives when a call is on it at two
looks in a row:

    a call stays ──▶ asked ──(answers)──▶ left alone until the next look
                      │ ▲
                      │ └── again, until three questions in a row have had no answer
                      ▼
                    hangs: its calls end with an unknown outcome, and new ones avoid it;
                           asked again and again, until it answers or is no replica any more

A long call is no sign of this: a Triton that executes one answers. No call pays for any of it.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping

from serve.core.errors import DeadlineExceeded, NotSent, OutcomeUnknown
from serve.core.replicas import Replica
from serve.proxy.health import Health
from serve.triton.grpc_pool import GrpcPool
from serve.triton.http_pool import Pool, request_line

_log = logging.getLogger("servegate.hanging")
LOOK = 3.0  # seconds between two looks at the calls
PATIENCE = 3.0  # seconds for one answer
SILENCES = 3  # questions in a row without an answer
_Calls = Mapping[str, Collection[object]]  # by the name of their replica


class HungReplicas:
    """Watches the replicas of one worker; `sweep` is called now and then.

    `replicas` gives those of the snapshot by their names, `busy` the names of those with calls.
    """

    def __init__(
        self,
        http: Pool,
        grpc: GrpcPool,
        *,
        replicas: Callable[[], Mapping[str, Replica]],
        busy: Callable[[], Collection[str]],
        health: Health,
        clock: Callable[[], float],
        patience: float = PATIENCE,
    ) -> None:
        self._http = http
        self._grpc = grpc
        self._replicas = replicas
        self._busy = busy
        self._health = health
        self._clock = clock
        self._patience = patience
        self._next = clock() + LOOK
        self._before: _Calls = {}
        self._asking: dict[str, asyncio.Task[None]] = {}

    def __repr__(self) -> str:
        return f"<HungReplicas asks={sorted(self._asking)}>"

    def sweep(self) -> None:
        """Look, if it is time to."""
        now = self._clock()
        if now < self._next:
            return
        self._next = now + LOOK
        before, self._before = self._before, self._calls()
        for name, calls in self._before.items():
            if name not in self._asking and not set(calls).isdisjoint(before.get(name, ())):
                self._asking[name] = asyncio.get_running_loop().create_task(self._ask(name))

    def close(self) -> None:
        """Ask no more."""
        for task in tuple(self._asking.values()):
            task.cancel()

    def _calls(self) -> _Calls:
        known = self._replicas()
        replicas = [known[name] for name in self._busy() if name in known]
        over_http = self._http.calls() if replicas else {}
        return {
            one.name: [*over_http.get((one.host, one.http_port), ()), *self._grpc.calls(one)]
            for one in replicas
        }

    async def _ask(self, name: str) -> None:
        """Until it answers; without an answer for long, end its calls again and again."""
        try:
            await self._until_answer(name)
        finally:
            del self._asking[name]

    async def _until_answer(self, name: str) -> None:
        silences = 0
        while (replica := self._replicas().get(name)) is not None and await self._is_silent(
            replica
        ):
            silences += 1
            if silences == SILENCES:
                _log.error(
                    "replica %s hangs; its calls in flight fail, and it gets no new calls", name
                )
            if silences >= SILENCES:
                self._health.failed(name)
                why = f"the replica answered no health probe for {silences * self._patience:g} s"
                self._http.cut(replica, why)
                self._grpc.cut(replica, why)
        if replica is not None and silences >= SILENCES:
            self._health.answered(name)
            _log.warning("replica %s responds again", name)

    async def _is_silent(self, replica: Replica) -> bool:
        """Whether nothing has come of a question in time; it takes as long then."""
        end = self._clock() + self._patience
        question = request_line("GET", replica, "/v2/health/live") + b"\r\n"
        try:
            await self._http.fetch(replica, question, end)
        except DeadlineExceeded:
            return True
        except OutcomeUnknown:  # it has closed the connection
            return False
        except NotSent as error:
            if isinstance(error.__cause__, ConnectionError):
                return False  # its machine refuses: nobody listens, so no connection is left open
            await asyncio.sleep(end - self._clock())
            return True
        return False
