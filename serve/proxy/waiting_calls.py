"""Waking: calls that wait, bounded, for a pool that has been scaled to zero.

    begin ──▶ Asleep ──▶ wait ──┬─ it can be called ──▶ on_awake, with an attempt
                                ├─ its time is over, the worker stops ──▶ on_asleep
                                └─ the caller has left ──▶ forgotten

In the same way, for a moment, calls wait whose replicas have not loaded the version (`NotLoaded`):
with each look at the clock they begin anew.

A call that waits has no task, future or timer: it is an attempt that has not begun, in the order in
which they came. The sweeper begins those that can be by now, as many as admission lets in, and
gives up those whose time is over. None of this is met by a call that finds a replica.
"""

from collections.abc import Callable
from typing import Protocol

from serve.core import faults
from serve.core.calls import Call, Choice, Verb
from serve.core.errors import Asleep, NotLoaded, OutcomeUnknown, ServegateError
from serve.core.snapshot import Snapshot
from serve.proxy.attempts import NOWHERE, Attempt, Home

_NOTHING = Snapshot(0)


class WaitingBytes(Protocol):
    """Whoever holds the bytes of a call that waits. One of the two is called, once.

    Neither is after the waiting attempt was ended, because the caller has left, say.
    """

    def on_awake(self, attempt: Attempt) -> None:
        """The call goes on with this attempt, which has to be ended like any other."""

    def on_asleep(self, error: ServegateError) -> None:
        """It does not go on; that is counted."""

    def on_fault(self, error: Exception) -> None:
        """One of these has failed: end the call."""


class WaitingGateway(Home, Protocol):
    """The gateway, as calls that wait know it."""

    def begin(self, call: Call) -> Attempt:
        """The first attempt of a call; an error is counted, except `Asleep`."""


class Waiting(Attempt):
    """The place of an attempt that cannot begin yet. `left` and `failed` end it, and are counted.

    `until`: by the gateway's clock. `missing` is the error of a call whose pool is awake, and has
    not loaded the version; `asked` is that version.
    """

    __slots__ = ("_row", "asked", "missing", "until", "waiter")

    def __init__(
        self, home: Home, call: Call, waiter: WaitingBytes, until: float, row: "dict[Waiting, None]"
    ) -> None:
        super().__init__(home, call, None, _NOTHING, (), home.clock())
        self.waiter = waiter
        self.until = until
        self.missing: NotLoaded | None = None
        self.asked: Choice | None = None
        self._row = row  # of all that wait
        row[self] = None

    def __repr__(self) -> str:
        return f"<Waiting {self.call.model} {'ended' if self.is_ended else 'for its pool'}>"

    def end_quietly(self) -> None:
        """It waits no longer: it has begun, or has been refused, which was counted."""
        self._end()

    def _end(self) -> None:
        super()._end()
        self._row.pop(self, None)

    def _count(self, error: str) -> None:
        self._gateway.ended(self.call, self.asked, NOWHERE, error, self.begun, error=error)


class Waking:
    """The calls of one worker that wait: at most `calls` of them, each for `seconds` at most.

    `tell` is called when there is news in `wanted`.
    """

    def __init__(self, *, calls: int, seconds: float, tell: Callable[[], None]) -> None:
        self._calls = calls
        self._seconds = seconds
        self._tell = tell
        self._waiting: dict[Waiting, None] = {}
        self._in_vain: set[str] = set()  # models of calls that could not be kept
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<Waking {self.count} of {self._calls} calls>"

    @property
    def count(self) -> int:
        """How many calls wait."""
        return len(self._waiting)

    @property
    def waiting(self) -> dict[str, int]:
        """How many calls wait, by model."""
        found: dict[str, int] = {}
        for one in self._waiting:
            found[one.call.model] = found.get(one.call.model, 0) + 1
        return found

    def wanted(self) -> frozenset[str]:
        """The models of all who wait, and of those who could not be kept since this was asked."""
        in_vain, self._in_vain = self._in_vain, set()
        asleep = (one.call.model for one in self._waiting if one.missing is None)
        return frozenset(in_vain.union(asleep))

    def wait(self, home: Home, call: Call, waiter: WaitingBytes) -> Waiting:
        """Keep a call that `begin` has refused with `Asleep`; or refuse it, which is counted.

        Nobody waits to hear whether a model is ready: it is not, and a probe must not wake it.
        """
        why = self._objection(call)
        if why:
            self._wish(call)
            error = Asleep(call.model, why)
            home.ended(call, None, NOWHERE, error.code, home.clock(), error=error.code)
            raise error
        is_first = all(
            one.call.model != call.model or one.missing is not None for one in self._waiting
        )
        until = min(call.deadline, home.clock() + self._seconds)
        waiting = Waiting(home, call, waiter, until, self._waiting)
        if is_first:
            self._tell()
        return waiting

    def wait_loaded(
        self, home: Home, attempt: Attempt, waiter: WaitingBytes, error: NotLoaded
    ) -> Waiting:
        """Keep a call whose attempt has ended with this error; or refuse it, which is counted.

        A call that begins anew has come when it first came, so it does not wait for ever.
        """
        if not error.until:
            raise error
        call, until = attempt.call, min(attempt.call.deadline, error.until)
        if until <= home.clock() or self._is_closed or self.count >= self._calls:
            code, begun = error.code, attempt.begun
            home.ended(call, attempt.choice, attempt.replica, code, begun, error=code)
            raise error
        waiting = Waiting(home, call, waiter, until, self._waiting)
        waiting.came_at(attempt.begun)
        waiting.missing, waiting.asked = error, attempt.choice
        return waiting

    def _wish(self, call: Call) -> None:
        """Whoever is refused finds the pool awake the next time."""
        if call.verb is not Verb.READY and call.model not in self._in_vain:
            self._in_vain.add(call.model)
            self._tell()

    def _objection(self, call: Call) -> str:
        if call.verb is Verb.READY:
            return "its pool has been scaled to zero"
        if self._is_closed:
            return "its pool has been scaled to zero, and this worker is stopping"
        if self.count >= self._calls:
            kept = f"{self._calls} calls are already waiting"
            return f"its pool is starting, and {kept} (limit: waking_calls)"
        return ""

    def sweep(self, home: WaitingGateway) -> None:
        """Look at the clock, and begin what can be begun by now, in the order in which it came."""
        if not self._waiting:
            return
        now, asleep = home.clock(), set[tuple[str, str]]()
        for one in tuple(self._waiting):
            call = one.call
            if one.is_ended:
                continue  # by what came of another
            if one.until <= now:
                self._give_up(one, f"its pool did not start within {now - one.begun:.3g} s")
            elif (call.model, call.selector) in asleep or not home.admission.has_room(call.model):
                continue
            elif not _begin(home, one):
                asleep.add((call.model, call.selector))

    def close(self) -> None:
        """The worker stops: nobody waits any more. What waited was not executed."""
        self._is_closed = True
        for one in tuple(self._waiting):
            self._give_up(one, "its pool is starting, but this worker is stopping")

    def _give_up(self, one: Waiting, why: str) -> None:
        if not one.is_ended:
            error = one.missing or Asleep(one.call.model, why)
            one.failed(error)
            _give_up(one, error)


def _begin(home: WaitingGateway, one: Waiting) -> bool:
    """Go on with a call; whether that was possible, be it that its end has come."""
    try:
        attempt = home.begin(one.call)
    except Asleep:
        return False
    except ServegateError as error:
        one.end_quietly()
        _give_up(one, error)
        return True
    attempt.came_at(one.begun)
    one.end_quietly()
    try:
        one.waiter.on_awake(attempt)
    except Exception as fault:  # of this call, not of those behind it
        one.waiter.on_fault(fault)
        attempt.failed(OutcomeUnknown(faults.WHAT, why=repr(fault)))
    return True


def _give_up(one: Waiting, error: ServegateError) -> None:
    try:
        one.waiter.on_asleep(error)
    except Exception as fault:
        one.waiter.on_fault(fault)
