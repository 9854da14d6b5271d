"""Lasting: a hint that can only be held is held at what was asked for last, if that is more.

Who follows hints may have begun to start replicas of which nobody knows here, such as pods that are
pending; a hold at what is there would stop them. So the last number of each pool is remembered, and
kept in a file for a control plane that starts anew: its hints begin where those before ended.
"""

import contextlib
import json
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from serve.capacity.scaling.signals import HOLDS, Bounds, ReplicaHint

_LASTS = 300.0  # seconds for which another process's numbers mean anything
_AGAIN = 60.0  # seconds after which the same numbers are written again
_log = logging.getLogger("servegate.scaling")


class Lasting:
    """The last numbers. `wall`: seconds of the epoch."""

    def __init__(self, file: Path, *, wall: Callable[[], float]) -> None:
        self._file = file
        self._wall = wall
        self._last: dict[str, int] = {}
        self._saved: tuple[float, dict[str, int]] = (0.0, {})

    def __repr__(self) -> str:
        return f"<Lasting {self._last}>"

    def hold(self, hint: ReplicaHint, bounds: Bounds) -> ReplicaHint:
        """The hint; where it is only held, at no less than was asked for last."""
        if hint.codes & HOLDS:
            last = min(self._last.get(hint.pool, 0), bounds.highest)
            hint = replace(hint, desired=max(hint.desired, last))
        self._last[hint.pool] = hint.desired
        return hint

    def read(self) -> None:
        """Go on where another process has ended, if that was not long ago."""
        try:
            page = json.loads(self._file.read_text("utf-8"))
            if 0 <= self._wall() - float(page["at"]) < _LASTS:
                self._last = {str(pool): int(count) for pool, count in page["desired"].items()}
        except FileNotFoundError:
            pass
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            _log.warning("cannot read the saved hints: %s", error)

    def write(self) -> None:
        """Keep the numbers, if they are new; a disk that is full is no reason to have no hints."""
        now, (at, known) = self._wall(), self._saved
        if known == self._last and now - at < _AGAIN:
            return
        draft = self._file.with_suffix(".part")
        with contextlib.suppress(OSError):
            draft.write_text(json.dumps({"at": now, "desired": self._last}), "utf-8")
            draft.replace(self._file)
            self._saved = now, dict(self._last)
