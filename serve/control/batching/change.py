"""Performing a change: tried, written, brought to every replica, watched, and perhaps taken back.

A change that makes something worse is taken back by writing what was decided before, with a reason.
While it was not watched to its end, a control plane that begins anew goes on where it finds it: the
change is in force, and the window before it is kept with it.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from serve.control.batching.checks import Checks
from serve.control.batching.reconfiguration import ChangeOutcome, Phase, Reconfiguration
from serve.control.batching.regressions import FEW, CallWindow, ChangeVerdict, judged, window
from serve.control.batching.rollout import Rollout, Rollouts
from serve.control.batching.served import Served
from serve.control.decisions import Decisions
from serve.control.live import gateway_metrics
from serve.control.live.gateway_metrics import GatewayReading
from serve.control.revision import CONFIGURATION
from serve.control.snapshots import Publisher
from serve.control.storage.store import Store, StoreEdit, etag
from serve.core.errors import Conflict, Invalid, PreconditionFailed, ServegateError
from serve.core.objectives import Objective
from serve.processes import Clock

SERVEGATE = "servegate"  # the author of what nobody asked for in person
WITHIN = 900.0  # seconds for all replicas together
_LONGEST_BEFORE = 15.0  # seconds of the window before a change
_PAUSE = 1.0  # seconds between two looks at the gateway's metrics
_FOLLOW = 5.0  # seconds for every worker to follow
_LONGEST_REASON = 1000  # characters
_log = logging.getLogger("servegate.configuring")


class ChangeRunner:
    """Performs changes. `metrics` is the gateway's text, `wall` seconds of the epoch."""

    def __init__(
        self,
        store: Store,
        rollouts: Rollouts,
        publisher: Publisher,
        checks: Checks,
        *,
        decisions: Callable[[], Decisions],
        reload: Callable[[], Awaitable[None]],
        metrics: Callable[[], Awaitable[str]],
        clock: Clock,
        wall: Callable[[], float],
        within: float = WITHIN,
    ) -> None:
        self._store = store
        self._rollouts = rollouts
        self._publisher = publisher
        self._checks = checks
        self._decisions = decisions
        self._reload = reload
        self._metrics = metrics
        self._clock = clock
        self._wall = wall
        self._within = within

    def __repr__(self) -> str:
        return f"<ChangeRunner {self._rollouts!r}>"

    async def perform(self, one: Reconfiguration, served: Served) -> None:
        """Bring it to its end, whatever that is."""
        try:
            if not one.resumed and not await self._begin(one, served):
                return
            await self._apply(one)
        except ServegateError as error:
            one.error = error
            one.end(ChangeOutcome.FAILED, self._wall(), str(error))
            _log.warning("changing the configuration of %s failed: %s", one.name, error)

    async def _begin(self, one: Reconfiguration, served: Served) -> bool:
        """Try and measure; whether it may be written."""
        assert one.config is not None
        one.enter(Phase.TRYING, self._wall())
        try:
            if not await self._checks.require_good(served, one.config):
                one.told = "it was not tried, because this machine has no Triton for quarantine"
        except Invalid as error:
            one.error = error
            one.end(ChangeOutcome.REFUSED, self._wall(), str(error))
            return False
        if one.wish.watch:
            one.enter(Phase.MEASURING, self._wall())
            one.before = await self._measure(one, min(one.wish.watch, _LONGEST_BEFORE))
            one.watch_until = self._wall() + one.wish.watch
        return True

    async def _apply(self, one: Reconfiguration) -> None:
        """Write it and wait until it is everywhere; then watch it."""
        rollout = self._rollouts.begin(one.name)
        one.enter(Phase.APPLYING, self._wall())
        if not one.resumed:
            one.former = self._decisions().entry(CONFIGURATION, one.name).body
            by = one.wish.by
            one.etag = await self._write(one.name, one.body(), by.author, by.reason, by.if_match)
        why = await rollout.reached(one.etag, self._within)
        if not why and not self._is_mine(one):
            one.end(ChangeOutcome.REPLACED, self._wall(), "it was changed again in the meantime")
            return
        if why:
            await self._take_back(one, why)
            return
        generation = await self._publisher.refresh()
        await self._publisher.in_force(generation, _FOLLOW)
        if one.watch_until is None:
            one.end(ChangeOutcome.APPLIED, self._wall())
            return
        if not one.resumed:
            one.watch_until = self._wall() + one.wish.watch
        one.enter(Phase.WATCHING, self._wall())
        verdict = await self._watch(one, rollout, one.watch_until)
        if verdict is None or not self._is_mine(one):
            one.end(
                ChangeOutcome.REPLACED, self._wall(), "it was changed again before its watch ended"
            )
        elif verdict.why:
            await self._take_back(one, verdict.why)
        else:
            one.end(ChangeOutcome.APPLIED, self._wall(), verdict.told)

    async def _take_back(self, one: Reconfiguration, why: str) -> None:
        one.enter(Phase.TAKING_BACK, self._wall(), why)
        _log.warning("rolling back the configuration of %s: %s", one.name, why)
        body = {k: v for k, v in (one.former or {}).items() if k != "watch"}
        if not body or str(body.get("group", "")) != one.group:
            body = {"fields": {}, "group": one.group}
        rollout = self._rollouts.begin(one.name)
        try:
            reason = f"rolled back: {why}"[:_LONGEST_REASON]
            now = await self._write(one.name, body, SERVEGATE, reason, one.etag)
        except PreconditionFailed:
            one.end(
                ChangeOutcome.REPLACED,
                self._wall(),
                f"it was changed again before the rollback: {why}",
            )
            return
        left = await rollout.reached(now, self._within)
        told = f"{why}; the rollback is not complete: {left}" if left else why
        one.error = Conflict(f"the configuration of '{one.model}' was rolled back", why=told)
        one.end(ChangeOutcome.TAKEN_BACK, self._wall(), told)

    async def _write(self, name: str, body: Any, author: str, reason: str, if_match: str) -> str:
        change = StoreEdit(CONFIGURATION, name, body, author, reason, if_match)
        revision = await self._store.apply(change)
        await self._reload()
        await self._publisher.refresh()
        return etag(revision)

    def _is_mine(self, one: Reconfiguration) -> bool:
        """Whether what it wrote is what is decided."""
        return self._decisions().entry(CONFIGURATION, one.name).etag == one.etag

    # --- what callers see ------------------------------------------------------------------------

    async def _measure(self, one: Reconfiguration, seconds: float) -> CallWindow:
        """The calls of the next seconds."""
        first = await self._reading()
        await self._clock.sleep(seconds)
        last = await self._reading()
        if first is None or last is None:
            return CallWindow()
        return window(one.model, self._objective(one.model), first, last)

    async def _watch(
        self, one: Reconfiguration, rollout: Rollout, until: float
    ) -> ChangeVerdict | None:
        """What is found until then; None when another change follows."""
        objective = self._objective(one.model)
        first, verdict = (
            await self._reading(),
            ChangeVerdict(told=f"fewer than {FEW} calls were seen"),
        )
        while not one.followed.is_set() and self._is_mine(one):
            left = until - self._wall()
            await self._clock.sleep(min(max(left, 0.0), _PAUSE))
            why = rollout.trouble(one.etag)
            if why:
                return ChangeVerdict(why)
            now = await self._reading()
            first = first or now
            if first is not None and now is not None:
                seen = window(one.model, objective, first, now)
                verdict = judged(one.before, seen, objective, ended=left <= _PAUSE)
            if verdict.why or left <= _PAUSE:
                return verdict
        return None

    async def _reading(self) -> GatewayReading | None:
        try:
            return gateway_metrics.read(await self._metrics())
        except (ServegateError, OSError, ValueError, KeyError) as error:
            _log.debug("the gateway returns no metrics: %s", error)
            return None

    def _objective(self, model: str) -> Objective | None:
        text = self._decisions().objective(model)
        return Objective.parse(text) if text else None
