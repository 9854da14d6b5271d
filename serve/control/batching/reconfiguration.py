"""One change of a configuration, from its wish to its end.

    checked ─▶ trying ─▶ measuring ─▶ applying ─▶ watching ─▶ done: applied
      │          │                      │            │ ├────▶ done: replaced (by a later change)
      │          └─▶ done: refused      └────────────┴─┴────▶ taking back ─▶ done: taken back
      └─ raised at once

What cannot be told in these words, such as a store that is gone, ends as `failed`.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from serve.control.batching.regressions import CallWindow
from serve.control.models import By
from serve.core.errors import ServegateError
from serve.triton.config import Configuration


class Phase(StrEnum):
    """The phase of a change."""

    TRYING = "trying"
    MEASURING = "measuring"
    APPLYING = "applying"
    WATCHING = "watching"
    TAKING_BACK = "taking back"
    DONE = "done"


class ChangeOutcome(StrEnum):
    """How a change has ended."""

    APPLIED = "applied"
    TAKEN_BACK = "taken back"
    REFUSED = "refused"
    REPLACED = "replaced"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class ChangeRequest:
    """What somebody wants. `watch` is seconds; `tuned` what was measured, if anything was."""

    fields: Mapping[str, Any]
    by: By
    watch: float = 0.0
    tuned: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Reconfiguration:
    """`since` is when it came into its phase and `watch_until` when its watch ends, in seconds of
    the epoch. `former` is the body that was decided before, `etag` that of this change once it is
    written. `told` is for people; `error` says why it has not come to pass.

    `resumed` is one that an earlier control plane has written.
    """

    model: str
    version: int
    name: str
    group: str
    wish: ChangeRequest
    since: float
    config: Configuration | None = None
    phase: Phase = Phase.TRYING
    outcome: ChangeOutcome | None = None
    told: str = ""
    watch_until: float | None = None
    before: CallWindow = field(default_factory=CallWindow)
    former: Mapping[str, Any] | None = None
    etag: str = ""
    resumed: bool = False
    error: ServegateError | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event, repr=False)
    followed: asyncio.Event = field(default_factory=asyncio.Event, repr=False)  # by a later one

    def enter(self, phase: Phase, at: float, told: str = "") -> None:
        """Go on to a phase."""
        self.phase, self.since, self.told = phase, at, told or self.told

    def end(self, outcome: ChangeOutcome, at: float, told: str = "") -> None:
        """It is over, once."""
        if self.outcome is None:
            self.enter(Phase.DONE, at, told)
            self.outcome = outcome
            self.ended.set()

    @property
    def is_open(self) -> bool:
        """Whether no other change may begin now."""
        return self.outcome is None and self.phase is not Phase.WATCHING

    def body(self) -> dict[str, Any]:
        """What is decided."""
        body: dict[str, Any] = {"fields": dict(self.wish.fields), "group": self.group}
        if self.wish.tuned:
            body["tuned"] = dict(self.wish.tuned)
        if self.watch_until is not None:
            body["watch"] = {"until": round(self.watch_until, 1), **self.before.to_json()}
        return body
