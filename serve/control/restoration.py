"""Restoring: by which command each kind of thing gets an earlier body, and so by which checks.

| kind          | a body                      | none                    |
|---------------|-----------------------------|-------------------------|
| route         | the route is set            | refused: none can go    |
| label         | the label is set            | the label is removed    |
| model         | objective and pool are set  | both are emptied        |
| serving       | unloaded, or loaded with it | loaded as its folder is |
| configuration | its fields are set          | it is run as it came    |
| pool          | it is allowed               | what is usual is        |
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol, Unpack

from serve.control.decisions import LABEL, MODEL, POOL, ROUTE, SERVING, Decisions
from serve.control.history import Restore
from serve.control.models import By, Written
from serve.control.revision import CONFIGURATION
from serve.core.errors import Invalid, PreconditionFailed
from serve.core.routes import Route, RouteRules, Split


class Commands(Protocol):
    """What changes routes, labels and models, with all checks: `control.models.Models`."""

    async def set_route(
        self,
        name: str,
        split: Split,
        by: By,
        **rules: Unpack[RouteRules],
    ) -> Written:
        """Divide a model's calls."""

    async def set_label(self, name: str, label: str, version: int, by: By) -> Written:
        """Make a label name a version."""

    async def remove_label(self, name: str, label: str, by: By) -> Written:
        """Remove a label."""

    async def configure(
        self, name: str, *, objective: str | None, pool: str | None, by: By
    ) -> Written:
        """Set a model's service-level objective or pool."""


class Loading(Protocol):
    """What loads and unloads models, `within` seconds: `control.management.Management`."""

    async def load(self, name: str, config: str | None, by: By, within: float) -> None:
        """Serve a model."""

    async def unload(self, name: str, by: By, within: float) -> None:
        """Serve a model no longer."""


class Revising(Protocol):
    """What changes configurations, with all checks: `control.batching.configuring.Configuring`."""

    async def restore(self, name: str, body: Mapping[str, Any] | None, by: By) -> Written:
        """Run what is under a name in Triton as it was decided once."""


class Allowing(Protocol):
    """What changes pools, with all checks: `control.scaling.allowing.Pools`."""

    async def restore(self, name: str, body: Mapping[str, Any] | None, by: By) -> Written:
        """Allow of a pool what was allowed once."""


class RestoreCommands:
    """The commands by kind. `generation` is that of the present snapshot."""

    def __init__(
        self,
        commands: Commands,
        loading: Loading,
        *,
        decisions: Callable[[], Decisions],
        generation: Callable[[], int],
        revising: Revising | None = None,
        allowing: Allowing | None = None,
        within: float = 60.0,
    ) -> None:
        self._commands = commands
        self._loading = loading
        self._decisions = decisions
        self._generation = generation
        self._revising = revising
        self._allowing = allowing
        self._within = within

    def __repr__(self) -> str:
        return f"<RestoreCommands {', '.join(self.by_kind)}>"

    @property
    def by_kind(self) -> Mapping[str, Restore]:
        """What `History` wants."""
        found: dict[str, Restore] = {
            ROUTE: self._route,
            LABEL: self._label,
            MODEL: self._model,
            SERVING: self._serving,
        }
        if self._revising is not None:
            found[CONFIGURATION] = self._revising.restore
        if self._allowing is not None:
            found[POOL] = self._allowing.restore
        return found

    async def _route(self, key: str, body: Any, by: By) -> Written:
        if body is None:
            raise Invalid(
                f"model '{key}' had no route at that revision",
                why="a route cannot be removed, only changed",
                try_this=f"servegate route set {key} VERSION=100",
            )
        route = Route.from_json(body)
        return await self._commands.set_route(key, route.split, by, **route.rules)

    async def _label(self, key: str, body: Any, by: By) -> Written:
        model, _, label = key.rpartition(":")
        if body is None:
            return await self._commands.remove_label(model, label, by)
        return await self._commands.set_label(model, label, int(body["version"]), by)

    async def _model(self, key: str, body: Any, by: By) -> Written:
        had = body or {}
        objective, pool = had.get("objective") or "", had.get("pool") or ""
        return await self._commands.configure(key, objective=objective, pool=pool, by=by)

    async def _serving(self, key: str, body: Any, by: By) -> Written:
        had = body or {}
        present = self._decisions().entry(SERVING, key).etag
        if by.if_match not in ("", "*", present):
            raise PreconditionFailed(f"{SERVING} '{key}'", present)
        if had.get("unloaded"):
            await self._loading.unload(key, by, self._within)
        else:
            await self._loading.load(key, had.get("config"), by, self._within)
        return Written(self._generation(), self._decisions().entry(SERVING, key).etag)
