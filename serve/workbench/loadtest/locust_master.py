"""The master's side of a run on many processes and machines (`engine/messages.py`: the picture)."""

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from gevent.queue import Empty, Queue
from locust.env import Environment
from locust.exception import RPCError

from serve import __version__
from serve.core.errors import CannotStart, Invalid
from serve.workbench.loadtest.engine.events import Event, Tell
from serve.workbench.loadtest.engine.messages import END, EVENT, HELLO, PLAN, SILENCE, START, TURN

GATHERING = 600.0  # seconds for all workers to come
MOMENT = 0.2  # seconds from the word to the start


@dataclass(slots=True)
class _Hand:
    """A worker as its master sees it. `heard` by the master's clock."""

    name: str
    number: int
    heard: float
    state: str = "greeted"  # ready | ended | lost


class Master:
    """Leads the workers of one run. `plan` is the plan's JSON, which goes to them as it is.

    With a `token` only workers that know it are taken. `dead`: the numbers of worker processes on
    this machine that have ended, some time ago.
    """

    def __init__(
        self,
        plan: bytes,
        *,
        host: str,
        port: int,
        expect: int,
        tell: Tell,
        token: str = "",
        dead: Callable[[], Collection[int]] = frozenset,
    ) -> None:
        self._plan = plan
        self._expect = expect
        self._tell = tell
        self._token = token
        self._dead = dead
        self._hands: dict[str, _Hand] = {}
        self._pids: dict[str, int] = {}
        self._inbox: Any = Queue()
        self._has_begun = False
        environment = Environment()
        try:
            self._runner = environment.create_master_runner(host, port)
        except (RPCError, SystemExit) as error:
            raise Invalid(
                f"workers cannot connect to {host}:{port}",
                why=f"the port cannot be opened: {error}",
                try_this="use --listen with an address of this machine and a free port",
            ) from error
        self.port = int(self._runner.server.port)
        for kind in (HELLO, EVENT):
            self._runner.register_message(kind, self._take)
        environment.events.heartbeat_sent.add_listener(self._hear)

    def __repr__(self) -> str:
        return f"<Master on port {self.port}, {len(self._hands)} of {self._expect} workers>"

    def run(self) -> None:
        """From the first hello to the last window; raises `CannotStart` when no worker is left."""
        why = "the run has finished"
        try:
            self._gather()
            for kind in ("ready", "ended"):
                self._follow_until(kind)
                if kind == "ready":
                    self._send(START, {"after": MOMENT})
        except (CannotStart, Invalid) as error:
            why = str(error)
            raise
        finally:
            self._send(END, {"why": why})

    def close(self) -> None:
        """Let locust end what it runs."""
        self._runner.quit()

    def _gather(self) -> None:
        patience = time.monotonic() + GATHERING
        while len(self._hands) < self._expect:
            if time.monotonic() > patience:
                raise CannotStart(
                    f"{len(self._hands)} of {self._expect} load workers connected within "
                    f"{GATHERING:g} s",
                    why="a run starts when all workers are connected",
                    try_this=f"servegate load worker --master THIS_MACHINE:{self.port}",
                )
            if self._dead():
                raise CannotStart("a load worker exited before the start")
            self._turn()
        for client, hand in self._hands.items():
            page = {"plan": self._plan, "worker": hand.number, "workers": self._expect}
            self._runner.send_message(PLAN, page, client)

    def _follow_until(self, state: str) -> None:
        """Relay what they tell until all that are left have come so far."""
        while any(hand.state not in (state, "lost") for hand in self._hands.values()):
            self._turn()
        if all(hand.state == "lost" for hand in self._hands.values()):
            raise CannotStart("all load workers were lost")

    def _turn(self) -> None:
        try:
            message = self._inbox.get(timeout=TURN)
        except Empty:
            self._look_for_lost()
            return
        try:
            if message.type == HELLO:
                self._greet(message.node_id, message.data)
            elif message.node_id in self._hands:
                self._heed(self._hands[message.node_id], message.data)
        except (KeyError, TypeError, ValueError):  # anybody may write to a port
            self._tell(
                {"type": "problem", "text": "an invalid message from a load worker was ignored"}
            )
        if self._inbox.empty():
            self._look_for_lost()

    def _greet(self, client: str, page: Mapping[str, Any]) -> None:
        if page["token"] != self._token or len(self._hands) >= self._expect:
            self._runner.send_message(
                END, {"why": "the master already has all its workers"}, client
            )
        elif page["version"] != __version__:
            why = (
                f"the master has version {__version__} of Servegate, this worker has "
                f"{page['version']}"
            )
            self._runner.send_message(END, {"why": why}, client)
        elif client not in self._hands:
            number = len(self._hands)
            name = f"load worker {number} ({page['host']}, process {page['pid']})"
            self._hands[client] = _Hand(name, number, time.monotonic())
            self._pids[client] = int(page["pid"])

    def _heed(self, hand: _Hand, event: Event) -> None:
        hand.heard = time.monotonic()
        kind = event["type"]
        if kind in ("ready", "ended"):
            hand.state = kind
        elif kind == "begun":
            if not self._has_begun:
                self._has_begun = True
                self._tell(event)
        elif kind == "failed":
            raise CannotStart(f"{hand.name}: {event['what']}", why=event["why"])
        else:
            self._tell(event)

    def _look_for_lost(self) -> None:
        dead = self._dead()
        for client, hand in self._hands.items():
            if hand.state in ("ended", "lost"):
                continue
            if self._pids[client] in dead:
                self._lose(hand, "it exited")
            elif time.monotonic() - hand.heard > SILENCE:
                self._lose(hand, f"it sent nothing for {SILENCE:g} s")

    def _lose(self, hand: _Hand, why: str) -> None:
        if hand.state == "greeted":
            raise CannotStart(f"{hand.name} was lost before the start", why=why)
        hand.state = "lost"
        share = f"since then, about 1/{self._expect} of the calls were not made or not recorded"
        self._tell({"type": "problem", "text": f"{hand.name} was lost: {why}; {share}"})

    def _send(self, kind: str, page: Mapping[str, Any]) -> None:
        for client in self._hands:
            self._runner.send_message(kind, dict(page), client)

    def _take(self, environment: Any, msg: Any, **_: Any) -> None:
        self._inbox.put(msg)

    def _hear(self, client_id: str, **_: Any) -> None:
        if client_id in self._hands:
            self._hands[client_id].heard = time.monotonic()
