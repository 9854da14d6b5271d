"""The gateways behind one name: all are asked at once, and what they count is added up.

On Kubernetes the name of the metrics URL stands for every `servegate proxy` that there is. It is
resolved again and again, and each address is a gateway:

| a gateway                    | its counters               | calls in flight are |
|------------------------------|----------------------------|---------------------|
| answers                      | are added                  | known               |
| is silent for less than 10 s | as last told               | not known, of all   |
| is silent for longer         | as last told               | those of the others |
| comes, or comes back         | from now on                | known               |

So no sum ever falls, and none leaps. Gauges are those of who answers, apart by `source`. Where
calls in flight are not known the text has no such series: who lets a replica go must not take a
gateway that is silent for one that is idle. While the name has only ever stood for one address,
what is said there is passed on as it is.
"""

import asyncio
import ipaddress
import logging
import socket
import time
from collections.abc import Awaitable, Callable, Collection
from urllib.parse import SplitResult, urlsplit, urlunsplit

from serve.core.errors import ServegateError, Unavailable
from serve.wire.totals import SourceReading, Totals

RESOLVED = 5.0  # seconds for which addresses are good enough
THERE = 10.0  # seconds of silence after which a gateway is gone, as its workers are (`snapshots`)
PATIENCE = 1.5  # seconds for one answer; whoever watches waits for 2
_SHORT = 0.5  # seconds for the resolver, and for the answer of one that has been silent for long
_IN_FLIGHT = "servegate_calls_in_flight"
_CALLS = (_IN_FLIGHT, "servegate_model_calls_in_flight", "servegate_replica_calls_in_flight")
_STARTED = '\nservegate_process_start_time_seconds{source="supervisor"} '
_log = logging.getLogger("servegate.gateways")

Resolve = Callable[[str], Awaitable[Collection[str]]]
Ask = Callable[[str, float], Awaitable[str]]


class Gateways:
    """All gateways of one host name. `clock`: monotonic seconds.

    `ask` gets the text of the one at an address, within so many seconds; the empty address is
    wherever the name leads. `resolve` gives the addresses; what goes wrong there is an OSError.
    """

    def __init__(
        self, host: str, ask: Ask, *, resolve: Resolve, clock: Callable[[], float]
    ) -> None:
        self._host = host
        self._ask = ask
        self._resolve = resolve
        self._clock = clock
        self._looking: asyncio.Future[Collection[str]] | None = None
        self._looked_at = -RESOLVED
        self._problem = "its name has not been resolved yet"  # while there is no address
        self._addresses: frozenset[str] = frozenset()
        self._silent: dict[str, float | None] = {}  # since when; None while it answers
        self._only: tuple[str, str] | None = None  # the one that there was, and what it said
        self._totals: Totals | None = None  # once there has been more than one
        self._has_told = False
        self._one_at_a_time = asyncio.Lock()  # an older reading must not overtake a newer one
        self._begun = 0
        self._newest: str | None = None

    def __repr__(self) -> str:
        return f"<Gateways {self._host} {sorted(self._silent)}>"

    @classmethod
    def of(cls, url: str, ask: Ask, resolve: Resolve) -> "Gateways | None":
        """Those that a URL leads to; None where its host is no name, but the address of one."""
        host = urlsplit(url).hostname or ""
        try:
            ipaddress.ip_address(host)
        except ValueError:
            return cls(host, ask, resolve=resolve, clock=time.monotonic) if host else None
        return None

    async def text(self, within: float) -> str:
        """What all say, in one text; `Unavailable` where none answers.

        `within`: seconds for the answer of one that stands alone. All that wait while a reading is
        under way get the next one, which began after they had asked.
        """
        asked = self._begun
        async with self._one_at_a_time:
            if self._begun > asked and self._newest is not None:
                return self._newest
            self._begun, self._newest = self._begun + 1, None
            await self._look()
            totals = self._totals
            self._newest = await (self._ask_all(totals) if totals else self._ask_one(within))
            return self._newest

    def close(self) -> None:
        """Stop looking for addresses; a later reading begins again."""
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None

    # --- who they are -----------------------------------------------------------------------------

    async def _look(self) -> None:
        """Know the addresses as of lately; what was known before stays until there is news."""
        now = self._clock()
        if self._looking is None and now - self._looked_at >= RESOLVED:
            self._looking = asyncio.ensure_future(self._resolve(self._host))
        if self._looking is not None:
            # A resolver may take long: it goes on by itself, and nobody starts a second one.
            await asyncio.wait([self._looking], timeout=_SHORT)
            if self._looking.done():
                looking, self._looking, self._looked_at = self._looking, None, now
                self._learn(looking)
        if not self._addresses:
            raise Unavailable(
                f"there is no gateway at {self._host}",
                why=self._problem,
                try_this="--gateway with the URLs of running gateways",
            )
        for address in self._addresses:
            self._silent.setdefault(address, now)
        if self._totals is None and len(self._silent) > 1:
            self._totals = Totals()
            if self._only is not None:
                self._has_told = self._take(self._totals, *self._only)
                self._only = None

    def _learn(self, looking: "asyncio.Future[Collection[str]]") -> None:
        try:
            found = of_one_family(looking.result(), self._addresses)
            self._addresses = found or self._addresses
            self._problem = "the name has no address"
        except (OSError, ValueError) as error:
            self._problem = f"the name cannot be resolved: {error or type(error)}"
            _log.debug("%s: %s", self._host, self._problem)

    # --- what they say ----------------------------------------------------------------------------

    async def _ask_one(self, within: float) -> str:
        (address,) = self._silent
        text = await self._ask("", within)
        self._only = (address, text)
        return text

    async def _ask_all(self, totals: Totals) -> str:
        now = self._clock()
        told: dict[str, str] = {}
        async with asyncio.TaskGroup() as tasks:
            for address, since in self._silent.items():
                is_gone = since is not None and now - since >= THERE
                patience = _SHORT if is_gone else PATIENCE
                tasks.create_task(self._hear(address, patience, told))
        for address in sorted(told):
            if not self._take(totals, address, told[address]):
                del told[address]
            await asyncio.sleep(0)  # each takes milliseconds, and others wait
        asked = ", ".join(sorted(self._silent))
        is_known = self._note(totals, told)
        if not told:
            raise Unavailable(
                f"no gateway at {self._host} answers", why=f"the addresses are {asked}"
            )
        self._has_told = True
        return totals.text(told, without=() if is_known else _CALLS)

    async def _hear(self, address: str, patience: float, told: dict[str, str]) -> None:
        try:
            told[address] = await self._ask(address, patience)
        except (ServegateError, OSError) as error:
            _log.debug("the gateway at %s does not answer: %s", address, error or type(error))

    def _take(self, totals: Totals, address: str, text: str) -> bool:
        """Add up what it says; whether that can be read."""
        life = text.partition(_STARTED)[2].partition("\n")[0]
        try:
            totals.take(address, SourceReading(text, life), from_now=self._has_told)
        except ValueError as error:
            _log.warning("the metrics of the gateway at %s cannot be read: %s", address, error)
            return False
        return True

    def _note(self, totals: Totals, told: dict[str, str]) -> bool:
        """Who was silent since when; whether all who are there tell their calls in flight."""
        now, is_known = self._clock(), True
        for address, before in list(self._silent.items()):
            tells = f"\n{_IN_FLIGHT}{{" in told.get(address, "")
            since = None if tells else now if before is None else before
            self._silent[address] = since
            if since is not None and now - since < THERE:
                is_known = False
            elif since is not None:
                is_listed = address in self._addresses
                if not (is_listed and address in told):
                    totals.forget(address)
                if not is_listed:
                    del self._silent[address]
        return is_known


def at_address(url: SplitResult, address: str) -> str:
    """A URL at one address of its name; an empty one changes nothing."""
    host = f"[{address}]" if ":" in address else address
    there = host if url.port is None else f"{host}:{url.port}"
    return urlunsplit(url._replace(netloc=there) if address else url)


async def addresses(host: str) -> Collection[str]:
    """All that a name stands for; an OSError where that is nothing."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return {str(where[0]) for *_, where in found}


def of_one_family(found: Collection[str], before: Collection[str]) -> frozenset[str]:
    """Each gateway once, which may have an IPv4 and an IPv6 address.

    Those of the family that there was before; at first IPv4, where there is any.
    """
    first = sorted(before or found, key=lambda one: ":" in one)[:1]
    return frozenset(one for one in found if (":" in one) == (":" in first[0]))
