"""The worker's side of a run on many processes and machines (`messages.py` has the picture)."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gevent
from gevent.queue import Empty, Queue
from locust.env import Environment

from serve.core.errors import CannotStart, Invalid
from serve.workbench.loadtest.engine.events import Event, event_of
from serve.workbench.loadtest.engine.messages import (
    END,
    EVENT,
    HELLO,
    PLAN,
    SILENCE,
    START,
    TURN,
    greeting,
)
from serve.workbench.loadtest.engine.worker import LoadWorker
from serve.workbench.loadtest.plan import LoadPlan


class Nobody(CannotStart):
    """No master answers."""


class Follower:
    """A worker: waits for a master, does what it says, and says what happened."""

    def __init__(self, host: str, port: int, *, patience: float, token: str = "") -> None:
        self._heard = time.monotonic()
        self._inbox: Any = Queue()
        environment = Environment()
        environment.events.heartbeat_received.add_listener(self._hear)
        with _patience(host, port, patience):
            self._runner = environment.create_worker_runner(host, port)
        for kind in (PLAN, START, END):
            self._runner.register_message(kind, self._take)
        self._greeting = greeting(token)

    def run(self) -> str:
        """Take part in one run; returns why it was let go."""
        self._runner.send_message(HELLO, self._greeting)
        page = self._wait_for(PLAN)
        if "plan" not in page:
            return str(page["why"])
        try:
            plan = LoadPlan.from_json(json.loads(page.pop("plan")))
            worker = LoadWorker(plan, worker=int(page["worker"]), workers=int(page["workers"]))
        except (CannotStart, Invalid) as error:
            self._tell(event_of(error))
            return str(self._wait_for(END)["why"])
        self._tell({"type": "ready"})
        page = self._wait_for(START)
        if "after" not in page:
            return str(page["why"])
        gevent.sleep(float(page["after"]))
        return self._work(worker)

    def _work(self, worker: LoadWorker) -> str:
        """Make the calls, but not for a master that is not there any more."""
        working = gevent.spawn(worker.run, self._tell)
        working.link(lambda done: self._inbox.put(None))
        try:
            page = self._wait_for(END)
            if page:
                return str(page["why"])
            working.get()  # or raises what went wrong
            self._tell({"type": "ended"})
            return str(self._wait_for(END)["why"])
        except (CannotStart, Invalid) as error:
            self._tell(event_of(error))
            return str(error)
        finally:
            working.kill()

    def _wait_for(self, kind: str) -> dict[str, Any]:
        """The page of the next message of this kind, or of the last one, whichever comes."""
        for message in self._messages():
            if message is None:
                return {}
            if message.type in (kind, END):
                page: dict[str, Any] = message.data
                return page
        return {"why": f"the master sent nothing for {SILENCE:g} s"}

    def _messages(self) -> Iterator[Any]:
        """What the master sends, until it is silent for too long."""
        while time.monotonic() - self._heard < SILENCE:
            try:
                yield self._inbox.get(timeout=TURN)
            except Empty:
                continue

    def _tell(self, event: Event) -> None:
        self._runner.send_message(EVENT, dict(event))

    def _take(self, environment: Any, msg: Any, **_: Any) -> None:
        self._heard = time.monotonic()
        self._inbox.put(msg)

    def _hear(self, **_: Any) -> None:
        self._heard = time.monotonic()


@contextmanager
def _patience(host: str, port: int, seconds: float) -> Iterator[None]:
    """locust asks again and again, for five minutes: this is how long we wait for an answer."""
    limit = gevent.Timeout(seconds)
    limit.start()
    try:
        yield
    except (gevent.Timeout, ConnectionError) as error:
        if isinstance(error, gevent.Timeout) and error is not limit:
            raise
        raise Nobody(f"no load test responds at {host}:{port}") from None
    finally:
        limit.close()
