"""Outliers: replicas that answer probes and fail calls are ejected, and probed by single calls.

                 5 failures in a row, more than the others'       its time is over
    in rotation ─────────────────────────────────────────▶ ejected ───────────▶ probed by one call
        ▲                                                     ▲                      │      │
        │                                                     └───── it fails ───────┘      │
        └──────────────────────────── a good answer ────────────────────────────────────────┘

| what became of a call                                  | counts for                             |
|--------------------------------------------------------|----------------------------------------|
| reset, EOF, half an answer, garbage                    | the version there, and the replica     |
| 500, 502, 504 / INTERNAL                               | the version there                      |
| a good answer                                          | ends the row of both                   |
| any other answer                                       | ends the row of the replica            |

A caller can make any replica fail: Triton answers 500 for a malformed body. So a row counts only if
it would be a rare event on a replica that fails as often as the others have since it began, and at
most half of the replicas that hold a version are ejected. Five failures are enough where the last
answer of every other replica was good. What is learned here is of this worker.

While no call has failed `rows` is empty, and nothing here is called.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

IN_A_ROW = 5
RARE = 1e-6
HEALTHY = 7  # good calls that others are taken to have had where none of them is in a row
BASE = 5.0  # seconds: about the time in which a small Triton that has died is there again
LONGEST = 60.0
JITTER = 0.5  # so much longer at most, so that workers do not probe at the same time
PROBE = 30.0  # seconds after which a probe that has not ended is not waited for
FORGOTTEN = 600.0  # seconds without a failure after which a row is forgotten

_log = logging.getLogger("servegate.outliers")


@dataclass(slots=True)
class FailureRow:
    """Failures in a row. `good` and `bad` count calls of the other replicas since it began.

    It is ejected when there were `ejections` in a row: until then, or until its `probe` has ended.
    """

    failures: int = 0
    good: int = 0
    bad: int = 0
    last: float = 0.0
    ejections: int = 0
    until: float = 0.0
    probe: object | None = None

    @property
    def is_outlier(self) -> bool:
        """Whether so many failures in a row would be rare if it were like the others."""
        others = (self.bad + 0.5) / (self.good + self.bad + 2)
        return self.failures >= IN_A_ROW and others**self.failures < RARE


class Outliers:
    """The rows of failures of one worker, by replica and target; the target `""` is all of them.

    `draw` gives the jitter. A probe is told by the call that it is: any object.
    """

    def __init__(self, clock: Callable[[], float], draw: Callable[[], float]) -> None:
        self._clock = clock
        self._draw = draw
        self.rows: dict[tuple[str, str], FailureRow] = {}

    def __repr__(self) -> str:
        return f"<Outliers ejected={self.ejected}>"

    @property
    def ejected(self) -> list[tuple[str, str]]:
        """What is out of rotation, by replica and target."""
        return sorted(key for key, row in self.rows.items() if row.ejections)

    def avoided(self, target: str) -> set[str]:
        """The replicas that are ejected for this target, apart from those that may be probed."""
        now, about, old = self._clock(), ("", target), []
        found = set()
        for key, row in self.rows.items():
            if row.until > now:
                if key[1] in about:
                    found.add(key[0])
            elif row.last < now - FORGOTTEN:
                old.append(key)
        for key in old:
            del self.rows[key]
        return found

    def is_ejected(self, replica: str, target: str) -> bool:
        """Whether it gets no calls but probes."""
        return any(row.ejections for row in self._rows(replica, target))

    def picked(self, replica: str, target: str, call: object) -> None:
        """The replica gets this call, which is a probe if it is ejected and its time is over."""
        now = self._clock()
        for row in self._rows(replica, target):
            if row.ejections and row.until <= now:
                row.probe, row.until = call, now + PROBE

    def let_go(self, replica: str, target: str, call: object) -> None:
        """The call has ended and shows nothing: if it was a probe, the next call is one."""
        for row in self._rows(replica, target):
            if row.probe is call:
                row.probe, row.until = None, self._clock()

    def answered(self, replica: str, target: str, *, good: bool) -> None:
        """The replica has given a whole answer, which was no failure of its own."""
        self.rows.pop((replica, ""), None)
        if not good:
            return
        self.rows.pop((replica, target), None)
        for (_, about), row in self.rows.items():
            if about in ("", target):
                row.good += 1

    def failed(
        self, replica: str, target: str, call: object, holders: Sequence[str], *, broke: bool
    ) -> bool:
        """The replica has failed a call; whether it is ejected now. `holders` has all that could.

        `broke` says that no whole answer came.
        """
        now, is_ejected = self._clock(), False
        if not broke:
            self.rows.pop((replica, ""), None)
        for (name, about), row in self.rows.items():
            if name != replica and (about == target or (broke and not about)):
                row.bad += 1
        for about in ("", target) if broke else (target,):
            if (replica, about) not in self.rows:
                is_alone = all(of != about for _, of in self.rows)
                self.rows[replica, about] = FailureRow(good=HEALTHY if is_alone else 0)
            row = self.rows[replica, about]
            row.failures += 1
            row.last = now
            if row.ejections:
                is_again = row.probe is call
                row.probe = None if is_again else row.probe
            else:
                is_again = row.is_outlier and self._may_eject(replica, target, holders)
            if is_again:
                is_ejected = is_ejected or not row.ejections
                row.ejections += 1
                length = min(BASE * row.ejections, LONGEST) * (1 + JITTER * self._draw())
                row.until = now + length
                what = f"calls of {about}" if about else "all calls"
                _log.warning(
                    "replica %s is ejected for %s for %.3g s after %d failures in a row",
                    *(replica, what, length, row.failures),
                )
        return is_ejected

    def keep(self, replicas: Iterable[str]) -> None:
        """Forget all other replicas: they have left, or are others by the same name."""
        kept = set(replicas)
        self.rows = {key: row for key, row in self.rows.items() if key[0] in kept}

    def _may_eject(self, replica: str, target: str, holders: Sequence[str]) -> bool:
        """Never more than half of those that hold a version; this one may be ejected already."""
        ejected = {name for name in holders if self.is_ejected(name, target)} | {replica}
        return 2 * len(ejected) <= len(holders)

    def _rows(self, replica: str, target: str) -> list[FailureRow]:
        rows = (self.rows.get((replica, ""))), self.rows.get((replica, target))
        return [row for row in rows if row is not None]
