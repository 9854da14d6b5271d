"""Admission: a finite number of calls in flight per model; beyond it a call is refused at once.

Theory. Triton answers in the order in which calls come. When more are in flight than it can answer
before callers give up, each call waits behind others that no caller waits for any more, and hardly
any is answered in time. So the limit follows those who give up:

    in flight ──answered──▶ rate, and how long calls usually take
        └─────gave up─────▶ patience: how long the callers waited

    more than a tenth gave up after twice the usual time ──▶ limit = rate · patience / 2
    not so for a while                                   ──▶ the limit rises, up to the setting

(Little's law: calls in flight = rate · time. Half of the patience leaves room for what varies.) It
never falls below what keeps Triton busy, rate · usual time, so callers who leave early cost the
others no throughput. A client process that ends leaves all its calls in one moment, which does not
show how long callers wait: those who gave up must be spread over three moments. Only `infer` calls
are looked at: others take as long as they like.
"""

import math
from collections.abc import Callable, Mapping
from statistics import median

from serve.core.errors import Overloaded
from serve.proxy.loads import Loads

FEWEST = 4  # calls that are let in at any time
WINDOW = 0.3  # seconds between two looks
ENOUGH = 10  # calls that a look needs
STALE = 60.0  # seconds after which fewer calls than that are forgotten, and the limit as well
SHARE = 0.1  # of the calls that may give up
MOMENTS = 3  # between two sweeps each, in which callers gave up
LONGEST_LOOK = 2.0  # seconds in which these must lie
FORGETTING = 300.0  # seconds in which the usual time may double
RISE, PAUSE = 1.05, 5.0  # the factor by which the limit rises, and seconds between two rises
LONGEST_RETRY = 30  # seconds

Answers = tuple[int, float]  # a number of calls, and how many seconds they took together
_NONE: Answers = (0, 0.0)


class CompletionRate:
    """How fast the calls of one model end, and how long callers wait, since `since`."""

    __slots__ = ("before", "changed", "ended", "limit", "rate", "since", "usual", "waits")

    def __init__(self, now: float) -> None:
        self.limit = math.inf  # calls in flight
        self.changed = now  # when it was
        self.rate = 0.0  # calls per second that ended, as of the last look
        self.usual = math.inf  # seconds that a call takes when Triton is not overloaded
        self.begin(now, _NONE)

    def __repr__(self) -> str:
        return f"<CompletionRate limit={self.limit:g} rate={self.rate:.3g} usual={self.usual:.3g}>"

    def begin(self, now: float, answers: Answers) -> None:
        """What is looked at begins now."""
        self.since = now
        self.before = answers
        self.ended = 0  # calls that no caller waited for
        self.waits: list[tuple[float, int]] = []  # seconds of callers who gave up, and the moment

    def look(self, now: float, answers: Answers, most: int) -> None:
        """Set the limit by what was seen, when that is enough."""
        passed, answered = now - self.since, answers[0] - self.before[0]
        if answered + len(self.waits) < ENOUGH or not passed:
            if passed > STALE:
                self.limit = math.inf
                self.begin(now, answers)
            return
        self.rate = (answered + self.ended) / passed
        usual = self.usual
        if answered >= ENOUGH:
            seconds = (answers[1] - self.before[1]) / answered
            usual = min(usual * (1.0 + passed / FORGETTING), seconds)
        known = usual if usual < math.inf else 0.0
        late = self.waits
        if answered > SHARE * len(late):  # else hardly any is answered, whatever is usual
            late = [wait for wait in late if wait[0] >= 2.0 * known]
        are_many = len(late) > SHARE * (len(late) + answered)
        are_spread = len({moment for _, moment in late}) >= MOMENTS
        if are_many and not are_spread and passed < LONGEST_LOOK:
            return
        self.usual = usual
        if are_many and are_spread:
            patience = median(seconds for seconds, _ in late)
            wanted = max(FEWEST, self.rate * known, self.rate * patience / 2.0)
            if self.rate and wanted < min(self.limit, most):
                self.limit = wanted
            self.changed = now
        elif now - self.changed >= PAUSE:
            self.changed = now
            self.limit = self.limit * RISE if self.limit * RISE < most else math.inf
        self.begin(now, answers)


class Admission:
    """The limit holds for each model by itself, so that one busy model cannot starve the others."""

    def __init__(self, loads: Loads, *, limit: int) -> None:
        self._loads = loads
        self._limit = limit
        self._paces: dict[str, CompletionRate] = {}
        self._limits: dict[str, int] = {}  # of models whose callers give up
        self._now = 0.0  # as of the last look
        self._sweeps = 0  # so far

    def __repr__(self) -> str:
        return f"<Admission limit={self._limit} per model, lower={self._limits}>"

    @property
    def limits(self) -> dict[str, int]:
        """The limits in force that are lower than the setting, by model."""
        return self._limits

    def enter(self, model: str) -> None:
        """Count the call in, or refuse it with `Overloaded`."""
        models = self._loads.models
        count = models.get(model, 0)
        limit = self._limits.get(model, self._limit)
        if count >= limit:
            raise self._overloaded(model, limit)
        models[model] = count + 1

    def check(self, model: str) -> None:
        """Refuse with `Overloaded` what `enter` would refuse now; nothing is counted."""
        if not self.has_room(model):
            raise self._overloaded(model, self._limits.get(model, self._limit))

    def has_room(self, model: str) -> bool:
        """Whether one more would be let in now."""
        limit = self._limits.get(model, self._limit)
        return self._loads.models.get(model, 0) < limit

    def leave(self, model: str) -> None:
        """Count the call out; exactly once for every `enter` that did not raise."""
        models = self._loads.models
        count = models[model] - 1
        if count:
            models[model] = count
        else:
            del models[model]

    def _overloaded(self, model: str, limit: int) -> Overloaded:
        """The refusal, with the time in which those in flight will be answered."""
        seconds = min(max(1, math.ceil(self.wait(model))), LONGEST_RETRY)
        return Overloaded(model, limit, seconds, by_patience=model in self._limits)

    def wait(self, model: str) -> float:
        """Seconds in which the calls in flight will be answered, as far as that is known."""
        pace = self._paces.get(model)
        count = self._loads.models.get(model, 0)
        return count / pace.rate if pace is not None and pace.rate else 1.0

    # --- what came of the calls -------------------------------------------------------------------

    def gave_up(self, model: str, seconds: float) -> None:
        """The caller of a call that was sent has waited so long, and waits no longer."""
        pace = self._paces.get(model)
        if pace is None:
            pace = self._paces[model] = CompletionRate(self._now)
        pace.waits.append((seconds, self._sweeps))

    def ended(self, model: str) -> None:
        """A replica is done with a call that no caller waits for: count it out."""
        self.leave(model)
        pace = self._paces.get(model)
        if pace is not None:
            pace.ended += 1

    def sweep(self, now: float, answers: Callable[[], Mapping[str, Answers]]) -> None:
        """Look at what came of the calls, and set the limits by it.

        `answers` gives the good answers of each model so far.
        """
        self._sweeps += 1
        last, is_first = self._now, not self._now
        if now - last < WINDOW and not is_first:
            return
        self._now = now
        totals = answers()
        for model in totals.keys() - self._paces.keys():
            self._paces[model] = CompletionRate(now if is_first else last)
        for model, pace in self._paces.items():
            pace.look(now, totals.get(model, _NONE), self._limit)
            if pace.limit < self._limit:
                self._limits[model] = int(pace.limit)
            else:
                self._limits.pop(model, None)
