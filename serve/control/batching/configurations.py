"""Serving configurations as people change them: shown, changed, and given back what they had.

A change is one decision (`control/revision.py`). It is refused where lint or a trial finds it
wrong, comes to one replica after the other without a failed call, and is taken back when it turns
out to be worse; see `reconfiguration.py` for the way of one.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from serve.control.batching.change import ChangeRunner
from serve.control.batching.checks import Checks
from serve.control.batching.reconfiguration import ChangeOutcome, ChangeRequest, Reconfiguration
from serve.control.batching.regressions import CallWindow
from serve.control.batching.rollout import ReplicaState, Rollouts
from serve.control.batching.served import Served, named, served
from serve.control.inventory import Inventory
from serve.control.models import By, Models, Written
from serve.control.revision import CONFIGURATION
from serve.control.storage.store import Store
from serve.core.errors import Conflict, Invalid, PreconditionFailed, ServegateError, Unavailable
from serve.triton.canonical import canonical_of
from serve.triton.config import Configuration, parse
from serve.triton.config_revisions import revised
from serve.triton.lint import Diagnosis

_EMPTY = parse("")
_log = logging.getLogger("servegate.configuring")


@dataclass(frozen=True, slots=True)
class ShownConfiguration:
    """What a version is run by, and how far that is. `at` is seconds of the epoch, 0 for never."""

    served: Served
    findings: tuple[Diagnosis, ...]
    replicas: Mapping[str, ReplicaState]
    author: str
    reason: str
    at: float
    change: Reconfiguration | None


class Configuring:
    """The commands. `run` performs the changes, also when nobody waits for them any more."""

    def __init__(
        self,
        store: Store,
        models: Models,
        inventory: Inventory,
        rollouts: Rollouts,
        checks: Checks,
        performing: ChangeRunner,
        *,
        generation: Callable[[], int],
        wall: Callable[[], float],
    ) -> None:
        self._store = store
        self._models = models
        self._inventory = inventory
        self._rollouts = rollouts
        self._checks = checks
        self._performing = performing
        self._generation = generation
        self._wall = wall
        self._newest: dict[str, Reconfiguration] = {}  # by name in Triton
        self._begun: asyncio.Queue[tuple[Reconfiguration, Served]] = asyncio.Queue()

    def __repr__(self) -> str:
        return f"<Configuring {sorted(self._newest)}>"

    async def run(self) -> None:
        """Perform what is begun, and what an earlier control plane has left; for ever."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._resume())
                while True:
                    tasks.create_task(self._perform(*await self._begun.get()))
        finally:
            for one in self._newest.values():
                one.error = one.error or Unavailable("the control plane is stopping")
                one.end(
                    ChangeOutcome.FAILED,
                    self._wall(),
                    "the control plane stopped during the change",
                )

    # --- questions -------------------------------------------------------------------------------

    async def show(self, model: str, version: int) -> ShownConfiguration:
        """What a version is run by; `UnknownModel`, `UnknownVersion`, `Invalid` where it cannot."""
        one = served(self._models, self._inventory, model, version)
        return await self._shown(one, await self._checks.findings(one, one.effective))

    async def preview(
        self, model: str, version: int, fields: Mapping[str, Any], by: By
    ) -> ShownConfiguration:
        """The same, with the findings that a change would bring; refused as `set` refuses it.

        Nothing is tried, and nothing is written.
        """
        one, _, findings = await self._checked(model, version, fields, by)
        return await self._shown(one, findings)

    async def _shown(self, one: Served, findings: tuple[Diagnosis, ...]) -> ShownConfiguration:
        rows = await self._store.history(kind=CONFIGURATION, key=one.name, limit=1)
        row = rows[0] if rows and one.decided.etag == f'"{rows[0]["id"]}"' else None
        return ShownConfiguration(
            served=one,
            findings=findings,
            replicas=self._rollouts.states(one.name),
            author=row["author"] if row else "",
            reason=row["reason"] if row else "",
            at=row["at"] if row else 0.0,
            change=self._newest.get(one.name),
        )

    # --- commands --------------------------------------------------------------------------------

    async def set(
        self, model: str, version: int, wish: ChangeRequest, *, wait: bool = True
    ) -> None:
        """Run a version in another way: in its own where no fields are given.

        `Invalid` and `CheckFailed` refuse it; `Conflict` tells that it was taken back, and why.
        Without `wait` this returns once it has begun.
        """
        one, config, _ = await self._checked(model, version, wish.fields, wish.by)
        present = self._newest.get(one.name)
        if present is not None and present.is_open:
            raise Conflict(
                f"the configuration of '{model}' is already being changed",
                why=f"a change of version {present.version} is in phase '{present.phase}'",
                try_this="wait until it is complete",
            )
        if present is not None:
            present.followed.set()
        change = Reconfiguration(
            *(model, version, one.name, one.group, wish, self._wall()), config=config
        )
        self._newest[one.name] = change
        self._begun.put_nowait((change, one))
        if wait:
            await change.ended.wait()
            if change.error is not None:
                raise change.error
            if change.outcome is ChangeOutcome.REPLACED:
                raise Conflict(f"the configuration of '{model}' was changed again")

    async def restore(self, name: str, body: Mapping[str, Any] | None, by: By) -> Written:
        """Decide what was decided once, with all checks; for `History`."""
        one = named(self._models, self._inventory, name)
        had = body or {}
        if had and str(had.get("group", "")) != one.group:
            raise Invalid(
                f"'{name}' was the name of other versions at that time",
                why="the name has been reused since then",
            )
        wish = ChangeRequest(had.get("fields") or {}, by, tuned=had.get("tuned") or {})
        await self.set(one.model, one.version, wish)
        present = self._models.decisions.entry(CONFIGURATION, name).etag
        return Written(self._generation(), present)

    async def _checked(
        self, model: str, version: int, fields: Mapping[str, Any], by: By
    ) -> tuple[Served, Configuration, tuple[Diagnosis, ...]]:
        """What is to be changed, how it would be run, and what lint says; or it is refused."""
        one = served(self._models, self._inventory, model, version)
        if by.if_match not in ("", "*", one.decided.etag):
            raise PreconditionFailed(f"{CONFIGURATION} '{one.name}'", one.decided.etag)
        canonical_of(revised(_EMPTY, fields))  # refuses paths out of a version, as a push does
        config = revised(one.base, fields)
        return one, config, await self._checks.require_sound(one, config)

    async def _perform(self, change: Reconfiguration, one: Served) -> None:
        try:
            await self._performing.perform(change, one)
        except Exception as error:  # it is this change's problem and no other's
            _log.exception("changing the configuration of %s failed", change.name)
            change.error = ServegateError("the change failed", why=repr(error))
            change.end(ChangeOutcome.FAILED, self._wall(), repr(error))

    async def _resume(self) -> None:
        """Go on with changes whose watch is not over, once it is known how the replicas are."""
        await self._rollouts.known()
        for (kind, name), entry in self._models.decisions.entries.items():
            watch = (entry.body or {}).get("watch") if kind == CONFIGURATION else None
            if not watch or float(watch["until"]) <= self._wall():
                continue
            try:
                one = named(self._models, self._inventory, name)
                row = await self._store.revision(entry.revision)
            except ServegateError as error:
                _log.warning("the change of %s is no longer watched: %s", name, error)
                continue
            wish = ChangeRequest(entry.body.get("fields") or {}, By(row["author"], row["reason"]))
            change = Reconfiguration(
                *(one.model, one.version, name, one.group, wish, self._wall()),
                watch_until=float(watch["until"]),
                before=CallWindow.of(watch),
                former=_body(row["before"]),
                etag=entry.etag,
                resumed=True,
            )
            self._newest.setdefault(name, change)
            self._begun.put_nowait((change, one))


def _body(text: str | None) -> Mapping[str, Any] | None:
    return None if text is None else json.loads(text)
