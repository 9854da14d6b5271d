"""The access log: one JSON object per line and call, of a share of the good ones and all others.

| field                              | what it says                                              |
|------------------------------------|-----------------------------------------------------------|
| `time`                             | when the call ended, RFC 3339 with milliseconds           |
| `protocol`, `verb`, `model`        | what was asked                                            |
| `version`, `by`, `generation`      | which version answered, why, and by which snapshot        |
| `replica`, `tries`                 | who answered, and how many were asked                     |
| `code`, `error`                    | the answer's status, or the code of an error of our own   |
| `received`, `answered`             | bytes of bodies                                           |
| `seconds`                          | from a complete head to a complete answer                 |
| `upstream_seconds`, `added_seconds`| the replica's share of it, and ours; null when unknown    |
| `request_id`, `trace_id`, `key`    | names of the call, its trace, and the key that was shown  |
| `peer`                             | the caller's address                                      |

A credential is never among them. Writing is bounded: what is more than `MOST` lines in a second is
only counted, so that a storm of refused calls cannot fill a disk.
"""

import json
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from prometheus_client.core import CounterMetricFamily, Metric

from serve.app.access_log_file import LogFile
from serve.app.spans import parent_of
from serve.core.calls import Account, Choice
from serve.proxy.journal import EndedCall

MOST = 200  # lines in a second, of one worker


class AccessLog:
    """One worker's lines; see `proxy.journal.Journal`. `flush` is called every 100 ms.

    `share` is that of the good calls; `draw` gives a number in [0, 1), `clock` monotonic seconds,
    `wall` seconds of the epoch.
    """

    def __init__(
        self,
        file: LogFile,
        *,
        share: float,
        draw: Callable[[], float],
        clock: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self._file = file
        self._share = share
        self._draw = draw
        self._clock = clock
        self._wall = wall
        self._lines: list[str] = []
        self._second = clock()  # when the present second began
        self._count = 0  # lines in it
        self._dropped = 0

    def __repr__(self) -> str:
        return f"<AccessLog {self._file!r} share={self._share} dropped={self._dropped}>"

    def takes(self) -> bool:
        """Whether the next good call is to be written down."""
        return self._draw() < self._share

    def write(self, ended: EndedCall) -> None:
        """One line, unless there were too many in this second."""
        now = self._clock()
        if now - self._second >= 1.0:
            self._second, self._count = now, 0
        if self._count >= MOST:
            self._dropped += 1
            return
        self._count += 1
        call, error, account = ended.call, ended.error, ended.account()
        line = {
            "time": _time(self._wall()),
            "protocol": call.protocol,
            "verb": call.verb.value,
            "model": call.model,
            **_decision(ended.choice),
            "replica": ended.replica.name,
            "tries": ended.tries,
            "code": "" if error else ended.code,
            "error": error,
            **_measures(account, ended.seconds),
            **_names(account),
            "key": ended.key,
            "peer": account.peer,
        }
        self._lines.append(json.dumps(line, separators=(",", ":")))

    def flush(self) -> None:
        """Write down what has come since the last time."""
        if self._lines:
            lines, self._lines = self._lines, []
            if not self._file.write(("\n".join(lines) + "\n").encode()):
                self._dropped += len(lines)

    def close(self) -> None:
        """Write down the rest."""
        self.flush()
        self._file.close()

    def collect(self) -> Iterable[Metric]:
        """How many lines were left out, for Prometheus."""
        dropped = CounterMetricFamily(
            "servegate_access_log_dropped",
            "Access log lines that were dropped because of the rate limit or a write error",
        )
        dropped.add_metric((), self._dropped)
        return (dropped,)


def _decision(choice: Choice | None) -> dict[str, str | int]:
    if choice is None:
        return {"version": "", "by": "", "generation": 0}
    return {"version": choice.labels[1], "by": choice.by, "generation": choice.generation}


def _measures(account: Account, seconds: float) -> dict[str, float | None]:
    upstream = min(account.upstream, seconds) or None
    return {
        "received": account.received,
        "answered": account.answered,
        "seconds": round(seconds, 6),
        "upstream_seconds": upstream and round(upstream, 6),
        "added_seconds": upstream and round(seconds - upstream, 6),
    }


def _names(account: Account) -> dict[str, str]:
    parent = parent_of(account.traceparent) if account.traceparent else None
    return {"request_id": account.request_id, "trace_id": "" if parent is None else parent.trace}


def _time(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"
