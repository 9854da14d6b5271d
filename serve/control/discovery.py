"""Discovering: keeps the members of the fleet as the sources name them.

    EndpointSlices ─┐                                        ┌─▶ begin   the first whole list
    host names ─────┼─▶ what each said last ─▶ members ──────┤
    --triton ───────┘   (`discovered.py`)                    └─▶ become  each one after it, until
                                                                         nobody is on the way out
A source that does not answer changes nothing: what it said last stays in force. As long as one has
never answered, nothing is published: the workers' snapshots of earlier are better than half of a
fleet. The same holds while no Triton at all is found, unless every pool may have none.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client.core import GaugeMetricFamily, Metric

from serve.control.discovered import NOBODY, DiscoveredMembers, Where, merged
from serve.control.fleet import Fleet
from serve.control.membership import Membership
from serve.core.errors import ServegateError
from serve.core.replicas import Replica
from serve.triton.discovery.endpoints import Endpoint, Listing
from serve.triton.discovery.source import ReplicaSource

_LOOK = 1.0  # seconds until the next look, while something is left to be done
_SILENT = 10.0  # seconds after its last answer, in which a replica still counts as answering
_log = logging.getLogger("servegate.discovery")


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """One source: whether it answers, and since when that has been so, in seconds; else `why`.

    `endpoints` is how many it names; None before its first list.
    """

    name: str
    is_up: bool
    seconds: float
    endpoints: int | None
    why: str
    problems: tuple[str, ...]


class Discovering:
    """Follows the sources while `run` runs. `clock`: that of the fleet's times, monotonic seconds.

    `static` are the replicas that are always there, `may_be_empty` says whether there may be none.
    """

    def __init__(
        self,
        sources: Mapping[str, ReplicaSource],
        static: Sequence[Replica],
        *,
        fleet: Fleet,
        membership: Membership,
        may_be_empty: Callable[[], bool],
        clock: Callable[[], float],
        look: float = _LOOK,
    ) -> None:
        self._sources = sources
        self._static = static
        self._fleet = fleet
        self._membership = membership
        self._may_be_empty = may_be_empty
        self._clock = clock
        self._look = look
        self._news = asyncio.Event()
        self._heard = {name: _Heard(name, clock, self._news.set) for name in sources}
        self._members = NOBODY
        self._has_begun = self._waits_for_one = False
        self._are_leaving = False
        self._said: set[str] = set()

    def __repr__(self) -> str:
        return f"<Discovering {list(self._heard)} members={sorted(self._members.by_name)}>"

    @property
    def sources(self) -> tuple[SourceStatus, ...]:
        """How each source is."""
        return tuple(self._status(name, one) for name, one in self._heard.items())

    def endpoint(self, name: str) -> Endpoint | None:
        """What is said of a replica; None of one that no source names."""
        found = (one.endpoints.get(name) for one in self._heard.values())
        return next((one for one in found if one is not None), None)

    async def run(self) -> None:
        """Follow until cancelled; without a source there is nothing to be done."""
        if not self._sources:
            return
        async with asyncio.TaskGroup() as tasks:
            for name, source in self._sources.items():
                tasks.create_task(source.run(self._heard[name]))
            while True:
                self._news.clear()
                is_done = await self._step()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(None if is_done else self._look):
                        await self._news.wait()

    async def _step(self) -> bool:
        """Do what is to be done; whether nothing is left before there is news."""
        if not all(one.has_told for one in self._heard.values()):
            return True
        members = self._merged()
        before, self._members = self._members, members
        self._tell(members)
        if not self._has_begun:
            return await self._begin(members)
        if members.replicas != before.replicas or self._are_leaving:
            new = members.by_name.keys() - before.by_name.keys()
            begun = {name for name in new if not self._serves(name)}
            left = await self._membership.become(members.replicas, begun=begun, within=self._look)
            self._are_leaving = bool(left)
        self._forget_ended()
        return not (members.missing or self._are_leaving)

    async def _begin(self, members: DiscoveredMembers) -> bool:
        if not (members.replicas or self._may_be_empty()):
            if not self._waits_for_one:
                _log.warning("no Triton has been discovered yet, so no snapshot is published")
            self._waits_for_one = True
            return False
        await self._membership.begin(members.replicas)
        self._has_begun = True
        return True

    def _merged(self) -> DiscoveredMembers:
        heard = self._heard.items()
        return merged(
            self._static,
            {name: tuple(one.endpoints.values()) for name, one in heard},
            before=self._members,
            ended={name for _, one in heard for name in one.ended},
            answers=self._answers,
            now=self._clock(),
        )

    def _answers(self, name: str) -> bool:
        seen = self._fleet.observations.get(name)
        return seen is not None and (seen.is_up or self._clock() - seen.since < _SILENT)

    def _serves(self, name: str) -> bool:
        endpoint = self.endpoint(name)
        return endpoint is None or endpoint.is_serving

    def _forget_ended(self) -> None:
        for one in self._heard.values():
            one.ended &= self._members.by_name.keys() | one.endpoints.keys()

    def _tell(self, members: DiscoveredMembers) -> None:
        """Say once what is wrong, and again when it has been right in between."""
        said = set()
        for name, one in self._heard.items():
            for problem in self._problems(name, one, members):
                said.add(f"{name}: {problem}")
        for text in sorted(said - self._said):
            _log.warning("%s", text)
        self._said = said

    def _problems(self, name: str, one: "_Heard", members: DiscoveredMembers) -> tuple[str, ...]:
        kept = [
            _vanished(where, those) for where, those in members.kept.items() if where[0] == name
        ]
        told = one.listing.problems if one.listing else ()
        return (*told, *members.problems.get(name, ()), *kept)

    def _status(self, name: str, one: "_Heard") -> SourceStatus:
        return SourceStatus(
            name,
            one.is_up,
            round(self._clock() - one.since, 1),
            len(one.endpoints) if one.has_told else None,
            "" if one.is_up else str(one.error or "it has not answered yet"),
            self._problems(name, one, self._members),
        )

    def collect(self) -> Iterable[Metric]:
        """The sources as numbers for Prometheus."""
        up = _family(
            "up",
            "1 while the discovery source responds; while it is 0, its last list remains in use",
        )
        endpoints = _family("endpoints", "Replicas that the discovery source returned")
        problems = _family(
            "problems", "Problems with what the discovery source returned, such as invalid entries"
        )
        for one in self.sources:
            up.add_metric([one.name], float(one.is_up))
            endpoints.add_metric([one.name], one.endpoints or 0)
            problems.add_metric([one.name], len(one.problems))
        return [up, endpoints, problems]


class _Heard:
    """What one source has said. `ended`: names that have been terminating."""

    def __init__(self, name: str, clock: Callable[[], float], news: Callable[[], None]) -> None:
        self._name = name
        self._clock = clock
        self._news = news
        self.listing: Listing | None = None
        self.endpoints: dict[str, Endpoint] = {}
        self.ended: set[str] = set()
        self.error: ServegateError | None = None
        self.since = clock()

    @property
    def has_told(self) -> bool:
        """Whether it has ever told its list."""
        return self.listing is not None

    @property
    def is_up(self) -> bool:
        """Whether it answered when it was last asked."""
        return self.has_told and self.error is None

    def told(self, listing: Listing) -> None:
        """See `Listener`."""
        if not self.has_told:
            self.since = self._clock()
        if listing == self.listing:
            return
        self.listing = listing
        self.endpoints = {one.replica.name: one for one in listing.endpoints}
        ending = {name for name, one in self.endpoints.items() if one.is_terminating}
        self.ended = (self.ended - self.endpoints.keys()) | ending
        self._news()

    def well(self) -> None:
        """See `Listener`."""
        if self.error is not None:
            _log.info("%s answers again", self._name)
            self.error, self.since = None, self._clock()

    def failed(self, error: ServegateError) -> None:
        """See `Listener`."""
        if self.error is None:
            self.since = self._clock()
        if str(error) != str(self.error or ""):
            _log.warning("%s; the last list of %s stays active", error, self._name)
        self.error = error


def _vanished(where: Where, names: Sequence[str]) -> str:
    source, pool = where
    return (
        f"{source} no longer lists any replica of pool {pool} ({', '.join(names)}), and none of "
        "them was terminating; they stay as long as one of them answers. Try: check the Service's "
        "selector, ports and label servegate.dev/pool, or stop the Tritons"
    )


def _family(name: str, text: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"servegate_discovery_{name}", text, labels=["source"])
