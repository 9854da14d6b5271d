"""Names: the Tritons behind a host name, looked up again and again.

Each address is a replica, which is called by its pool and address: `default-10.0.0.7`. Only IPv4
addresses count where the name has any, because a machine with one of each would be two replicas,
and nothing in the DNS says which belong together. A name that is not found, and a resolver that
does not answer, change nothing: the DNS cannot say that there are none.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import replace

from serve.core.errors import Unavailable
from serve.core.replicas import Replica
from serve.triton.discovery.endpoints import Endpoint, Listing
from serve.triton.discovery.source import Listener

_EVERY = 5.0  # seconds; as long as Kubernetes' own DNS lets an answer be kept
# Errors that do not say whether the name has addresses of a family.
_NOBODY_KNOWS = (socket.EAI_AGAIN, socket.EAI_FAIL, socket.EAI_MEMORY, socket.EAI_SYSTEM)

# Gives the addresses of a family that a host has; `socket.gaierror` when it has none.
Resolve = Callable[[str, socket.AddressFamily], Awaitable[Collection[str]]]


async def resolve(host: str, family: socket.AddressFamily) -> Collection[str]:
    """As this machine resolves names."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, None, family=family, type=socket.SOCK_STREAM)
    return {str(address[0]) for *_, address in found}


class NamedReplicas:
    """The source. `model` is what all replicas are like, and its host the name."""

    def __init__(
        self,
        model: Replica,
        *,
        resolve: Resolve = resolve,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._model = model
        self._resolve = resolve
        self._sleep = sleep
        # The first one it has is the one.
        self._families: tuple[socket.AddressFamily, ...] = (socket.AF_INET, socket.AF_INET6)

    def __repr__(self) -> str:
        return f"<NamedReplicas {self._model}>"

    async def run(self, listener: Listener) -> None:
        """See `Source`."""
        while True:
            try:
                listener.told(replicas_at(self._model, await self._addresses()))
                listener.well()
            except (OSError, ValueError) as error:
                why = str(error)
                listener.failed(
                    Unavailable(f"the name {self._model.host} cannot be resolved", why=why)
                )
            await self._sleep(_EVERY)

    async def _addresses(self) -> Collection[str]:
        none: OSError = OSError("it has no address")
        for family in self._families:
            try:
                found = await self._resolve(self._model.host, family)
            except socket.gaierror as error:
                if error.errno in _NOBODY_KNOWS:
                    raise
                none = error
                continue
            if found:
                self._families = (family,)
                return found
        raise none


def replicas_at(model: Replica, addresses: Iterable[str]) -> Listing:
    """One replica like this at each address."""
    found = sorted({ipaddress.ip_address(one) for one in addresses}, key=str)
    return Listing(
        tuple(
            Endpoint(replace(model, name=_name(model.pool, str(one)), host=str(one)))
            for one in found
        )
    )


def _name(pool: str, address: str) -> str:
    return f"{pool}-{address.replace(':', '-')}"
